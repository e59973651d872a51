// Online-softmax attention over a paged pool of pairs, compiled once per instruction set
// [Milakov & Gimelshein 2018; Dao et al. 2022].
//
// Scores of sixteen keys are sixteen lanes: no sum across lanes, for one query row or many. With
// BF16 instructions a pair of items is one multiply-add; without, two in float32.
#include "kv_chunk.h"
#include "kv_kernel.h"
#include "kv_pairs.h"
#include "kv_tile.h"
#include "vec_math.h"
#if defined(__AMX_BF16__)
#include "amx_attention.h"
#endif

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

template <int ROWS, class Pairs>
inline void score_rows(const Tile<Pairs>& tile, const Chunk& chunk, int first_row) {
  Vec dots[ROWS][kChunkTiles] = {};
  const auto* q = tile.q + first_row * tile.head_dim;
  const auto* rest = tile.q_rest + first_row * tile.head_dim;
  const int num_pairs = tile.head_dim / 2;
  for (int pair = 0; pair < num_pairs; ++pair) {
    typename Pairs::Pair keys[kChunkTiles];
    for (int t = 0; t < kChunkTiles; ++t) {
      keys[t] = Pairs::key(chunk.keys[t], pair);
      // Few rows wait for memory: the values, one line for each of keys, are read next.
      if (ROWS < kRows) __builtin_prefetch(chunk.values[t] + pair * 64);
    }
    for (int row = 0; row < ROWS; ++row) {
      for (int t = 0; t < kChunkTiles; ++t) {
        dots[row][t] = Pairs::add_product(dots[row][t], keys[t], q + row * tile.head_dim + 2 * pair);
      }
      if (!Pairs::kHasRest) continue;
      for (int t = 0; t < kChunkTiles; ++t) {
        dots[row][t] = Pairs::add_product(dots[row][t], keys[t], rest + row * tile.head_dim + 2 * pair);
      }
    }
  }
  for (int row = 0; row < ROWS; ++row) {
    for (int t = 0; t < kChunkTiles; ++t) {
      store(tile.scores + (first_row + row) * kKvChunkKeys + t * kLanes, dots[row][t]);
    }
  }
}

template <int ROWS, int VECS, class Pairs>
inline void add_values(const Tile<Pairs>& tile, const Chunk& chunk, const int* num_seen,
                       int first_row, int d) {
  Vec sums[ROWS][VECS];
  float* to = tile.sums + first_row * tile.head_dim + d;
  for (int row = 0; row < ROWS; ++row) {
    for (int v = 0; v < VECS; ++v) sums[row][v] = load(to + row * tile.head_dim + v * kLanes);
  }
  for (int t = 0; t < chunk.num_tiles; ++t) {
    const auto* weights = tile.weights + first_row * kKvChunkKeys + t * kLanes;
    for (int token = 0; token < num_seen[t]; token += 2) {
      typename Pairs::Pair values[VECS];
      for (int v = 0; v < VECS; ++v) {
        values[v] = Pairs::value(chunk.values[t], tile.head_dim, token / 2, d + v * kLanes);
        // What lies past the last token may be anything, NaN too.
        if (token + 1 == num_seen[t]) values[v] = Pairs::first_only(values[v]);
      }
      for (int row = 0; row < ROWS; ++row) {
        for (int v = 0; v < VECS; ++v) {
          sums[row][v] =
              Pairs::add_product(sums[row][v], values[v], weights + row * kKvChunkKeys + token);
        }
      }
    }
  }
  for (int row = 0; row < ROWS; ++row) {
    for (int v = 0; v < VECS; ++v) store(to + row * tile.head_dim + v * kLanes, sums[row][v]);
  }
}

template <int ROWS, class Pairs>
inline void add_rows(const Tile<Pairs>& tile, const Chunk& chunk, const int* num_seen, int row) {
  int d = 0;
  for (; d + 4 * kLanes <= tile.head_dim; d += 4 * kLanes) {
    add_values<ROWS, 4>(tile, chunk, num_seen, row, d);
  }
  for (; d < tile.head_dim; d += kLanes) add_values<ROWS, 1>(tile, chunk, num_seen, row, d);
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
  const Tile<Pairs>& tile;
  const Chunk& chunk;
  template <int ROWS> void run(int row) const { score_rows<ROWS>(tile, chunk, row); }
};

