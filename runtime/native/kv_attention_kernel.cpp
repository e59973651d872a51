// Online-softmax attention over a paged pool of pairs, compiled once per instruction set
// [Milakov & Gimelshein 2018; Dao et al. 2022].
//
// Scores of sixteen keys are sixteen lanes: no sum across lanes, for one query row or many. With
// BF16 instructions a pair of items is one multiply-add; without, two in float32.
#include "kv_kernel.h"
#include "vec_math.h"

namespace starshade {
namespace STARSHADE_ISA {
namespace {

typedef uint16_t Bf16;
typedef uint16_t HalfWords __attribute__((vector_size(kLanes * 2)));
typedef int8_t Bytes __attribute__((vector_size(kLanes)));
typedef IntVec UnalignedIntVec __attribute__((aligned(4), may_alias));
static_assert(kTileTokens == kLanes, "a tile of keys is one vector");

// Rows that share the loaded keys or values: their sums fill the registers.
#ifdef __AVX512F__
constexpr int kRows = 6;
#else
constexpr int kRows = 2;
#endif

inline IntVec load_int(const void* from) { return *static_cast<const UnalignedIntVec*>(from); }

inline uint32_t bf16_bits(float value) {
  uint32_t bits;
  __builtin_memcpy(&bits, &value, 4);
  if ((bits & 0x7fffffff) > 0x7f800000) return 0x7fc0;  // a NaN, whatever it carries
  return (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
}

// Items in pairs, as they lie in the pool, and the coefficients (query items or weights of
// tokens) that they are multiplied by, which lie in pairs too.
struct PairsF32 {
  using Coefficient = float;
  static constexpr bool kHasRest = false;
  static constexpr int kDegree = 6;
  struct Pair { Vec even, odd; };
  static Pair key(const uint8_t* tile, int pair) {
    const float* from = reinterpret_cast<const float*>(tile) + pair * 2 * kLanes;
    return {load(from), load(from + kLanes)};
  }
  static Pair value(const uint8_t* tile, int head_dim, int pair, int d) {
    const float* from = reinterpret_cast<const float*>(tile) + pair * 2 * head_dim + d;
    return {load(from), load(from + head_dim)};
  }
  static Pair first_only(Pair pair) { return {pair.even, Vec{}}; }
  static Vec add_product(Vec sums, Pair pair, const float* coefficients) {
    return sums + pair.even * coefficients[0] + pair.odd * coefficients[1];
  }
  static void put(float* to, Vec first, Vec second) { store(to, first), store(to + kLanes, second); }
  static void put_rest(float*, Vec, Vec) {}
  // Adds the weights that `put` stored to their sum, in any lanes.
  static Vec add_weights(Vec total, const float* weights) {
    return total + (load(weights) + load(weights + kLanes));
  }
};

#ifdef __AVX512BF16__
struct PairsBf16 {
  using Coefficient = Bf16;
  // Queries as the sum of two bf16: one alone costs some agreement with float32.
  static constexpr bool kHasRest = true;
  static constexpr int kDegree = 4;
  typedef __m512bh Pair;
  static Pair key(const uint8_t* tile, int pair) {
    return (__m512bh)_mm512_loadu_si512(tile + pair * 4 * kLanes);
  }
  static Pair value(const uint8_t* tile, int head_dim, int pair, int d) {
    return (__m512bh)_mm512_loadu_si512(tile + (pair * head_dim + d) * 4);
  }
  static Pair first_only(Pair pair) {
    return (__m512bh)_mm512_and_si512((__m512i)pair, _mm512_set1_epi32(0xffff));
  }
  static Vec add_product(Vec sums, Pair pair, const Bf16* coefficients) {
    int32_t both;
    __builtin_memcpy(&both, coefficients, 4);
    return (Vec)_mm512_dpbf16_ps((__m512)sums, pair, (__m512bh)_mm512_set1_epi32(both));
  }
  static void put(Bf16* to, Vec first, Vec second) {
    const __m512bh both = _mm512_cvtne2ps_pbh((__m512)second, (__m512)first);
    _mm512_storeu_si512(to, (__m512i)both);
  }
  // What rounding left of the items that `put` stored.
  static void put_rest(Bf16* to, Vec first, Vec second) {
    put(to, first - rounded(first), second - rounded(second));
  }
  static Vec rounded(Vec v) {
    const __m256bh halves = _mm512_cvtneps_pbh((__m512)v);
    return (Vec)_mm512_castsi512_ps(
        _mm512_slli_epi32(_mm512_cvtepu16_epi32((__m256i)halves), 16));
  }
  // The rounded ones: what they are divided by then errs as they do.
  static Vec add_weights(Vec total, const Bf16* weights) {
    const __m512bh ones = (__m512bh)_mm512_set1_epi16(0x3f80);
    return (Vec)_mm512_dpbf16_ps((__m512)total, (__m512bh)_mm512_loadu_si512(weights), ones);
  }
};
#else
struct PairsBf16 {
  using Coefficient = float;
  static constexpr bool kHasRest = false;
  static constexpr int kDegree = 4;
  using Pair = PairsF32::Pair;
  static Pair widen(IntVec words) { return {of_bits(words << 16), of_bits(words & ~0xffff)}; }
  static Pair key(const uint8_t* tile, int pair) { return widen(load_int(tile + pair * 4 * kLanes)); }
  static Pair value(const uint8_t* tile, int head_dim, int pair, int d) {
    return widen(load_int(tile + (pair * head_dim + d) * 4));
  }
  static Pair first_only(Pair pair) { return PairsF32::first_only(pair); }
  static Vec add_product(Vec sums, Pair pair, const float* coefficients) {
    return PairsF32::add_product(sums, pair, coefficients);
  }
  static void put(float* to, Vec first, Vec second) { PairsF32::put(to, first, second); }
  static void put_rest(float*, Vec, Vec) {}
  static Vec add_weights(Vec total, const float* weights) {
    return PairsF32::add_weights(total, weights);
  }
};
#endif

// Where one chunk's tiles lie; those past the end repeat the first and show no token.
struct Chunk {
  int num_tiles;
  int32_t first_position[kChunkTiles];
  int count[kChunkTiles];
  const uint8_t* keys[kChunkTiles];
  const uint8_t* values[kChunkTiles];
  const float* key_scales[kChunkTiles];  // int8 only
  const float* value_scales[kChunkTiles];
};

template <class Pairs>
struct Tile {
  using Coefficient = typename Pairs::Coefficient;
  int rows, group, head_dim;
  float softcap;
  Coefficient* q;        // (rows, D), scaled
  Coefficient* q_rest;   // (rows, D): what rounding left of it, if Pairs::kHasRest
  Coefficient* weights;  // (rows, kKvChunkKeys)
  float* scores;         // (rows, kKvChunkKeys)
  float* sums;           // (rows, D), not yet divided
  float* denominators;   // (rows, kLanes), to be summed
  float* maxima;         // (rows)
  float* wholes;         // (rows, 2 + D): earlier parts, see merge_part
  bool has_parts;
};

inline uint8_t* carve(uint8_t*& scratch, size_t num_bytes) {
  uint8_t* piece = scratch;
  scratch += (num_bytes + 63) / 64 * 64;
  return piece;
}

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

// int8 as bf16, which holds every such value exactly.
void widen(const uint8_t* from, Bf16* to, int num_items) {
  for (int i = 0; i < num_items; i += kLanes) {
    Bytes bytes;
    __builtin_memcpy(&bytes, from + i, kLanes);
    const Vec values = __builtin_convertvector(__builtin_convertvector(bytes, IntVec), Vec);
    const HalfWords halves = __builtin_convertvector(bits_of(values) >> 16, HalfWords);
    __builtin_memcpy(to + i, &halves, kLanes * 2);
  }
}

void find_chunk(const KvAttentionArgs& args, const KvAttentionTask& task, int first_tile,
                Bf16* widened, Chunk& chunk) {
  const KvLayout& layout = args.layout;
  const int per_block = layout.tiles(), end = first_tile + kChunkTiles;
  chunk.num_tiles = (end < task.end_tile ? end : task.end_tile) - first_tile;
  for (int t = 0; t < kChunkTiles; ++t) {
    const int index = first_tile + (t < chunk.num_tiles ? t : 0);
    const int block = index / per_block, in_block = index % per_block;
    const uint8_t* head = args.pool + task.block_ids[block] * args.block_bytes +
                          task.kv_head * layout.head_bytes();
    const int left = layout.block_size - in_block * kTileTokens;
    chunk.first_position[t] = block * layout.block_size + in_block * kTileTokens;
    chunk.count[t] = t >= chunk.num_tiles ? 0 : left < kTileTokens ? left : kTileTokens;
    chunk.keys[t] = head + in_block * layout.tile_bytes();
    chunk.values[t] = chunk.keys[t] + layout.values_offset();
    chunk.key_scales[t] = chunk.value_scales[t] = nullptr;
    if (layout.type != kKvInt8) continue;
    const float* scales = reinterpret_cast<const float*>(head + layout.scales_offset());
    chunk.key_scales[t] = scales + in_block * kTileTokens;
    chunk.value_scales[t] = chunk.key_scales[t] + per_block * kTileTokens;
    const int items = kTileTokens * layout.head_dim;
    Bf16* keys = widened + t * 2 * items;
    if (t < chunk.num_tiles) {
      widen(chunk.keys[t], keys, items);
      widen(chunk.values[t], keys + items, items);
    }
    chunk.keys[t] = reinterpret_cast<const uint8_t*>(t < chunk.num_tiles ? keys : widened);
    chunk.values[t] = chunk.keys[t] + items * 2;
  }
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

template <class Pairs>
void attend(const KvAttentionArgs& args, const KvAttentionTask& task, uint8_t* scratch) {
  const KvLayout& layout = args.layout;
  const int head_dim = layout.head_dim, group = args.num_heads / layout.num_kv_heads;
  const size_t rows = static_cast<size_t>(task.num_queries) * group;
  Tile<Pairs> tile;
  using Coefficient = typename Pairs::Coefficient;
  tile.rows = static_cast<int>(rows), tile.group = group, tile.head_dim = head_dim;
  tile.softcap = args.softcap;
  tile.q = reinterpret_cast<Coefficient*>(carve(scratch, rows * head_dim * sizeof(Coefficient)));
  tile.q_rest = tile.q;
  if (Pairs::kHasRest) {
    tile.q_rest =
        reinterpret_cast<Coefficient*>(carve(scratch, rows * head_dim * sizeof(Coefficient)));
  }
  tile.weights =
      reinterpret_cast<Coefficient*>(carve(scratch, rows * kKvChunkKeys * sizeof(Coefficient)));
  tile.scores = reinterpret_cast<float*>(carve(scratch, rows * kKvChunkKeys * 4));
  tile.sums = reinterpret_cast<float*>(carve(scratch, rows * head_dim * 4));
  tile.denominators = reinterpret_cast<float*>(carve(scratch, rows * kLanes * 4));
  tile.maxima = reinterpret_cast<float*>(carve(scratch, rows * 4));
  tile.wholes = reinterpret_cast<float*>(carve(scratch, rows * (head_dim + 2) * 4));
  Bf16* widened = reinterpret_cast<Bf16*>(scratch);
  tile.has_parts = task.end_tile > (task.first_tile / kPartTiles + 1) * kPartTiles;
  take_queries(args, task, tile);

  const int32_t last = task.first_position + task.num_queries - 1;
  for (int first_tile = task.first_tile; first_tile < task.end_tile; first_tile += kChunkTiles) {
    Chunk chunk;
    find_chunk(args, task, first_tile, widened, chunk);
    // Every row sees the whole chunk, unless it reaches past the first query or its window.
    const int32_t chunk_end = chunk.first_position[kChunkTiles - 1] + kTileTokens;
    const bool whole = chunk.num_tiles == kChunkTiles && chunk_end <= task.first_position + 1 &&
                       layout.block_size % kTileTokens == 0;
    const bool masked = !whole || (args.window != 0 && chunk.first_position[0] <= last - args.window);
    by_rows(tile.rows, Score<Pairs>{tile, chunk});
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
    by_rows(tile.rows, Add<Pairs>{tile, chunk, num_seen});
    const int next_tile = first_tile + kChunkTiles;
    if (tile.has_parts && (next_tile % kPartTiles == 0 || next_tile >= task.end_tile)) {
      end_part(tile);
    }
  }
  give_results(args, task, tile);
}

}  // namespace

void kv_attention(const KvAttentionArgs& args, const KvAttentionTask& task, void* scratch) {
  if (args.layout.type == kKvF32) {
    attend<PairsF32>(args, task, static_cast<uint8_t*>(scratch));
  } else {
    attend<PairsBf16>(args, task, static_cast<uint8_t*>(scratch));
  }
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

namespace {

void write_items(const KvLayout& layout, uint8_t* tile, int lane, const float* items, bool is_value) {
  const int head_dim = layout.head_dim;
  if (layout.type == kKvF32) {
    float* to = reinterpret_cast<float*>(tile) + (is_value ? lane * head_dim : lane);
    for (int d = 0; d < head_dim; ++d) to[is_value ? d : d * kLanes] = items[d];
  } else if (is_value) {
    Bf16* to = reinterpret_cast<Bf16*>(tile) + lane / 2 * head_dim * 2 + lane % 2;
    for (int d = 0; d < head_dim; ++d) to[2 * d] = Bf16(bf16_bits(items[d]));
  } else {
    uint32_t* to = reinterpret_cast<uint32_t*>(tile) + lane;
    for (int d = 0; d < head_dim; d += 2) {
      to[d / 2 * kLanes] = bf16_bits(items[d]) | bf16_bits(items[d + 1]) << 16;
    }
  }
}

// Returns the scale: the largest item is 127 of it.
float write_bytes(int head_dim, uint8_t* tile, int lane, const float* items, bool is_value) {
  Vec largest = {};
  for (int d = 0; d < head_dim; d += kLanes) {
    const Vec v = load(items + d);
    largest = greater(v > Vec{} ? v : -v, largest);
  }
  const float scale = maximum(largest) / 127.0f;
  const float inverse = scale > 0 ? 1.0f / scale : 0.0f;
  uint8_t* to = tile + (is_value ? lane / 2 * head_dim * 2 + lane % 2 : lane * 2);
  for (int d = 0; d < head_dim; ++d) {
    const int8_t item = int8_t(__builtin_lrintf(items[d] * inverse));
    to[is_value ? 2 * d : d / 2 * kLanes * 2 + d % 2] = uint8_t(item);
  }
  return scale;
}

}  // namespace

void kv_write(const KvLayout& layout, uint8_t* head, int offset_in_block, const float* key,
              const float* value) {
  const int tile = offset_in_block / kTileTokens, lane = offset_in_block % kTileTokens;
  float* scales = reinterpret_cast<float*>(head + layout.scales_offset()) + offset_in_block;
  const float* items[2] = {key, value};
  for (int is_value = 0; is_value < 2; ++is_value) {
    if (items[is_value] == nullptr) continue;
    uint8_t* to = head + is_value * layout.values_offset() + tile * layout.tile_bytes();
    if (layout.type == kKvInt8) {
      scales[is_value * layout.tiles() * kTileTokens] =
          write_bytes(layout.head_dim, to, lane, items[is_value], is_value);
    } else {
      write_items(layout, to, lane, items[is_value], is_value);
    }
  }
}

}  // namespace STARSHADE_ISA
}  // namespace starshade
