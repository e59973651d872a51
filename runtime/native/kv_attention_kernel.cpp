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

template <class Pairs>
using VectorTile = Tile<Pairs, kChunkTiles>;
using VectorChunk = Chunk<kChunkTiles>;

template <int ROWS, class Pairs>
inline void score_rows(const VectorTile<Pairs>& tile, const VectorChunk& chunk, int first_row) {
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
      store(tile.scores + (first_row + row) * VectorTile<Pairs>::kKeys + t * kLanes, dots[row][t]);
    }
  }
}

template <int ROWS, int VECS, class Pairs>
inline void add_values(const VectorTile<Pairs>& tile, const VectorChunk& chunk, const int* num_seen,
                       int first_row, int d) {
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
inline void add_rows(const VectorTile<Pairs>& tile, const VectorChunk& chunk, const int* num_seen,
                     int row) {
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
  const VectorTile<Pairs>& tile;
  const VectorChunk& chunk;
  template <int ROWS> void run(int row) const { score_rows<ROWS>(tile, chunk, row); }
};

template <class Pairs>
struct Add {
  const VectorTile<Pairs>& tile;
  const VectorChunk& chunk;
  const int* num_seen;
  template <int ROWS> void run(int row) const { add_rows<ROWS>(tile, chunk, num_seen, row); }
};

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

template <class Rows>
void take_queries(const KvAttentionArgs& args, const KvAttentionTask& task, Rows& tile) {
  using Pairs = typename Rows::Pairs;
  const float scale = args.softcap != 0 ? args.scale : args.scale * kLog2E;
  const int head_dim = tile.head_dim;
  for (int row = 0; row < tile.rows; ++row) {
    const float* q = args.q + task.row_of(row / tile.group) * args.q_stride +
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

template <class Rows>
void end_part(const Rows& tile) {
  for (int row = 0; row < tile.rows; ++row) {
    const float state[2] = {tile.maxima[row], sum(load(tile.denominators + row * kLanes))};
    float* sums = tile.sums + row * tile.head_dim;
    merge_part(tile.wholes + row * (tile.head_dim + 2), state, sums, tile.head_dim);
    for (int d = 0; d < tile.head_dim; d += kLanes) store(sums + d, Vec{});
    store(tile.denominators + row * kLanes, Vec{});
    tile.maxima[row] = kMinusInfinity;
  }
}

template <class Rows>
void give_results(const KvAttentionArgs& args, const KvAttentionTask& task, const Rows& tile) {
  const int head_dim = tile.head_dim;
  for (int row = 0; row < tile.rows; ++row) {
    const float* whole = tile.wholes + row * (head_dim + 2);
    const float denominator =
        tile.has_parts ? whole[1] : sum(load(tile.denominators + row * kLanes));
    const float* sums = tile.has_parts ? whole + 2 : tile.sums + row * head_dim;
    float* out;
    float factor = 1;
    if (task.partials == nullptr) {
      out = args.out + task.row_of(row / tile.group) * args.out_stride +
            static_cast<int64_t>(task.kv_head * tile.group + row % tile.group) * head_dim;
      factor = 1.0f / denominator;
    } else {
      out = task.partials[row / tile.group] + static_cast<int64_t>(row % tile.group) * (head_dim + 2);
      *out++ = tile.has_parts ? whole[0] : tile.maxima[row];
      *out++ = denominator;
    }
    for (int d = 0; d < head_dim; d += kLanes) store(out + d, load(sums + d) * factor);
  }
}

// The products of queries with keys, and of weights with values, by vectors.
template <class Pairs>
struct VectorProducts {
  using Rows = VectorTile<Pairs>;
  VectorProducts(const Rows& tile, Bf16*) : tile(tile) {}
  static int padded(int rows) { return rows; }
  const Rows& tile;
  void score(const VectorChunk& chunk) const { by_rows(tile.rows, Score<Pairs>{tile, chunk}); }
  void add(const VectorChunk& chunk, const int* num_seen) const {
    by_rows(tile.rows, Add<Pairs>{tile, chunk, num_seen});
  }
};

// Divides the scratch among the tile's rows; the rest of it is for keys and values to be widened.
template <class Products>
Bf16* carve_tile(typename Products::Rows& tile, uint8_t* scratch) {
  using Rows = typename Products::Rows;
  using Coefficient = typename Rows::Coefficient;
  const size_t head_dim = static_cast<size_t>(tile.head_dim);
  const size_t rows = static_cast<size_t>(Products::padded(tile.rows));
  const uint8_t* end = scratch + kv_attention_scratch_bytes(tile.rows, head_dim);
  tile.q = tile.q_rest = carve<Coefficient>(scratch, rows * head_dim);
  if (Rows::Pairs::kHasRest) tile.q_rest = carve<Coefficient>(scratch, rows * head_dim);
  tile.weights = carve<Coefficient>(scratch, rows * Rows::kKeys);
  tile.scores = carve<float>(scratch, rows * Rows::kKeys);
  tile.sums = carve<float>(scratch, rows * head_dim);
  tile.denominators = carve<float>(scratch, rows * kLanes);
  tile.maxima = carve<float>(scratch, rows);
  tile.wholes = carve<float>(scratch, rows * (head_dim + 2));
  Bf16* widened = carve<Bf16>(scratch, 2 * Rows::kKeys * head_dim);
  if (scratch > end) __builtin_trap();  // kv_attention_scratch_bytes does not say what is used here
  return widened;
}

constexpr int kFewRows = 16;

template <class Products>
void attend(const KvAttentionArgs& args, const KvAttentionTask& task, uint8_t* scratch) {
  using Rows = typename Products::Rows;
  const KvLayout& layout = args.layout;
  const int group = args.num_heads / layout.num_kv_heads;
  Rows tile;
  tile.rows = task.num_queries * group, tile.group = group, tile.head_dim = layout.head_dim;
  tile.softcap = args.softcap;
  Bf16* const widened = carve_tile<Products>(tile, scratch);
  tile.has_parts = task.end_tile > (task.first_tile / kPartTiles + 1) * kPartTiles;
  take_queries(args, task, tile);
  const Products products{tile, widened};

  const int32_t last = task.first_position + task.num_queries - 1;
  for (int first_tile = task.first_tile, next_tile; first_tile < task.end_tile;
       first_tile = next_tile) {
    next_tile = (first_tile / Rows::kTiles + 1) * Rows::kTiles;
    Chunk<Rows::kTiles> chunk;
    find_chunk(args, task, first_tile, next_tile, widened, chunk);
    // Few rows wait for memory; many have long had it when the next chunk comes.
    if (Rows::kTiles == kChunkTiles && tile.rows <= kFewRows) prefetch_chunk(args, task, next_tile);
    products.score(chunk);
    const uint32_t masked = masked_tiles(args, task, chunk);
    for (int row = 0; row < tile.rows; ++row) {
      const int32_t position = task.first_position + row / group;
      const int32_t first = args.window == 0 ? 0 : position - args.window + 1;
      soften_row(tile, chunk, row, masked, first, position + 1);
    }
    int num_seen[Rows::kTiles];
    for (int t = 0; t < Rows::kTiles; ++t) {
      const int32_t seen = last + 1 - chunk.first_position[t];
      num_seen[t] = seen < 0 ? 0 : seen < chunk.count[t] ? seen : chunk.count[t];
    }
    products.add(chunk, num_seen);
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
    return attend<VectorProducts<PairsF32>>(args, task, bytes);
  }
#if defined(__AMX_BF16__)
  if (args.layout.head_dim % TileProducts::kStep == 0) {
    return attend<TileProducts>(args, task, bytes);
  }
#endif
  attend<VectorProducts<PairsBf16>>(args, task, bytes);
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
