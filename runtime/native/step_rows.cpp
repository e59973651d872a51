#include "step_rows.h"

#include <algorithm>
#include <functional>
#include <stdexcept>
#include <string>

namespace starshade {
namespace {

void require(bool holds, const char* what, std::int64_t sequence) {
  if (!holds) throw std::invalid_argument(what + (" of sequence " + std::to_string(sequence)));
}

std::int64_t rows_of_prompt(const StepArrays& arrays, std::int64_t index) {
  const std::int64_t rows = std::int64_t{arrays.query_starts[index + 1]} - arrays.query_starts[index];
  const std::int64_t first_position = arrays.context_lens[index] - rows;
  return std::clamp(arrays.prompt_lens[index] - first_position, std::int64_t{0},
                    std::max(rows, std::int64_t{0}));
}

bool is_enough_for_bulk(const StepArrays& arrays) {
  std::int64_t count = 0;
  for (std::int64_t index = 0; index < arrays.num_sequences; ++index) {
    const bool has_rows = arrays.query_starts[index + 1] > arrays.query_starts[index];
    count += rows_of_prompt(arrays, index) + (has_rows && !arrays.batch_invariant[index]);
  }
  return count >= kBulkSequences;
}

void require_range(bool holds, const char* what, std::int64_t row) {
  if (!holds) throw std::out_of_range(what + (" of row " + std::to_string(row)));
}

}  // namespace

void StepRows::take(const StepArrays& arrays, const StepLimits& limits) {
  const std::int64_t num_tokens = arrays.num_tokens;
  if (arrays.query_starts[0] != 0 || arrays.query_starts[arrays.num_sequences] != num_tokens) {
    throw std::invalid_argument("the sequences' rows are not all rows");
  }
  const std::int64_t num_slots = limits.num_blocks * limits.block_size;
  for (std::int64_t row = 0; row < num_tokens; ++row) {
    const std::int32_t token_id = arrays.token_ids[row], position = arrays.positions[row];
    require_range(token_id >= 0 && token_id < limits.vocab_size, "unknown token id", row);
    require_range(position >= 0 && position < limits.max_positions, "impossible position", row);
    require_range(arrays.slots[row] >= 0 && arrays.slots[row] < num_slots, "unknown slot", row);
  }
  if (arrays.num_logits_rows > num_tokens) {
    throw std::invalid_argument("more logits are wanted than there are rows");
  }
  for (std::int64_t index = 0; index < arrays.num_logits_rows; ++index) {
    const std::int32_t row = arrays.logits_rows[index];
    require_range(row >= 0 && row < num_tokens, "logits wanted", row);
  }
  clear();
  token_ids.assign(arrays.token_ids, arrays.token_ids + num_tokens);
  positions.assign(arrays.positions, arrays.positions + num_tokens);
  slots.assign(arrays.slots, arrays.slots + num_tokens);
  logits_rows.assign(arrays.logits_rows, arrays.logits_rows + arrays.num_logits_rows);
  // Reserved, because sequences point into it.
  block_ids_.reserve(std::size_t(arrays.num_sequences * arrays.table_width));
  const bool has_bulk = limits.has_bulk && is_enough_for_bulk(arrays);
  for (std::int64_t index = 0; index < arrays.num_sequences; ++index) {
    take_sequence(arrays, limits, index, has_bulk);
  }
  cut_logits();
}

void StepRows::clear() {
  for (std::vector<std::int32_t>* rows : {&token_ids, &positions, &logits_rows, &sequence_of, &block_ids_}) {
    rows->clear();
  }
  slots.clear();
  sequences.clear();
  blocks.clear();
  logits_blocks.clear();
}

bool StepRows::take_wanted(const StepRows& all) {
  clear();
  const std::vector<std::int32_t>& wanted = all.logits_rows;
  const bool is_in_order =
      std::adjacent_find(wanted.begin(), wanted.end(), std::greater_equal<>()) == wanted.end();
  if (!is_in_order || wanted.size() == all.token_ids.size()) return false;
  for (std::size_t at = 0, end; at < wanted.size(); at = end) {
    const auto first = std::size_t(wanted[at]);
    const std::int32_t index = all.sequence_of[first];
    for (end = at; end < wanted.size() && std::size_t(wanted[end]) == first + (end - at) &&
                   all.sequence_of[std::size_t(wanted[end])] == index;) {
      logits_rows.push_back(std::int32_t(end++));
    }
    SequenceRows rows = all.sequences[std::size_t(index)];
    rows.first_position += std::int32_t(std::int64_t(first) - rows.first_row);
    rows.first_row = std::int64_t(at);
    rows.num_queries = std::int32_t(end - at);
    add_rows(rows);
  }
  logits_blocks = all.logits_blocks;
  return true;
}

void StepRows::take_sequence(const StepArrays& arrays, const StepLimits& limits,
                             std::int64_t index, bool has_bulk) {
  const std::int32_t first_row = arrays.query_starts[index];
  const std::int64_t rows = std::int64_t{arrays.query_starts[index + 1]} - first_row;
  const std::int32_t context_len = arrays.context_lens[index];
  require(rows >= 0 && first_row + rows <= arrays.num_tokens, "rows overlap", index);
  require(rows <= context_len, "rows do not fit the context", index);
  const std::int64_t used = (context_len + limits.block_size - 1) / limits.block_size;
  require(used <= arrays.table_width, "the block table is too short for the context", index);
  const std::int32_t* table = arrays.block_tables + index * arrays.table_width;
  for (std::int64_t block = 0; block < used; ++block) {
    if (table[block] < 0 || table[block] >= limits.num_blocks) {
      throw std::out_of_range("unknown block id of sequence " + std::to_string(index));
    }
  }
  if (rows == 0) return;
  const std::int32_t first_position = context_len - std::int32_t(rows);
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t position = first_position + row;
    const std::int64_t slot = table[position / limits.block_size] * limits.block_size +
                              position % limits.block_size;
    require(arrays.positions[first_row + row] == position, "positions do not fit the context", index);
    require(arrays.slots[first_row + row] == slot, "slots do not fit the block table", index);
  }
  const std::int32_t* copy = block_ids_.data() + block_ids_.size();
  block_ids_.insert(block_ids_.end(), table, table + used);
  const auto of_prompt = std::int32_t(rows_of_prompt(arrays, index));
  add_rows({first_row, of_prompt, first_position, copy, true, true});
  add_rows({first_row + of_prompt, std::int32_t(rows) - of_prompt, first_position + of_prompt, copy,
            false, has_bulk && !arrays.batch_invariant[index]});
}

