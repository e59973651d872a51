#include "attention.h"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace starshade {
namespace {

// Below this many multiply-adds a task is done before a sleeping thread has woken (about 20 us).
constexpr std::int64_t kWorthWaking = 200'000;

void require(bool holds, const char* what, std::size_t sequence) {
  if (!holds) throw std::invalid_argument(what + (" of sequence " + std::to_string(sequence)));
}

}  // namespace

AttentionStep::AttentionStep(const std::int32_t* query_starts, const std::int32_t* context_lens,
                             const std::int32_t* block_tables, std::size_t num_sequences,
                             std::size_t table_width, std::int32_t num_blocks,
                             std::int32_t block_size)
    : num_blocks_(num_blocks), block_size_(block_size), num_rows_(query_starts[num_sequences]) {
  if (block_size < 1 || query_starts[0] != 0) {
    throw std::invalid_argument("a block has at least one token, and row 0 comes first");
  }
  for (std::size_t index = 0; index < num_sequences; ++index) {
    const std::int64_t rows = std::int64_t{query_starts[index + 1]} - query_starts[index];
    const std::int32_t context_len = context_lens[index];
    require(rows >= 0 && rows <= context_len, "rows do not fit the context", index);
    const std::size_t used = (std::size_t(context_len) + block_size - 1) / block_size;
    require(used <= table_width, "the block table is too short for the context", index);
    const std::int32_t* table = block_tables + index * table_width;
    for (std::size_t block = 0; block < used; ++block) {
      require(table[block] >= 0 && table[block] < num_blocks, "a block id is out of range", index);
    }
    if (rows == 0) continue;
    const std::int32_t first_position = context_len - static_cast<std::int32_t>(rows);
    sequences_.push_back({query_starts[index], static_cast<std::int32_t>(rows), first_position,
                          block_ids_.size()});
    block_ids_.insert(block_ids_.end(), table, table + used);
    num_scores_ += rows * context_len;
  }
}

void AttentionStep::plan_tasks(std::int32_t group, std::int32_t num_kv_heads) {
  tasks_.clear();
  group_ = group;
  num_kv_heads_ = num_kv_heads;
  const std::int32_t tile = std::max(1, kTileRows / group);
  for (const SequenceRows& rows : sequences_) {
    // The last queries see the most keys: long tasks first.
    for (std::int32_t end = rows.num_queries; end > 0; end -= std::min(tile, end)) {
      const std::int32_t first = std::max(0, end - tile);
      for (std::int32_t kv_head = 0; kv_head < num_kv_heads; ++kv_head) {
        tasks_.push_back({block_ids_.data() + rows.first_block, rows.first_row + first,
                          end - first, rows.first_position + first, kv_head});
      }
    }
  }
}

void AttentionStep::attend(ThreadPool& pool, AttentionKernel kernel, const AttentionArgs& args) {
  const std::int32_t group = args.num_heads / args.num_kv_heads;
  if (group != group_ || args.num_kv_heads != num_kv_heads_) plan_tasks(group, args.num_kv_heads);
  const std::size_t num_floats =
      scratch_floats(std::size_t(std::max(kTileRows, group)), std::size_t(args.head_dim));
  scratch_.resize(pool.num_threads());
  for (std::vector<float>& scratch : scratch_) scratch.resize(num_floats);
  const auto compute = [&](std::size_t task, std::size_t thread) {
    kernel(args, tasks_[task], scratch_[thread].data());
  };
  if (num_scores_ * args.num_heads * args.head_dim * 2 < kWorthWaking) {
    for (std::size_t task = 0; task < tasks_.size(); ++task) compute(task, 0);
  } else {
    pool.run(tasks_.size(), compute);
  }
}

}  // namespace starshade
