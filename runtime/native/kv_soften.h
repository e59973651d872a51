// How do scores become weights?  The online softmax of a task's rows, a chunk of keys at a time.
// For kernels only, see kv_pairs.h.
#pragma once

#include "kv_tile.h"
#include "vec_math.h"

namespace starshade {
namespace STARSHADE_ISA {
namespace {

// Scores of one row become weights; earlier sums are rescaled to the new maximum. The row sees
// the positions first .. end - 1; of tiles without a bit in `masked`, all.
template <class Rows>
void soften_row(const Rows& tile, const Chunk<Rows::kTiles>& chunk, int row, uint32_t masked,
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
      if (tile.softcap != 0) {
        score = tanh_of(score * (1.0f / tile.softcap)) * (tile.softcap * kLog2E);
      }
      store(scores + t * kLanes, score);
    }
    if (masked >> t & 1) {
      const IntVec positions = lanes() + chunk.first_position[t];
      const IntVec seen = (positions >= first) & (positions < end) & (lanes() < chunk.count[t]);
      score = seen ? score : broadcast(kMinusInfinity);
      store(scores + t * kLanes, score);
    }
    best = greater(score, best);
  }
  const float old_maximum = tile.maxima[row];
  const float chunk_maximum = maximum(best);
  const float new_maximum = chunk_maximum > old_maximum ? chunk_maximum : old_maximum;
  auto* weights = tile.weights + row * Rows::kKeys;
  if (new_maximum == kMinusInfinity) {  // nothing seen so far
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

// Bits of the tiles that some row of the task does not see whole.
template <int TILES>
inline uint32_t masked_tiles(const KvAttentionArgs& args, const KvAttentionTask& task,
                             const Chunk<TILES>& chunk) {
  static_assert(TILES <= 32, "one bit each");
  const int32_t last = task.first_position + task.num_queries - 1;
  uint32_t masked = 0;
  for (int t = 0; t < TILES; ++t) {
    const int32_t first = chunk.first_position[t];
    const bool is_whole = chunk.count[t] == kTileTokens && first + kTileTokens <= task.first_position + 1;
    const bool in_window = args.window == 0 || first > last - args.window;
    masked |= uint32_t(!is_whole || !in_window) << t;
  }
  return masked;
}

}  // namespace
}  // namespace STARSHADE_ISA
}  // namespace starshade
