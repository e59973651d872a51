// Attention's products by AMX tiles: the paged pool's pairs are what the tile unit multiplies.
// For kernels only; no C++ headers (see CMakeLists.txt).
//
// A row's sums do not depend on the rows beside it, and one row goes the same way as many: its bits
// do not depend on the batch.
#pragma once

#include "amx_softmax.h"
#include "amx_tiles.h"

namespace starshade {
namespace STARSHADE_ISA {
namespace {

// Tiles 0-3 are sums (rows x 16), 4-5 queries (rows x 32 items) or weights (rows x 32 tokens), 6-7
// keys (16 pairs of items x 16 tokens) or values (16 pairs of tokens x 16 items).
class TileProducts {
 public:
  using Rows = Tile<PairsOfTiles, kPartTiles>;
  using Keys = Chunk<kPartTiles>;
  static constexpr int kStep = 32;  // items of a query per tile; a head is a multiple of it

  // Rows in equal blocks, the last of which may reach past the end: room for that many is needed.
  static int block_rows(int rows) {
    const int blocks = (rows + kTileRows - 1) / kTileRows;
    return (rows + blocks - 1) / blocks;
  }
  static int padded(int rows) {
    const int block = block_rows(rows);
    return (rows + block - 1) / block * block;
  }

  // `room`: after that for int8 keys and values to be widened, kPartTiles tiles of values.
  TileProducts(const Rows& tile, Bf16* room)
      : tile_(tile),
        room_(room + 2 * Rows::kKeys * tile.head_dim),
        rows_(block_rows(tile.rows)) {
    TileConfig config;
    for (int sums = 0; sums < 4; ++sums) config.set(sums, rows_, 64);
    config.set(4, rows_, 64);
    config.set(5, rows_, 64);
    config.set(6, 16, 64);
    config.set(7, 16, 64);
    config.load();
  }
  ~TileProducts() { _tile_release(); }
  TileProducts(const TileProducts&) = delete;

  // One chunk of keys and values, a part of its own.
  void take(const Keys& chunk, const Keys&, const Mask<kPartTiles>& mask) const {
    for (int t = 0; t < chunk.num_tiles; t += 2) {
      int row = 0;
      for (; row + rows_ < tile_.rows; row += 2 * rows_) score_square<true>(chunk, row, t);
      if (row < tile_.rows) score_square<false>(chunk, row, t);
    }
    for (int row = 0; row < tile_.rows; ++row) softmax(chunk, row, mask);
    int num_pairs = 0;
    for (int t = 0; t < chunk.num_tiles; t += 2) {
      if (mask.num_seen[t] + mask.num_seen[t + 1] == 0) continue;
      num_pairs = t / 2 + 1;
      gather(chunk, t, mask.num_seen);
    }
    int row = 0;
    for (; row + rows_ < tile_.rows; row += 2 * rows_) {
      for (int d = 0; d < tile_.head_dim; d += 2 * kLanes) add_square<true>(row, d, num_pairs);
    }
    if (row >= tile_.rows) return;
    for (int d = 0; d < tile_.head_dim; d += 2 * kLanes) add_square<false>(row, d, num_pairs);
  }

 private:
  void softmax(const Keys& chunk, int row, const Mask<kPartTiles>& mask) const {
    const int query = row / tile_.group;
    if (has_scales(chunk)) {
      softmax_row(tile_, chunk, row, mask.tiles, mask.first_of(query), mask.end_of(query));
    } else {
      softmax_by_table(tile_, chunk, row, mask.tiles, mask.first_of(query), mask.end_of(query));
    }
  }

