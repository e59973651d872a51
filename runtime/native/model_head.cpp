// From the last rows to logits, and to the best of each row.
#include <algorithm>
#include <cmath>

#include "model.h"
#include "model_thread.h"

namespace starshade {
namespace {

// Tiles of the head between two looks at their logits, which are then still in the cache.
constexpr std::int64_t kHeadTiles = 64;
// Logits so near the best are computed again, as long as they are fewer than that.
constexpr float kNearBest = 0.5f;
constexpr std::int64_t kMostNear = 32;

}  // namespace

void Model::head(Thread& self) {
  if (self.rows->logits_rows.empty()) return;
  const Operand in = norm_rows(self, weights_->output_norm, weights_->head,
                               self.rows->logits_rows.data(), self.rows->logits_blocks);
  const std::int64_t vocab = shape_.vocab_size;
  share_out(self, (vocab + kTileOutputs - 1) / kTileOutputs, kHeadTiles, [&](Span tiles) {
    for (std::int64_t tile = tiles.first; tile < tiles.end; tile += kHeadTiles) {
      const std::int64_t end_tile = std::min(tile + kHeadTiles, tiles.end);
      head_outputs(self, in, {tile * kTileOutputs, std::min(end_tile * kTileOutputs, vocab)});
    }
  });
  threads_.barrier();
  const auto settle = [&](std::int64_t row, const RowBlock& block) { settle_logits(self, row, block); };
  share_out(self, std::int64_t(self.rows->logits_rows.size()), 1,
            [&](Span rows) { for_rows(rows, self.rows->logits_blocks, settle); });
}

// All threads have their logits of the row.
void Model::settle_logits(Thread& self, std::int64_t row, const RowBlock& block) {
  BestLogit& best = best_[std::size_t(row)];
  best = best_of(std::size_t(row));
  const bool is_rounded = weights_->head.takes_int8() && form(weights_->head, block) == Form::groups;
  if (is_rounded && !best.is_broken && best.id >= 0) refine_logits(self, row);
}

BestLogit Model::best_of(std::size_t row) const {
  BestLogit best{-INFINITY, -1, 0};
  for (const auto& thread : per_thread_) {
    const BestLogit& found = thread->best[row];
    best.is_broken |= found.is_broken;
    const bool is_best = best.id < 0 || found.value > best.value ||
                         (found.value == best.value && found.id < best.id);
    if (found.id < 0 || !is_best) continue;  // the lowest id of equals stays
    best.value = found.value;
    best.id = found.id;
  }
  return best;
}

// What rounding the last rows to eight bits errs is a third of all that int8 activations err, and
// decides between neighbours: the few logits near the best are computed anew from floats.
void Model::refine_logits(Thread& self, std::int64_t row) {
  float* const logits = logits_.get() + row * logits_stride_;
  BestLogit& best = best_[std::size_t(row)];
  std::int32_t near[kMostNear];
  const std::int64_t count = isa_.rows->collect(logits, shape_.vocab_size, nullptr,
                                                best.value - kNearBest, kMostNear, near);
  if (count < 2 || count == kMostNear) return;
  const std::int64_t width = shape_.hidden_size;
  const float* hidden = hidden_.data() + self.rows->logits_rows[std::size_t(row)] * width;
  isa_.rows->rms_norm(hidden, weights_->output_norm.data(), shape_.eps, width, self.x.data());
  float exact[kMostNear];
  for (std::int64_t index = 0; index < count;) {
    const std::int64_t first = near[index] / kTileOutputs * kTileOutputs;
    const std::int64_t end = std::min<std::int64_t>(first + kTileOutputs, shape_.vocab_size);
    float tile[kTileOutputs];
    weights_->head.multiply(isa_.matmul, Form::f32, {}, self.x.data(), width, 1, first, end,
                            tile - first, kTileOutputs, Epilogue::store);
    if (shape_.final_softcap != 0) isa_.rows->soft_cap(tile, shape_.final_softcap, end - first);
    for (; index < count && near[index] < end; ++index) exact[index] = tile[near[index] - first];
  }
  float shift = 0;  // what all rounded logits may err alike, the others too: no step lies between
  for (std::int64_t index = 0; index < count; ++index) shift += exact[index] - logits[near[index]];
  shift /= float(count);
  for (std::int64_t index = 0; index < count; ++index) logits[near[index]] = exact[index] - shift;
  best = {-INFINITY, -1, 0};
  isa_.rows->scan(logits, shape_.vocab_size, 0, nullptr, &best);
}

void Model::head_outputs(Thread& self, const Operand& in, Span outputs) {
  for (const RowBlock& rows : self.rows->logits_blocks) {
    multiply(weights_->head, in, rows, outputs, logits_.get() + rows.first * logits_stride_,
             logits_stride_, Epilogue::store);
  }
  for (std::size_t row = 0; row < self.rows->logits_rows.size(); ++row) {
    float* logits = logits_.get() + std::int64_t(row) * logits_stride_ + outputs.first;
    const std::int64_t width = outputs.end - outputs.first;
    if (shape_.final_softcap != 0) isa_.rows->soft_cap(logits, shape_.final_softcap, width);
    isa_.rows->scan(logits, width, std::int32_t(outputs.first), nullptr, &self.best[row]);
  }
}

}  // namespace starshade
