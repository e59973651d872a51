// The rows of one attention task and what is known of them so far.  For kernels only, see kv_pairs.h.
#pragma once

#include <stddef.h>

#include "kv_chunk.h"

namespace starshade {
namespace STARSHADE_ISA {
namespace {

// TILES of keys are scored at a time.
template <class PAIRS, int TILES>
struct Tile {
  using Pairs = PAIRS;
  using Coefficient = typename Pairs::Coefficient;
  static constexpr int kTiles = TILES, kKeys = TILES * kTileTokens;
  int rows, group, head_dim;
  float softcap;
  Coefficient* q;        // (rows, D), scaled
  Coefficient* weights;  // (rows, kKeys)
  float* scores;         // (rows, kKeys)
  float* sums;           // (rows, D), not yet divided
  float* denominators;   // (rows, kLanes), to be summed
  float* maxima;         // (rows)
  float* wholes;         // (rows, 2 + D): earlier parts, see merge_part
  bool has_parts;
};

template <class Item>
inline Item* carve(uint8_t*& scratch, size_t count) {
  Item* piece = reinterpret_cast<Item*>(scratch);
  scratch += (count * sizeof(Item) + 63) / 64 * 64;
  return piece;
}

}  // namespace
}  // namespace STARSHADE_ISA
}  // namespace starshade
