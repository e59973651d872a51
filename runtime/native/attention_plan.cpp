#include "attention_plan.h"

#include <algorithm>

namespace starshade {
namespace {

// Sequences with more rows than this have tasks enough.
constexpr std::int32_t kSplitQueries = 8;
// From so many (query, head) rows in bulk on tiles take less than vectors.
constexpr std::int32_t kTileRowsInBulk = 12;

}  // namespace

void AttentionPlan::make(const StepRows& rows, const KvLayout& layout, std::int32_t num_heads,
                         std::int32_t window) {
  tasks_.clear();
  lists_at_.clear();
  query_rows_.clear();
  partials_at_.clear();
  cuts_.clear();
  shared_.clear();
  num_partial_floats_ = 0;
  layout_ = layout;
  group_ = num_heads / layout.num_kv_heads;
  window_ = window;
  for (const SequenceRows& sequence : rows.sequences) {
    cuts_.push_back({0, 1, 0});
    if (add_split(rows, std::int32_t(cuts_.size()) - 1)) continue;
    const std::int32_t tile = std::max(1, kKvTileRows / group_);
    // The last queries see the most keys: long tasks first.
    for (std::int32_t end = sequence.num_queries; end > 0; end -= std::min(tile, end)) {
      add_whole(sequence, std::max(0, end - tile), end);
    }
  }
  for (const Part& part : shared_) add_part(rows, part);
}

std::int32_t AttentionPlan::tile_of(std::int32_t position) const {
  return position / layout_.block_size * layout_.tiles() +
         position % layout_.block_size / kTileTokens;
}

// The first tile that a query at first_position or after it may see.
std::int32_t AttentionPlan::first_tile_of(std::int32_t first_position) const {
  const std::int32_t seen = window_ == 0 ? 0 : std::max(0, first_position - window_ + 1);
  return tile_of(seen) / kChunkTiles * kChunkTiles;
}

void AttentionPlan::add_whole(const SequenceRows& sequence, std::int32_t first, std::int32_t end) {
  const std::int32_t first_position = sequence.first_position + first;
  const bool by_tiles = goes_by_tiles(sequence, end - first);
  for (std::int32_t kv_head = 0; kv_head < layout_.num_kv_heads; ++kv_head) {
    tasks_.push_back({sequence.block_ids, sequence.first_row + first, nullptr, end - first,
                      first_position, kv_head, first_tile_of(first_position),
                      tile_of(sequence.first_position + end - 1) + 1, by_tiles, nullptr});
    lists_at_.push_back(-1);
  }
}

bool AttentionPlan::goes_by_tiles(const SequenceRows& sequence, std::int32_t num_queries) const {
  return sequence.is_prompt || (sequence.is_bulk && num_queries * group_ >= kTileRowsInBulk);
}

// False for a sequence of many queries or one part.
bool AttentionPlan::add_split(const StepRows& rows, std::int32_t index) {
  const SequenceRows& sequence = rows.sequences[std::size_t(index)];
  const std::int32_t num_queries = sequence.num_queries;
  if (num_queries > kSplitQueries || num_queries * group_ > kKvTileRows) return false;
  const std::int32_t first_tile = first_tile_of(sequence.first_position);
  const std::int32_t end_tile = tile_of(sequence.first_position + num_queries - 1) + 1;
  const std::int32_t first_part = first_tile / kPartTiles;
  const std::int32_t num_parts = (end_tile + kPartTiles - 1) / kPartTiles - first_part;
  if (num_parts == 1) return false;
  cuts_.back() = {first_part, num_parts, num_partial_floats_};
  num_partial_floats_ += num_parts * layout_.num_kv_heads * num_queries * query_floats();
  Part part{first_part, first_tile, 0, {}};
  for (std::int32_t query = 0; query < num_queries; ++query) part.queries.push_back({index, query});
  for (; part.index < first_part + num_parts; ++part.index, part.first_tile = part.end_tile) {
    part.end_tile = std::min((part.index + 1) * kPartTiles, end_tile);
    const bool is_seen_whole = part.end_tile < end_tile && window_ == 0;
    if (is_seen_whole && num_queries == 1 && !sequence.is_prompt) {
      share(rows, part);
    } else {
      add_part(rows, part);
    }
  }
  return true;
}

// To a task of others that see the same blocks, if there is one with room.
void AttentionPlan::share(const StepRows& rows, const Part& part) {
  const auto blocks_of = [&](const Part& one) {
    return rows.sequences[std::size_t(one.queries[0].sequence)].block_ids +
           one.first_tile / layout_.tiles();
  };
  const std::int32_t* blocks = blocks_of(part);
  const std::int32_t num_blocks =
      (part.end_tile - 1) / layout_.tiles() - part.first_tile / layout_.tiles() + 1;
  const auto is_bulk = [&](const Part& one) {
    return rows.sequences[std::size_t(one.queries[0].sequence)].is_bulk;
  };
  for (Part& other : shared_) {
    if (is_bulk(other) != is_bulk(part)) continue;
    if (other.index != part.index || !std::equal(blocks, blocks + num_blocks, blocks_of(other))) {
      continue;
    }
    if (std::int32_t(other.queries.size() + 1) * group_ > kKvTileRows) continue;
    other.queries.push_back(part.queries[0]);
    return;
  }
  shared_.push_back(part);
}

void AttentionPlan::add_part(const StepRows& rows, const Part& part) {
  const SequenceRows& first = rows.sequences[std::size_t(part.queries[0].sequence)];
  std::int32_t first_position = first.first_position;
  for (const Query& query : part.queries) {
    const SequenceRows& sequence = rows.sequences[std::size_t(query.sequence)];
    first_position = std::min(first_position, sequence.first_position);
  }
  const auto num_queries = std::int32_t(part.queries.size());
  const bool by_tiles = goes_by_tiles(first, num_queries);
  for (std::int32_t kv_head = 0; kv_head < layout_.num_kv_heads; ++kv_head) {
    tasks_.push_back({first.block_ids, 0, nullptr, num_queries, first_position, kv_head, part.first_tile,
                      part.end_tile, by_tiles, nullptr});
    lists_at_.push_back(std::int64_t(query_rows_.size()));
    for (const Query& query : part.queries) {
      const SequenceRows& sequence = rows.sequences[std::size_t(query.sequence)];
      const Cut& cut = cuts_[std::size_t(query.sequence)];
      const std::int64_t in_sequence =
          std::int64_t{part.index - cut.first_part} * layout_.num_kv_heads + kv_head;
      query_rows_.push_back(std::int32_t(sequence.first_row) + query.query);
      partials_at_.push_back(cut.first_float + (in_sequence * sequence.num_queries + query.query) *
                                                   query_floats());
    }
  }
}

AttentionPlan::Parts AttentionPlan::parts(const StepRows& rows, std::int64_t row,
                                          std::int64_t head) const {
  const auto index = std::size_t(rows.sequence_of[std::size_t(row)]);
  const SequenceRows& sequence = rows.sequences[index];
  if (cuts_[index].num_parts == 1) return {1, nullptr, 0};
  const std::int64_t part_floats = sequence.num_queries * query_floats();
  const std::int64_t in_part = (row - sequence.first_row) * group_ + head % group_;
  return {cuts_[index].num_parts,
          partials_ + cuts_[index].first_float + head / group_ * part_floats +
              in_part * (layout_.head_dim + 2),
          layout_.num_kv_heads * part_floats};
}

void AttentionPlan::set_partials(float* partials) {
  partials_ = partials;
  partials_of_.clear();
  for (const std::int64_t at : partials_at_) partials_of_.push_back(partials + at);
  for (std::size_t task = 0; task < tasks_.size(); ++task) {
    if (lists_at_[task] < 0) continue;
    tasks_[task].query_rows = query_rows_.data() + lists_at_[task];
    tasks_[task].partials = partials_of_.data() + lists_at_[task];
  }
}

}  // namespace starshade
