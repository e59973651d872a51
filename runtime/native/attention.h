// Which tasks does a step's attention consist of, and which kernel runs them?
#pragma once

#include <cstdint>
#include <vector>

#include "attention_kernel.h"
#include "thread_pool.h"

namespace starshade {

// The ragged batch of one step, checked and copied: every block id is in range.
class AttentionStep {
 public:
  // query_starts: (B + 1), context_lens: (B), block_tables: (B, table_width).
  // Throws std::invalid_argument when they contradict each other.
  AttentionStep(const std::int32_t* query_starts, const std::int32_t* context_lens,
                const std::int32_t* block_tables, std::size_t num_sequences,
                std::size_t table_width, std::int32_t num_blocks, std::int32_t block_size);

  std::int32_t num_blocks() const { return num_blocks_; }
  std::int32_t block_size() const { return block_size_; }
  std::int64_t num_rows() const { return num_rows_; }

  // Computes all rows; scratch grows inside the step and is kept for the next layer.
  void attend(ThreadPool& pool, AttentionKernel kernel, const AttentionArgs& args);

 private:
  void plan_tasks(std::int32_t group, std::int32_t num_kv_heads);

  struct SequenceRows {
    std::int64_t first_row;
    std::int32_t num_queries, first_position;
    std::size_t first_block;
  };
  std::vector<SequenceRows> sequences_;
  std::vector<std::int32_t> block_ids_;
  std::vector<AttentionTask> tasks_;  // for these heads; all layers of a model have the same
  std::int32_t group_ = 0, num_kv_heads_ = 0;
  std::vector<std::vector<float>> scratch_;
  std::int32_t num_blocks_, block_size_;
  std::int64_t num_rows_;
  std::int64_t num_scores_ = 0;  // (row, key) pairs for one KV head, about
};

}  // namespace starshade
