// How do scores become weights?  The online softmax of a task's rows, a chunk of keys at a time.
// For kernels only, see kv_pairs.h.
#pragma once

#include "kv_tile.h"
#include "vec_math.h"

namespace starshade {
namespace STARSHADE_ISA {
namespace {

// Scores of the tile's positions first .. end - 1; -infinity of others.
template <int TILES>
inline Vec seen_only(Vec score, const Chunk<TILES>& chunk, int t, int32_t first, int32_t end) {
  const IntVec positions = lanes() + chunk.first_position[t];
  const IntVec seen = (positions >= first) & (positions < end) & (lanes() < chunk.count[t]);
  return seen ? score : broadcast(kMinusInfinity);
}

// Scores times log2 e; queries were not scaled by it then, see take_queries.
inline Vec capped(Vec score, float softcap) {
  return tanh_of(score * (1.0f / softcap)) * (softcap * kLog2E);
}

inline bool has_nan(const float* scores, int num_tiles) {
  IntVec found = {};
  for (int t = 0; t < num_tiles; ++t) {
    const Vec score = load(scores + t * kLanes);
    found |= score != score;
  }
  for (int lane = 0; lane < kLanes; ++lane) {
    if (found[lane] != 0) return true;
  }
  return false;
}

// Scores of one row become weights; earlier sums are rescaled to the new maximum. The row sees
// the positions first .. end - 1; of tiles without a bit in `masked`, all.
template <class Rows>
void softmax_row(const Rows& tile, const Chunk<Rows::kTiles>& chunk, int row, uint32_t masked,
                 int32_t first, int32_t end) {
  using Pairs = typename Rows::Pairs;
  const int num_tiles = Rows::kTiles > kChunkTiles ? (chunk.num_tiles + 1) / 2 * 2 : Rows::kTiles;
  const bool is_special = tile.softcap != 0 || chunk.key_scales[0] != nullptr;
  float* scores = tile.scores + row * Rows::kKeys;
  Vec best = broadcast(kMinusInfinity);
  for (int t = 0; t < num_tiles; ++t) {
    Vec score = load(scores + t * kLanes);
    if (is_special) {
      if (chunk.key_scales[t] != nullptr) score *= load(chunk.key_scales[t]);
      if (tile.softcap != 0) score = capped(score, tile.softcap);
      store(scores + t * kLanes, score);
    }
    if (masked >> t & 1) {
      score = seen_only(score, chunk, t, first, end);
      store(scores + t * kLanes, score);
    }
    best = greater(score, best);
  }
  const float old_maximum = tile.maxima[row];
  const float chunk_maximum = maximum(best);
  const float new_maximum = chunk_maximum > old_maximum ? chunk_maximum : old_maximum;
  auto* weights = tile.weights + row * Rows::kKeys;
  if (new_maximum == kMinusInfinity) {  // nothing seen so far, or nothing but NaN
    if (has_nan(scores, num_tiles)) {
      tile.maxima[row] = 0;  // else it would not be merged
      store(tile.denominators + row * kLanes, broadcast(__builtin_nanf("")));
    }
    for (int t = 0; t < num_tiles; t += 2) Pairs::put(weights + t * kLanes, Vec{}, Vec{});
    return;
  }
  Vec total = load(tile.denominators + row * kLanes);
  if (new_maximum > old_maximum) {
    if (old_maximum != kMinusInfinity) {
      const Vec rescale = exp2<6>(broadcast(old_maximum - new_maximum));
      float* sums = tile.sums + row * tile.head_dim;
      for (int d = 0; d < tile.head_dim; d += kLanes) store(sums + d, load(sums + d) * rescale);
      total *= rescale;
    }
    tile.maxima[row] = new_maximum;
  }
  for (int t = 0; t < num_tiles; t += 2) {
    const Vec first_weights = exp2<Pairs::kDegree>(load(scores + t * kLanes) - new_maximum);
    const Vec second_weights = exp2<Pairs::kDegree>(load(scores + (t + 1) * kLanes) - new_maximum);
    Pairs::put(weights + t * kLanes, first_weights, second_weights);
    total = Pairs::add_weights(total, weights + t * kLanes);
    if (chunk.value_scales[t] == nullptr) continue;
    // A lane that is not seen may have any scale.
    const Vec scaled = first_weights == Vec{} ? Vec{} : first_weights * load(chunk.value_scales[t]);
    const Vec next =
        second_weights == Vec{} ? Vec{} : second_weights * load(chunk.value_scales[t + 1]);
    Pairs::put(weights + t * kLanes, scaled, next);
  }
  store(tile.denominators + row * kLanes, total);
}

// What of a chunk do the task's rows see?
template <int TILES>
struct Mask {
  static_assert(TILES <= 32, "one bit each");
  uint32_t tiles;       // bits of those that some row does not see whole
  int num_seen[TILES];  // tokens of a tile that some row sees
  int32_t first_position, window;

  // Positions first .. end - 1, of the query.
  int32_t end_of(int query) const { return first_position + query + 1; }
  int32_t first_of(int query) const { return window == 0 ? 0 : end_of(query) - window; }
};

template <int TILES>
inline Mask<TILES> mask_of(const KvAttentionArgs& args, const KvAttentionTask& task,
                            const Chunk<TILES>& chunk) {
  Mask<TILES> mask;
  mask.tiles = 0;
  mask.first_position = task.first_position;
  mask.window = args.window;
  const int32_t last = task.first_position + task.num_queries - 1;
  for (int t = 0; t < TILES; ++t) {
    const int32_t first = chunk.first_position[t], seen = last + 1 - first;
    const bool is_whole = chunk.count[t] == kTileTokens && first + kTileTokens <= task.first_position + 1;
    const bool in_window = args.window == 0 || first > last - args.window;
    mask.tiles |= uint32_t(!is_whole || !in_window) << t;
    mask.num_seen[t] = seen < 0 ? 0 : seen < chunk.count[t] ? seen : chunk.count[t];
  }
  return mask;
}

}  // namespace
}  // namespace STARSHADE_ISA
}  // namespace starshade
