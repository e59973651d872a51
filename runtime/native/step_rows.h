// Which rows does one step compute, and how is their attention cut into tasks?
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kv_kernel.h"

namespace starshade {

// A step as it comes from outside; nothing in it is trusted. See runtime/plan.py.
struct StepArrays {
  const std::int32_t* token_ids;     // (T)
  const std::int32_t* positions;     // (T)
  const std::int64_t* slots;         // (T)
  const std::int32_t* query_starts;  // (B + 1)
  const std::int32_t* context_lens;  // (B)
  const std::int32_t* prompt_lens;   // (B)
  const std::int32_t* block_tables;  // (B, table_width)
  const std::int32_t* logits_rows;   // (S)
  std::int64_t num_tokens, num_sequences, table_width, num_logits_rows;
};

struct StepLimits {
  std::int64_t vocab_size, num_blocks, block_size, max_positions;
};

// Rows of a sequence that lie one after the other, of its prompt or after it.
struct SequenceRows {
  std::int64_t first_row;
  std::int32_t num_queries, first_position;
  const std::int32_t* block_ids;  // into the step's own copy
  bool is_prompt;
};

// Neighbouring rows that are multiplied alike: tokens of prompts, or generated ones.
struct RowBlock {
  std::int64_t first, end;
  bool is_prompt;
};

// Rows of a block at most: their products are taken further while they are in the cache. Prompts
// have more, since unpacking weights for them is dear.
constexpr std::int64_t kBlockRows = 128, kPromptBlockRows = 512;

// A checked copy of one step; its memory is kept for the next one.
class StepRows {
 public:
  // Throws std::invalid_argument when arrays contradict each other; std::out_of_range for a token
  // id, slot, position or block that does not exist.
  void take(const StepArrays& arrays, const StepLimits& limits);

  std::int64_t num_tokens() const { return std::int64_t(token_ids.size()); }

  std::vector<std::int32_t> token_ids, positions, logits_rows;
  std::vector<std::int64_t> slots;
  std::vector<SequenceRows> sequences;  // those with rows, in order; twice where both kinds are
  std::vector<std::int32_t> sequence_of;  // by row: index into sequences
  std::vector<RowBlock> blocks;           // all rows, in order

 private:
  void take_sequence(const StepArrays& arrays, const StepLimits& limits, std::int64_t index);
  void add_rows(const SequenceRows& rows);

  std::vector<std::int32_t> block_ids_;
};

// The attention tasks of a step for one window, the same in every layer that has it.
class AttentionPlan {
 public:
  // Partial results of one (row, head), to be merged. count 1: the task wrote the output itself.
  struct Parts {
    std::int32_t count;
    const float* first;
    std::int64_t stride;
  };

  // Sequences of few rows are cut at fixed positions of their context, so that the few KV heads
  // of one sequence keep several threads busy, and so that a row's sums do not depend on the batch.
  void make(const StepRows& rows, const KvLayout& layout, std::int32_t num_heads,
            std::int32_t window);

  const std::vector<KvAttentionTask>& tasks() const { return tasks_; }
  Parts parts(const StepRows& rows, std::int64_t row, std::int64_t head) const;
  std::int64_t num_partial_floats() const { return num_partial_floats_; }
  // Call when the place of partial results is known.
  void set_partials(float* partials);

 private:
  struct Cut {
    std::int32_t num_parts;
    std::int64_t first_float;
  };
  std::vector<KvAttentionTask> tasks_;
  std::vector<std::int64_t> partial_of_;  // by task, -1: none
  std::vector<Cut> cuts_;                 // by sequence
  std::int32_t group_ = 1, num_kv_heads_ = 1, head_dim_ = 0;
  const float* partials_ = nullptr;
  std::int64_t num_partial_floats_ = 0;
};

}  // namespace starshade