  // Scores of two tiles of keys for two blocks of rows, or for the first alone.
  template <bool BOTH>
  void score_square(const Keys& chunk, int row, int t) const {
    const size_t stride = size_t(tile_.head_dim) * sizeof(Bf16);
    const Bf16 *first = tile_.q + row * tile_.head_dim, *second = first + rows_ * tile_.head_dim;
    _tile_zero(0);
    _tile_zero(1);
    if (BOTH) _tile_zero(2);
    if (BOTH) _tile_zero(3);
    for (int d = 0; d < tile_.head_dim; d += kStep) {
      _tile_loadd(4, first + d, stride);
      _tile_loadd(6, chunk.keys[t] + d * 32, 64);  // a line holds a pair of items of sixteen tokens
      _tile_dpbf16ps(0, 4, 6);
      _tile_loadd(7, chunk.keys[t + 1] + d * 32, 64);
      _tile_dpbf16ps(1, 4, 7);
      if (!BOTH) continue;
      _tile_loadd(5, second + d, stride);
      _tile_dpbf16ps(2, 5, 6);
      _tile_dpbf16ps(3, 5, 7);
    }
    float *to = tile_.scores + row * Rows::kKeys + t * kLanes, *low = to + rows_ * Rows::kKeys;
    _tile_stored(0, to, Rows::kKeys * 4);
    _tile_stored(1, to + kLanes, Rows::kKeys * 4);
    if (!BOTH) return;
    _tile_stored(2, low, Rows::kKeys * 4);
    _tile_stored(3, low + kLanes, Rows::kKeys * 4);
  }

  // Sums of 32 items for two blocks of rows, or for the first alone.
  template <bool BOTH>
  void add_square(int row, int d, int num_pairs) const {
    const size_t stride = size_t(tile_.head_dim) * 4;  // of sums, and of pairs of values
    const size_t weight_bytes = Rows::kKeys * sizeof(Bf16);
    const Bf16 *first = tile_.weights + row * Rows::kKeys, *second = first + rows_ * Rows::kKeys;
    _tile_zero(0);
    _tile_zero(1);
    if (BOTH) _tile_zero(2);
    if (BOTH) _tile_zero(3);
    for (int pair = 0; pair < num_pairs; ++pair) {
      const Bf16* values = side_by_side(pair) + 2 * d;
      _tile_loadd(4, first + pair * 2 * kLanes, weight_bytes);
      _tile_loadd(6, values, stride);
      _tile_dpbf16ps(0, 4, 6);
      _tile_loadd(7, values + 2 * kLanes, stride);
      _tile_dpbf16ps(1, 4, 7);
      if (!BOTH) continue;
      _tile_loadd(5, second + pair * 2 * kLanes, weight_bytes);
      _tile_dpbf16ps(2, 5, 6);
      _tile_dpbf16ps(3, 5, 7);
    }
    float *sums = tile_.sums + row * tile_.head_dim + d, *low = sums + rows_ * tile_.head_dim;
    _tile_stored(0, sums, stride);
    _tile_stored(1, sums + kLanes, stride);
    if (!BOTH) return;
    _tile_stored(2, low, stride);
    _tile_stored(3, low + kLanes, stride);
  }

  static bool has_scales(const Keys& chunk) { return chunk.key_scales[0] != nullptr; }
  Bf16* side_by_side(int pair) const { return room_ + pair * 2 * kTileTokens * tile_.head_dim; }

  // Values of tiles t and t + 1 in the order of the weights.  What lies past the last token may be
  // anything, NaN too, which no weight makes nothing of.
  void gather(const Keys& chunk, int t, const int* num_seen) const {
    const int64_t line = int64_t{tile_.head_dim} * 4;  // a pair of tokens
    uint8_t* to = reinterpret_cast<uint8_t*>(side_by_side(t / 2));
    const bool by_turns = !has_scales(chunk);
    for (int i = 0; i < kTileTokens; ++i, to += line) {
      const int tile = by_turns ? i / 2 % 2 : i / 8, pair = by_turns ? i / 4 * 2 + i % 2 : i % 8;
      const int num_left = num_seen[t + tile] - 2 * pair;
      const uint8_t* from = chunk.values[t + tile] + pair * line;
      const __m512i kept = _mm512_set1_epi32(num_left > 1 ? -1 : num_left == 1 ? 0xffff : 0);
      for (int64_t at = 0; at < line; at += 64) {
        _mm512_storeu_si512(to + at, _mm512_and_si512(_mm512_loadu_si512(from + at), kept));
      }
    }
  }

  const Rows& tile_;
  Bf16* room_;
  int rows_;
};

}  // namespace
}  // namespace STARSHADE_ISA
}  // namespace starshade
