// What has each thread of a step to itself?  For the parts of Model only.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "model.h"

namespace starshade {

// So few rows are normed by every thread for itself: cheaper than meeting at a barrier.
constexpr std::int64_t kAloneRows = 2;
// Columns of gates and ups that are taken further while they are in the cache.
constexpr std::int64_t kActivatedColumns = 64;
// From so many rows on, threads take parts when they are free, instead of equal shares.
constexpr std::int64_t kSharedRows = 16;
constexpr std::int64_t kRowsAtOnce = 32, kTilesAtOnce = 2;

// Calls work(row, block) for the rows of a span.
template <class Work>
inline void for_rows(Span rows, const std::vector<RowBlock>& blocks, const Work& work) {
  for (const RowBlock& block : blocks) {
    const std::int64_t end = std::min(rows.end, block.end);
    for (std::int64_t row = std::max(rows.first, block.first); row < end; ++row) work(row, block);
  }
}

struct Model::Thread {
  Thread(std::size_t index, std::size_t count, std::int64_t max_cols, std::int64_t ffn_size,
         std::size_t scratch_bytes)
      : index(std::int64_t(index)),
        count(std::int64_t(count)),
        x(std::size_t(kAloneRows * max_cols)),
        gate_up(std::size_t(2 * std::max(kSharedRows * (ffn_size / std::int64_t(count) + kGroup),
                                         kBulkBlockRows * kActivatedColumns))),
        quantized(kAloneRows, max_cols),
        scratch(scratch_bytes) {}

  Span share(std::int64_t total) const { return {total * index / count, total * (index + 1) / count}; }

  const std::int64_t index, count;
  const StepRows* rows = nullptr;  // of the step, or what is left of them
  std::int64_t num_shared_out = 0;  // in this step
  LineVector<float> x;        // rows that this thread norms for itself
  LineVector<float> gate_up;  // of few rows: its share of the outputs; of a block: kActivatedColumns
  QuantizedBuffer quantized;
  LineVector<std::uint8_t> scratch;   // attention's
  std::vector<BestLogit> best;        // by logits row, of this thread's tiles
};

// Whoever is free takes the next part, since a core that shares its caches with strangers may take
// three times as long as another. With few rows a part would take less than its counter.
template <class Work>
void Model::share_out(Thread& self, std::int64_t total, std::int64_t part, const Work& work) {
  if (self.rows->num_tokens() < kSharedRows) return work(self.share(total));
  take_parts(self, total, part, work);
}

template <class Work>
void Model::take_parts(Thread& self, std::int64_t total, std::int64_t part, const Work& work) {
  std::atomic<std::int64_t>& next = next_part_[std::size_t(self.num_shared_out++)].next;
  for (std::int64_t first; (first = next.fetch_add(part, std::memory_order_relaxed)) < total;) {
    work(Span{first, std::min(first + part, total)});
  }
}

template <class Work>
void Model::take_rows(Thread& self, std::int64_t num_rows, const std::vector<RowBlock>& blocks,
                      const Work& work) {
  if (num_rows <= kAloneRows) return for_rows({0, num_rows}, blocks, work);
  share_out(self, num_rows, kRowsAtOnce, [&](Span rows) { for_rows(rows, blocks, work); });
  threads_.barrier();
}

}  // namespace starshade
