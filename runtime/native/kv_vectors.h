// Attention's products by vectors: scores of sixteen keys are sixteen lanes, no sum crosses lanes.
// For kernels only, see kv_pairs.h.
#pragma once

#include "kv_softmax.h"

namespace starshade {
namespace STARSHADE_ISA {
namespace {

static_assert(kTileTokens == kLanes, "a tile of keys is one vector");

// Rows that share the loaded keys or values: their sums fill the registers.
#ifdef __AVX512F__
constexpr int kRows = 6;
#else
constexpr int kRows = 2;
#endif

template <class Pairs>
using VectorTile = Tile<Pairs, kChunkTiles>;
using VectorChunk = Chunk<kChunkTiles>;

template <int ROWS, class Pairs>
inline void score_rows(const VectorTile<Pairs>& tile, const VectorChunk& chunk,
                       const VectorChunk& next, int first_row) {
  Vec dots[ROWS][kChunkTiles] = {};
  const auto* q = tile.q + first_row * tile.head_dim;
  const int num_pairs = tile.head_dim / 2;
  for (int pair = 0; pair < num_pairs; ++pair) {
    typename Pairs::Pair keys[kChunkTiles];
    for (int t = 0; t < kChunkTiles; ++t) {
      keys[t] = Pairs::key(chunk.keys[t], pair);
      if (first_row == 0) __builtin_prefetch(next.keys[t] + pair * 64);
    }
    for (int row = 0; row < ROWS; ++row) {
      for (int t = 0; t < kChunkTiles; ++t) {
        dots[row][t] = Pairs::add_product(dots[row][t], keys[t], q + row * tile.head_dim + 2 * pair);
      }
    }
  }
  for (int row = 0; row < ROWS; ++row) {
    for (int t = 0; t < kChunkTiles; ++t) {
      store(tile.scores + (first_row + row) * VectorTile<Pairs>::kKeys + t * kLanes, dots[row][t]);
    }
  }
}

template <int ROWS, int VECS, class Pairs>
inline void add_values(const VectorTile<Pairs>& tile, const VectorChunk& chunk,
                       const VectorChunk& next, const int* num_seen, int first_row, int d) {
  Vec sums[ROWS][VECS];
  float* to = tile.sums + first_row * tile.head_dim + d;
  for (int row = 0; row < ROWS; ++row) {
    for (int v = 0; v < VECS; ++v) sums[row][v] = load(to + row * tile.head_dim + v * kLanes);
  }
  for (int t = 0; t < chunk.num_tiles; ++t) {
    const auto* weights = tile.weights + first_row * VectorTile<Pairs>::kKeys + t * kLanes;
    for (int token = 0; token < num_seen[t]; token += 2) {
      typename Pairs::Pair values[VECS];
      for (int v = 0; v < VECS; ++v) {
        values[v] = Pairs::value(chunk.values[t], tile.head_dim, token / 2, d + v * kLanes);
        if (first_row == 0) {
          __builtin_prefetch(next.values[t] + (token / 2 * tile.head_dim + d + v * kLanes) * 4);
        }
        // What lies past the last token may be anything, NaN too.
        if (token + 1 == num_seen[t]) values[v] = Pairs::first_only(values[v]);
      }
      for (int row = 0; row < ROWS; ++row) {
        for (int v = 0; v < VECS; ++v) {
          sums[row][v] =
              Pairs::add_product(sums[row][v], values[v], weights + row * VectorTile<Pairs>::kKeys + token);
        }
      }
    }
  }
  for (int row = 0; row < ROWS; ++row) {
    for (int v = 0; v < VECS; ++v) store(to + row * tile.head_dim + v * kLanes, sums[row][v]);
  }
}

template <int ROWS, class Pairs>
inline void add_rows(const VectorTile<Pairs>& tile, const VectorChunk& chunk,
                     const VectorChunk& next, const int* num_seen, int row) {
  int d = 0;
  for (; d + 4 * kLanes <= tile.head_dim; d += 4 * kLanes) {
    add_values<ROWS, 4>(tile, chunk, next, num_seen, row, d);
  }
  for (; d < tile.head_dim; d += kLanes) add_values<ROWS, 1>(tile, chunk, next, num_seen, row, d);
}

// Calls work.run<ROWS>(first row) over all rows, kRows at a time.
template <class Work>
inline void by_rows(int rows, const Work& work) {
  int row = 0;
  for (; row + kRows <= rows; row += kRows) work.template run<kRows>(row);
  for (; row + 3 <= rows; row += 3) work.template run<3>(row);
  for (; row < rows; ++row) work.template run<1>(row);
}

template <class Pairs>
struct Score {
  const VectorTile<Pairs>& tile;
  const VectorChunk &chunk, &next;
  template <int ROWS> void run(int row) const { score_rows<ROWS>(tile, chunk, next, row); }
};

template <class Pairs>
struct Add {
  const VectorTile<Pairs>& tile;
  const VectorChunk &chunk, &next;
  const int* num_seen;
  template <int ROWS> void run(int row) const { add_rows<ROWS>(tile, chunk, next, num_seen, row); }
};

// The products of queries with keys, and of weights with values, by vectors.
template <class Pairs>
struct VectorProducts {
  using Rows = VectorTile<Pairs>;
  VectorProducts(const Rows& tile, Bf16*) : tile(tile) {}
  static int padded(int rows) { return rows; }
  const Rows& tile;
  // One chunk of keys and values. What `next` names is fetched with the first rows.
  void take(const VectorChunk& chunk, const VectorChunk& next, const Mask<kChunkTiles>& mask) const {
    by_rows(tile.rows, Score<Pairs>{tile, chunk, next});
    for (int row = 0; row < tile.rows; ++row) {
      const int query = row / tile.group;
      softmax_row(tile, chunk, row, mask.tiles, mask.first_of(query), mask.end_of(query));
    }
    by_rows(tile.rows, Add<Pairs>{tile, chunk, next, mask.num_seen});
  }
};

}  // namespace
}  // namespace STARSHADE_ISA
}  // namespace starshade
