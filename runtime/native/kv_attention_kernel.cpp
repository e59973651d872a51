// Online-softmax attention over a paged pool of pairs, compiled once per instruction set
// [Milakov & Gimelshein 2018; Dao et al. 2022].
//
// Scores of sixteen keys are sixteen lanes: no sum across lanes, for one query row or many.
#include "kv_kernel.h"
#include "kv_vectors.h"
#if defined(__AMX_BF16__)
#include "amx_attention.h"
#endif

namespace starshade {
namespace STARSHADE_ISA {
namespace {

template <class Rows>
void take_queries(const KvAttentionArgs& args, const KvAttentionTask& task, Rows& tile) {
  using Pairs = typename Rows::Pairs;
  const float scale = args.softcap != 0 ? args.scale : args.scale * kLog2E;
  const int head_dim = tile.head_dim;
  for (int row = 0; row < tile.rows; ++row) {
    const float* q = args.q + task.row_of(row / tile.group) * args.q_stride +
                     static_cast<int64_t>(task.kv_head * tile.group + row % tile.group) * head_dim;
    auto* to = tile.q + row * head_dim;
    int d = 0;
    for (; d + 2 * kLanes <= head_dim; d += 2 * kLanes) {
      Pairs::put(to + d, load(q + d) * scale, load(q + d + kLanes) * scale);
    }
    if (d < head_dim) {  // a head is whole vectors, perhaps an odd number of them
      typename Pairs::Coefficient last[2 * kLanes];
      Pairs::put(last, load(q + d) * scale, Vec{});
      __builtin_memcpy(to + d, last, sizeof(last) / 2);
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

// Divides the scratch among the tile's rows; the rest of it is for keys and values to be widened, and
// for values in another order.
template <class Products>
Bf16* carve_tile(typename Products::Rows& tile, uint8_t* scratch) {
  using Rows = typename Products::Rows;
  using Coefficient = typename Rows::Coefficient;
  const size_t head_dim = static_cast<size_t>(tile.head_dim);
  const size_t rows = static_cast<size_t>(Products::padded(tile.rows));
  const uint8_t* end = scratch + kv_attention_scratch_bytes(tile.rows, head_dim);
  tile.q = carve<Coefficient>(scratch, rows * head_dim);
  tile.weights = carve<Coefficient>(scratch, rows * Rows::kKeys);
  tile.scores = carve<float>(scratch, rows * Rows::kKeys);
  tile.sums = carve<float>(scratch, rows * head_dim);
  tile.denominators = carve<float>(scratch, rows * kLanes);
  tile.maxima = carve<float>(scratch, rows);
  tile.wholes = carve<float>(scratch, rows * (head_dim + 2));
  Bf16* widened = carve<Bf16>(scratch, 3 * Rows::kKeys * head_dim);
  if (scratch > end) __builtin_trap();  // kv_attention_scratch_bytes does not say what is used here
  return widened;
}

constexpr int kFewRows = 16;

// Where the task's chunk at first_tile lies, or if it has none that of the next task, or what was read
// already: what to fetch ahead.  int8 is widened at once, so that it is fetched here.
template <int TILES>
void find_next(const KvAttentionArgs& args, const KvAttentionTask& task, const KvAttentionTask* next,
               int num_rows, int first_tile, Chunk<TILES>& chunk) {
  if (TILES > kChunkTiles) return;
  if (args.layout.type == kKvInt8) {  // many rows have long had it when the next chunk comes
    if (num_rows <= kFewRows) prefetch_chunk(args, task, first_tile);
    return;
  }
  if (first_tile < task.end_tile) {
    find_chunk(args, task, first_tile, first_tile + TILES, nullptr, chunk);
  } else if (next != nullptr) {
    find_chunk(args, *next, next->first_tile, next->first_tile + TILES, nullptr, chunk);
  }
}

template <class Products>
void attend(const KvAttentionArgs& args, const KvAttentionTask& task, const KvAttentionTask* next_task,
            uint8_t* scratch) {
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

  for (int first_tile = task.first_tile, next_tile; first_tile < task.end_tile;
       first_tile = next_tile) {
    next_tile = (first_tile / Rows::kTiles + 1) * Rows::kTiles;
    Chunk<Rows::kTiles> chunk;
    find_chunk(args, task, first_tile, next_tile, widened, chunk);
    Chunk<Rows::kTiles> next = chunk;
    find_next(args, task, next_task, tile.rows, next_tile, next);
    products.take(chunk, next, mask_of(args, task, chunk));
    if (tile.has_parts && (next_tile % kPartTiles == 0 || next_tile >= task.end_tile)) {
      end_part(tile);
    }
  }
  give_results(args, task, tile);
}

}  // namespace

void kv_attention(const KvAttentionArgs& args, const KvAttentionTask& task,
                  const KvAttentionTask* next, void* scratch) {
  uint8_t* bytes = static_cast<uint8_t*>(scratch);
  if (args.layout.type == kKvF32) {
    return attend<VectorProducts<PairsF32>>(args, task, next, bytes);
  }
#if defined(__AMX_BF16__)
  if (args.layout.head_dim % TileProducts::kStep == 0) {
    return attend<TileProducts>(args, task, next, bytes);
  }
#endif
  attend<VectorProducts<PairsBf16>>(args, task, next, bytes);
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