template <class Pairs>
struct Add {
  const Tile<Pairs>& tile;
  const Chunk& chunk;
  const int* num_seen;
  template <int ROWS> void run(int row) const { add_rows<ROWS>(tile, chunk, num_seen, row); }
};

// Scores of one row become weights; earlier sums are rescaled to the new maximum. The row sees
// the positions first .. end - 1.
template <class Pairs>
void soften_row(const Tile<Pairs>& tile, const Chunk& chunk, int row, bool masked, int32_t first,
                int32_t end) {
  Vec scores[kChunkTiles];
  Vec best = broadcast(kMinusInfinity);
  for (int t = 0; t < kChunkTiles; ++t) {
    scores[t] = load(tile.scores + row * kKvChunkKeys + t * kLanes);
    if (chunk.key_scales[t] != nullptr) scores[t] *= load(chunk.key_scales[t]);
    if (tile.softcap != 0) {
      scores[t] = tanh_of(scores[t] * (1.0f / tile.softcap)) * (tile.softcap * kLog2E);
    }
    if (masked) {
      const IntVec positions = lanes() + chunk.first_position[t];
      const IntVec seen = (positions >= first) & (positions < end) & (lanes() < chunk.count[t]);
      scores[t] = seen ? scores[t] : broadcast(kMinusInfinity);
    }
    best = greater(scores[t], best);
  }
  const float old_maximum = tile.maxima[row];
  const float chunk_maximum = maximum(best);
  const float new_maximum = chunk_maximum > old_maximum ? chunk_maximum : old_maximum;
  auto* weights = tile.weights + row * kKvChunkKeys;
  if (new_maximum == kMinusInfinity) {  // nothing seen so far
    for (int t = 0; t < kChunkTiles; t += 2) Pairs::put(weights + t * kLanes, Vec{}, Vec{});
    return;
  }
  Vec total = load(tile.denominators + row * kLanes);
  if (new_maximum > old_maximum) {
    const Vec rescale = exp2<6>(broadcast(old_maximum - new_maximum));
    float* sums = tile.sums + row * tile.head_dim;
    for (int d = 0; d < tile.head_dim; d += kLanes) store(sums + d, load(sums + d) * rescale);
    total *= rescale;
    tile.maxima[row] = new_maximum;
  }
  for (int t = 0; t < kChunkTiles; t += 2) {
    const Vec first = exp2<Pairs::kDegree>(scores[t] - new_maximum);
    const Vec second = exp2<Pairs::kDegree>(scores[t + 1] - new_maximum);
    Pairs::put(weights + t * kLanes, first, second);
    total = Pairs::add_weights(total, weights + t * kLanes);
    if (chunk.value_scales[t] == nullptr) continue;
    // A lane that is not seen may have any scale.
    const Vec scaled = first == Vec{} ? Vec{} : first * load(chunk.value_scales[t]);
    const Vec next = second == Vec{} ? Vec{} : second * load(chunk.value_scales[t + 1]);
    Pairs::put(weights + t * kLanes, scaled, next);
  }
  store(tile.denominators + row * kLanes, total);
}

template <class Pairs>
void take_queries(const KvAttentionArgs& args, const KvAttentionTask& task, Tile<Pairs>& tile) {
  const float scale = args.softcap != 0 ? args.scale : args.scale * kLog2E;
  const int head_dim = tile.head_dim;
  for (int row = 0; row < tile.rows; ++row) {
    const float* q = args.q + (task.first_row + row / tile.group) * args.q_stride +
                     static_cast<int64_t>(task.kv_head * tile.group + row % tile.group) * head_dim;
    auto* to = tile.q + row * head_dim;
    auto* rest = tile.q_rest + row * head_dim;
    int d = 0;
    for (; d + 2 * kLanes <= head_dim; d += 2 * kLanes) {
      Pairs::put(to + d, load(q + d) * scale, load(q + d + kLanes) * scale);
      Pairs::put_rest(rest + d, load(q + d) * scale, load(q + d + kLanes) * scale);
    }
    if (d < head_dim) {  // a head is whole vectors, perhaps an odd number of them
      typename Pairs::Coefficient last[2 * kLanes];
      Pairs::put(last, load(q + d) * scale, Vec{});
      __builtin_memcpy(to + d, last, sizeof(last) / 2);
      if (Pairs::kHasRest) {
        Pairs::put_rest(last, load(q + d) * scale, Vec{});
        __builtin_memcpy(rest + d, last, sizeof(last) / 2);
      }
    }
    for (d = 0; d < head_dim; d += kLanes) store(tile.sums + row * head_dim + d, Vec{});
    store(tile.denominators + row * kLanes, Vec{});
    tile.maxima[row] = kMinusInfinity;
    float* whole = tile.wholes + row * (head_dim + 2);
    whole[0] = kMinusInfinity;
    whole[1] = 0;
    for (d = 0; d < head_dim; d += kLanes) store(whole + 2 + d, Vec{});
  }
}

