// Attention's products by AMX tiles: the paged pool's pairs are what the tile unit multiplies.
// For kernels only; no C++ headers (see CMakeLists.txt).
//
// A row's sums do not depend on the rows beside it, and one row goes the same way as many: its bits
// do not depend on the batch.
#pragma once

#include "amx_tiles.h"
#include "kv_tile.h"

namespace starshade {
namespace STARSHADE_ISA {
namespace {

// Tiles 0-3 are sums (rows x 16), 4 queries (rows x 32 items), 5 weights (rows x 16 tokens),
// 6 keys (16 pairs of items x 16 tokens), 7 values (8 pairs of tokens x 16 items).
class TileProducts {
 public:
  using Rows = Tile<PairsBf16, kPartTiles>;
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

  // `room`: kPartTiles pairs of tiles, where int8 keys and values were widened.
  TileProducts(const Rows& tile, Bf16* room)
      : tile_(tile), room_(room), rows_(block_rows(tile.rows)) {
    TileConfig config;
    for (int sums = 0; sums < 4; ++sums) config.set(sums, rows_, 64);
    config.set(4, rows_, 64);
    config.set(5, rows_, 32);
    config.set(6, 16, 64);
    config.set(7, 8, 64);
    config.load();
  }
  ~TileProducts() { _tile_release(); }
  TileProducts(const TileProducts&) = delete;

  void score(const Keys& chunk, const Keys&) const {
    for (int row = 0; row < tile_.rows; row += rows_) {
      for (int t = 0; t < chunk.num_tiles; t += 4) score_block(chunk, row, t);
    }
  }

  void add(Keys& chunk, const Keys&, const int* num_seen) const {
    for (int t = 0; t < chunk.num_tiles; ++t) {
      if (num_seen[t] > 0 && num_seen[t] < kTileTokens) hide_rest(chunk, t, num_seen[t]);
    }
    for (int row = 0; row < tile_.rows; row += rows_) {
      int d = 0;
      for (; d + 4 * kLanes <= tile_.head_dim; d += 4 * kLanes) add_block<4>(chunk, num_seen, row, d);
      for (; d < tile_.head_dim; d += 2 * kLanes) add_block<2>(chunk, num_seen, row, d);
    }
  }

 private:
  // Four tiles of keys at a time: their sums hide each other's latency.
  void score_block(const Keys& chunk, int row, int t) const {
    static_assert(kPartTiles % 4 == 0, "one tile of sums for each of four");
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    const size_t stride = size_t(tile_.head_dim) * sizeof(Bf16);
    for (int d = 0; d < tile_.head_dim; d += kStep) {
      score_step(chunk.keys + t, tile_.q + row * tile_.head_dim + d, stride, d);
    }
    float* to = tile_.scores + row * Rows::kKeys + t * kLanes;
    _tile_stored(0, to, Rows::kKeys * 4);
    _tile_stored(1, to + kLanes, Rows::kKeys * 4);
    _tile_stored(2, to + 2 * kLanes, Rows::kKeys * 4);
    _tile_stored(3, to + 3 * kLanes, Rows::kKeys * 4);
  }

  static void score_step(const uint8_t* const* keys, const Bf16* q, size_t stride, int d) {
    const int64_t at = int64_t{d} / 2 * 64;  // a line holds a pair of items of sixteen tokens
    _tile_loadd(4, q, stride);
    _tile_loadd(6, keys[0] + at, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(6, keys[1] + at, 64);
    _tile_dpbf16ps(1, 4, 6);
    _tile_loadd(6, keys[2] + at, 64);
    _tile_dpbf16ps(2, 4, 6);
    _tile_loadd(6, keys[3] + at, 64);
    _tile_dpbf16ps(3, 4, 6);
  }

  template <int SLICES>
  void add_block(const Keys& chunk, const int* num_seen, int row, int d) const {
    float* sums = tile_.sums + row * tile_.head_dim + d;
    const size_t stride = size_t(tile_.head_dim) * 4;  // of sums, and of pairs of values
    _tile_loadd(0, sums, stride);
    _tile_loadd(1, sums + kLanes, stride);
    if (SLICES == 4) {
      _tile_loadd(2, sums + 2 * kLanes, stride);
      _tile_loadd(3, sums + 3 * kLanes, stride);
    }
    for (int t = 0; t < chunk.num_tiles; ++t) {
      if (num_seen[t] == 0) continue;
      const uint8_t* values = chunk.values[t] + int64_t{d} * 4;
      add_step<SLICES>(tile_.weights + row * Rows::kKeys + t * kLanes, values, stride);
    }
    _tile_stored(0, sums, stride);
    _tile_stored(1, sums + kLanes, stride);
    if (SLICES == 2) return;
    _tile_stored(2, sums + 2 * kLanes, stride);
    _tile_stored(3, sums + 3 * kLanes, stride);
  }

  template <int SLICES>
  static void add_step(const Bf16* weights, const uint8_t* values, size_t stride) {
    _tile_loadd(5, weights, Rows::kKeys * sizeof(Bf16));
    _tile_loadd(7, values, stride);
    _tile_dpbf16ps(0, 5, 7);
    _tile_loadd(7, values + 64, stride);
    _tile_dpbf16ps(1, 5, 7);
    if (SLICES == 2) return;
    _tile_loadd(7, values + 128, stride);
    _tile_dpbf16ps(2, 5, 7);
    _tile_loadd(7, values + 192, stride);
    _tile_dpbf16ps(3, 5, 7);
  }

  // What lies past the last token may be anything, NaN too, which no weight makes nothing of.
  void hide_rest(Keys& chunk, int t, int num_tokens) const {
    const int64_t line = int64_t{tile_.head_dim} * 4;  // a pair of tokens
    uint8_t* copy = reinterpret_cast<uint8_t*>(room_ + (2 * t + 1) * kTileTokens * tile_.head_dim);
    const int whole_pairs = num_tokens / 2;
    if (copy != chunk.values[t]) __builtin_memcpy(copy, chunk.values[t], size_t(whole_pairs * line));
    if (num_tokens % 2 == 1) {
      for (int d = 0; d < tile_.head_dim; d += kLanes) {
        const int64_t at = whole_pairs * line + d * 4;
        const __m512i pair = _mm512_loadu_si512(chunk.values[t] + at);
        _mm512_storeu_si512(copy + at, _mm512_and_si512(pair, _mm512_set1_epi32(0xffff)));
      }
    }
    const int64_t used = (num_tokens + 1) / 2 * line;
    __builtin_memset(copy + used, 0, size_t(kTileTokens / 2 * line - used));
    chunk.values[t] = copy;
  }

  const Rows& tile_;
  Bf16* room_;
  int rows_;
};

}  // namespace
}  // namespace STARSHADE_ISA
}  // namespace starshade