void StepRows::add_rows(const SequenceRows& rows) {
  if (rows.num_queries == 0) return;
  sequence_of.insert(sequence_of.end(), std::size_t(rows.num_queries),
                     std::int32_t(sequences.size()));
  sequences.push_back(rows);
  for (std::int64_t num_rows = rows.num_queries; num_rows > 0;) {
    const std::int64_t first = blocks.empty() ? 0 : blocks.back().end;
    const std::int64_t most = rows.is_bulk ? kBulkBlockRows : kBlockRows;
    const bool goes_on = !blocks.empty() && blocks.back().is_bulk == rows.is_bulk &&
                         first - blocks.back().first < most;
    if (!goes_on) blocks.push_back({first, first, rows.is_bulk});
    RowBlock& block = blocks.back();
    const std::int64_t taken = std::min(num_rows, most - (block.end - block.first));
    block.end += taken;
    num_rows -= taken;
  }
}

// Logits of generated tokens in bulk are computed in bulk; where they are few, none are.
void StepRows::cut_logits() {
  const auto is_bulk = [this](std::int32_t row) {
    const SequenceRows& sequence = sequences[std::size_t(sequence_of[std::size_t(row)])];
    return sequence.is_bulk && !sequence.is_prompt;
  };
  const bool has_bulk = std::count_if(logits_rows.begin(), logits_rows.end(), is_bulk) >= kBulkLogits;
  for (std::size_t index = 0; index < logits_rows.size(); ++index) {
    const auto at = std::int64_t(index);
    const bool in_bulk = has_bulk && is_bulk(logits_rows[index]);
    if (logits_blocks.empty() || logits_blocks.back().is_bulk != in_bulk) {
      logits_blocks.push_back({at, at, in_bulk});
    }
    logits_blocks.back().end = at + 1;
  }
}

}  // namespace starshade