// Takes one part of a row's keys into the whole: (maximum, denominator, sums) each. Not inlined, so
// that parts give the same bits whether one task has them all or each has its own.
__attribute__((noinline)) void merge_part(float* whole, const float* part_state, const float* part,
                                          int head_dim) {
  if (part_state[0] == kMinusInfinity) return;  // nothing of it was seen
  const float best = part_state[0] > whole[0] ? part_state[0] : whole[0];
  const Vec old_weight = exp2<6>(broadcast(whole[0] - best));
  const Vec new_weight = exp2<6>(broadcast(part_state[0] - best));
  whole[1] = whole[1] * old_weight[0] + part_state[1] * new_weight[0];
  whole[0] = best;
  for (int d = 0; d < head_dim; d += kLanes) {
    store(whole + 2 + d, load(whole + 2 + d) * old_weight + load(part + d) * new_weight);
  }
}

template <class Pairs>
void end_part(const Tile<Pairs>& tile) {
  for (int row = 0; row < tile.rows; ++row) {
    const float state[2] = {tile.maxima[row], sum(load(tile.denominators + row * kLanes))};
    float* sums = tile.sums + row * tile.head_dim;
    merge_part(tile.wholes + row * (tile.head_dim + 2), state, sums, tile.head_dim);
    for (int d = 0; d < tile.head_dim; d += kLanes) store(sums + d, Vec{});
    store(tile.denominators + row * kLanes, Vec{});
    tile.maxima[row] = kMinusInfinity;
  }
}

template <class Pairs>
void give_results(const KvAttentionArgs& args, const KvAttentionTask& task, const Tile<Pairs>& tile) {
  const int head_dim = tile.head_dim;
  for (int row = 0; row < tile.rows; ++row) {
    const float* whole = tile.wholes + row * (head_dim + 2);
    const float denominator =
        tile.has_parts ? whole[1] : sum(load(tile.denominators + row * kLanes));
    const float* sums = tile.has_parts ? whole + 2 : tile.sums + row * head_dim;
    float* out;
    float factor = 1;
    if (task.partial == nullptr) {
      out = args.out + (task.first_row + row / tile.group) * args.out_stride +
            static_cast<int64_t>(task.kv_head * tile.group + row % tile.group) * head_dim;
      factor = 1.0f / denominator;
    } else {
      out = task.partial + static_cast<int64_t>(row) * (head_dim + 2);
      *out++ = tile.has_parts ? whole[0] : tile.maxima[row];
      *out++ = denominator;
    }
    for (int d = 0; d < head_dim; d += kLanes) store(out + d, load(sums + d) * factor);
  }
}

// The products of queries with keys, and of weights with values, by vectors.
template <class Pairs>
struct VectorProducts {
  VectorProducts(const Tile<Pairs>& tile, Bf16*) : tile(tile) {}
  static int padded(int rows) { return rows; }
  const Tile<Pairs>& tile;
  void score(const Chunk& chunk) const { by_rows(tile.rows, Score<Pairs>{tile, chunk}); }
  void add(const Chunk& chunk, const int* num_seen) const {
    by_rows(tile.rows, Add<Pairs>{tile, chunk, num_seen});
  }
};

