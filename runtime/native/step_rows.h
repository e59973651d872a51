// Which rows does one step compute?
#pragma once

#include <cstdint>
#include <vector>

namespace starshade {

// A step as it comes from outside; nothing in it is trusted. See runtime/plan.py.
struct StepArrays {
  const std::int32_t* token_ids;     // (T)
  const std::int32_t* positions;     // (T)
  const std::int64_t* slots;         // (T)
  const std::int32_t* query_starts;  // (B + 1)
  const std::int32_t* context_lens;  // (B)
  const std::int32_t* prompt_lens;   // (B)
  const bool* batch_invariant;       // (B)
  const std::int32_t* block_tables;  // (B, table_width)
  const std::int32_t* logits_rows;   // (S)
  std::int64_t num_tokens, num_sequences, table_width, num_logits_rows;
};

struct StepLimits {
  std::int64_t vocab_size, num_blocks, block_size, max_positions;
  bool has_bulk;  // do the kernels gain by it?
};

// Rows of a sequence that lie one after the other, of its prompt or after it. Those in bulk are
// multiplied with all others in bulk: prompts, whatever the step, and generated ones that may depend on
// what else it has, if there is enough of it.
struct SequenceRows {
  std::int64_t first_row;
  std::int32_t num_queries, first_position;
  const std::int32_t* block_ids;  // into the step's own copy
  bool is_prompt, is_bulk;
};

// Neighbouring rows that are multiplied alike.
struct RowBlock {
  std::int64_t first, end;
  bool is_bulk;
};

// Rows of a block at most: their products are taken further while they are in the cache. Those in
// bulk have more, since unpacking weights for them is dear.
constexpr std::int64_t kBlockRows = 128, kBulkBlockRows = 512;
// Prompts' rows and other sequences that it takes until generated ones are computed in bulk, and until
// their logits are: before, reading weights of other forms costs more than it gains.
constexpr std::int64_t kBulkSequences = 6, kBulkLogits = 16;

// A checked copy of one step; its memory is kept for the next one.
class StepRows {
 public:
  // Throws std::invalid_argument when arrays contradict each other; std::out_of_range for a token
  // id, slot, position or block that does not exist.
  void take(const StepArrays& arrays, const StepLimits& limits);

  // Of the rows of `all`, which must outlive these, those whose logits are wanted, computed as there.
  // False and none taken where that is not fewer, or not in order.
  bool take_wanted(const StepRows& all);

  std::int64_t num_tokens() const { return std::int64_t(sequence_of.size()); }

  std::vector<std::int32_t> token_ids, positions;  // of all rows of a step only
  std::vector<std::int64_t> slots;                 // the same
  std::vector<std::int32_t> logits_rows;
  std::vector<SequenceRows> sequences;  // those with rows, in order; twice where both kinds are
  std::vector<std::int32_t> sequence_of;  // by row: index into sequences
  std::vector<RowBlock> blocks;           // all rows, in order
  std::vector<RowBlock> logits_blocks;    // of logits_rows, in order

 private:
  void take_sequence(const StepArrays& arrays, const StepLimits& limits, std::int64_t index,
                     bool has_bulk);
  void add_rows(const SequenceRows& rows);
  void cut_logits();
  void clear();

  std::vector<std::int32_t> block_ids_;
};

}  // namespace starshade