// Divides the scratch among the tile's rows; the rest of it is for keys and values to be widened.
template <class Pairs, class Products>
Bf16* carve_tile(Tile<Pairs>& tile, uint8_t* scratch) {
  using Coefficient = typename Pairs::Coefficient;
  const size_t head_dim = static_cast<size_t>(tile.head_dim);
  const size_t rows = static_cast<size_t>(Products::padded(tile.rows));
  const uint8_t* end = scratch + kv_attention_scratch_bytes(tile.rows, head_dim);
  tile.q = tile.q_rest = carve<Coefficient>(scratch, rows * head_dim);
  if (Pairs::kHasRest) tile.q_rest = carve<Coefficient>(scratch, rows * head_dim);
  tile.weights = carve<Coefficient>(scratch, rows * kKvChunkKeys);
  tile.scores = carve<float>(scratch, rows * kKvChunkKeys);
  tile.sums = carve<float>(scratch, rows * head_dim);
  tile.denominators = carve<float>(scratch, rows * kLanes);
  tile.maxima = carve<float>(scratch, rows);
  tile.wholes = carve<float>(scratch, rows * (head_dim + 2));
  Bf16* widened = carve<Bf16>(scratch, 2 * kKvChunkKeys * head_dim);
  if (scratch > end) __builtin_trap();  // kv_attention_scratch_bytes does not say what is used here
  return widened;
}

constexpr int kFewRows = 16;

template <class Pairs, class Products>
void attend(const KvAttentionArgs& args, const KvAttentionTask& task, uint8_t* scratch) {
  const KvLayout& layout = args.layout;
  const int group = args.num_heads / layout.num_kv_heads;
  Tile<Pairs> tile;
  tile.rows = task.num_queries * group, tile.group = group, tile.head_dim = layout.head_dim;
  tile.softcap = args.softcap;
  Bf16* const widened = carve_tile<Pairs, Products>(tile, scratch);
  tile.has_parts = task.end_tile > (task.first_tile / kPartTiles + 1) * kPartTiles;
  take_queries(args, task, tile);
  const Products products{tile, widened};

  const int32_t last = task.first_position + task.num_queries - 1;
  for (int first_tile = task.first_tile; first_tile < task.end_tile; first_tile += kChunkTiles) {
    Chunk chunk;
    find_chunk(args, task, first_tile, widened, chunk);
    // Few rows wait for memory; many have long had it when the next chunk comes.
    if (tile.rows <= kFewRows) prefetch_chunk(args, task, first_tile + kChunkTiles);
    // Every row sees the whole chunk, unless it reaches past the first query or its window.
    const int32_t chunk_end = chunk.first_position[kChunkTiles - 1] + kTileTokens;
    const bool whole = chunk.num_tiles == kChunkTiles && chunk_end <= task.first_position + 1 &&
                       layout.block_size % kTileTokens == 0;
    const bool masked = !whole || (args.window != 0 && chunk.first_position[0] <= last - args.window);
    products.score(chunk);
    for (int row = 0; row < tile.rows; ++row) {
      const int32_t position = task.first_position + row / group;
      const int32_t first = args.window == 0 ? 0 : position - args.window + 1;
      soften_row(tile, chunk, row, masked, first, position + 1);
    }
    int num_seen[kChunkTiles];
    for (int t = 0; t < kChunkTiles; ++t) {
      const int32_t seen = last + 1 - chunk.first_position[t];
      num_seen[t] = seen < 0 ? 0 : seen < chunk.count[t] ? seen : chunk.count[t];
    }
    products.add(chunk, num_seen);
    const int next_tile = first_tile + kChunkTiles;
    if (tile.has_parts && (next_tile % kPartTiles == 0 || next_tile >= task.end_tile)) {
      end_part(tile);
    }
  }
  give_results(args, task, tile);
}

}  // namespace

void kv_attention(const KvAttentionArgs& args, const KvAttentionTask& task, void* scratch) {
  uint8_t* bytes = static_cast<uint8_t*>(scratch);
  if (args.layout.type == kKvF32) {
    return attend<PairsF32, VectorProducts<PairsF32>>(args, task, bytes);
  }
#if defined(__AMX_BF16__)
  if (args.layout.head_dim % TileProducts::kStep == 0) {
    return attend<PairsBf16, TileProducts>(args, task, bytes);
  }
#endif
  attend<PairsBf16, VectorProducts<PairsBf16>>(args, task, bytes);
}

void kv_merge(const float* parts, int num_parts, int64_t stride, int head_dim, float* out) {
  float whole[kKvMaxHeadDim + 2] = {kMinusInfinity};
  for (int part = 0; part < num_parts; ++part) {
    const float* from = parts + part * stride;
    merge_part(whole, from, from + 2, head_dim);
  }
  const float factor = 1.0f / whole[1];
  for (int d = 0; d < head_dim; d += kLanes) store(out + d, load(whole + 2 + d) * factor);
}

}  // namespace STARSHADE_ISA
}  // namespace starshade
