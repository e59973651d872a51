// Online-softmax attention of one tile, compiled once per instruction set [Milakov & Gimelshein
// 2018; Dao et al. 2022].
#include "attention_kernel.h"

#include "vec.h"

namespace starshade {
namespace STARSHADE_ISA {
namespace {

constexpr int kChunkVecs = kChunkKeys / kLanes;
static_assert(kHeadDimStep == kLanes, "a head is whole vectors");
constexpr float kMinusInfinity = -__builtin_inff();

// exp for x <= 0, to 2 ulp; 0 below -87 [Cephes expf: same reduction and polynomial].
inline Vec exp_negative(Vec x) {
  const IntVec vanishes = x < broadcast(-87.0f);
  x = vanishes ? broadcast(-87.0f) : x;
  const Vec magic = broadcast(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer
  const Vec n = (x * 1.44269504088896341f + magic) - magic;
  const Vec r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
  Vec p = broadcast(1.9875691500e-4f);
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  const IntVec power = (__builtin_convertvector(n, IntVec) + 127) << 23;
  return vanishes ? Vec{} : p * reinterpret_cast<Vec>(power);
}

struct Tile {
  int rows, head_dim;
  float* q;       // (rows, D), scaled
  float* sums;    // (rows, D), not yet divided
  float* scores;  // (rows, kChunkKeys)
  float* state;   // (rows, kLanes): running maximum, running denominator
  float* keys_t;  // (D, kChunkKeys)
};

// Few rows: one dot product per row and key.
void score_directly(const Tile& tile, const float* const* keys, int num_keys) {
  for (int key = 0; key < num_keys; ++key) {
    for (int row = 0; row < tile.rows; ++row) {
      Vec dot = {};
      for (int d = 0; d < tile.head_dim; d += kLanes) {
        dot += load(tile.q + row * tile.head_dim + d) * load(keys[key] + d);
      }
      tile.scores[row * kChunkKeys + key] = sum(dot);
    }
  }
}

template <int ROWS>
inline void score_rows(const Tile& tile, int first_row) {
  Vec dots[ROWS][kChunkVecs] = {};
  const float* q = tile.q + first_row * tile.head_dim;
  for (int d = 0; d < tile.head_dim; ++d) {
    Vec keys[kChunkVecs];
    for (int v = 0; v < kChunkVecs; ++v) keys[v] = load(tile.keys_t + d * kChunkKeys + v * kLanes);
    for (int row = 0; row < ROWS; ++row) {
      for (int v = 0; v < kChunkVecs; ++v) dots[row][v] += keys[v] * q[row * tile.head_dim + d];
    }
  }
  for (int row = 0; row < ROWS; ++row) {
    for (int v = 0; v < kChunkVecs; ++v) {
      store(tile.scores + (first_row + row) * kChunkKeys + v * kLanes, dots[row][v]);
    }
  }
}

// Many rows: transpose the chunk's keys once, then no sum across lanes is needed.
void score_transposed(const Tile& tile, const float* const* keys, int num_keys) {
  for (int key = 0; key < kChunkKeys; ++key) {
    // Lanes past the end repeat the last key: finite, and masked afterwards.
    const float* from = keys[key < num_keys ? key : num_keys - 1];
    for (int d = 0; d < tile.head_dim; ++d) tile.keys_t[d * kChunkKeys + key] = from[d];
  }
  int row = 0;
  for (; row + 4 <= tile.rows; row += 4) score_rows<4>(tile, row);
  for (; row < tile.rows; ++row) score_rows<1>(tile, row);
}

// Scores become weights; earlier sums are rescaled to the new maximum.
void soften_row(const Tile& tile, int row, int num_visible) {
  float* scores = tile.scores + row * kChunkKeys;
  float* state = tile.state + row * kLanes;
  for (int key = num_visible; key < kChunkKeys; ++key) scores[key] = kMinusInfinity;
  float maximum = state[0];
  for (int key = 0; key < kChunkKeys; ++key) maximum = scores[key] > maximum ? scores[key] : maximum;
  Vec total = {};
  for (int v = 0; v < kChunkVecs; ++v) {
    const Vec weights = exp_negative(load(scores + v * kLanes) - maximum);
    store(scores + v * kLanes, weights);
    total += weights;
  }
  if (maximum > state[0]) {
    const float rescale = exp_negative(broadcast(state[0] - maximum))[0];
    float* sums = tile.sums + row * tile.head_dim;
    for (int d = 0; d < tile.head_dim; d += kLanes) store(sums + d, load(sums + d) * rescale);
    state[1] *= rescale;
  }
  state[0] = maximum;
  state[1] += sum(total);
}

template <int ROWS, int VECS>
inline void add_values(const Tile& tile, int first_row, int d, const float* const* values, int num_keys) {
  Vec sums[ROWS][VECS];
  float* to = tile.sums + first_row * tile.head_dim + d;
  for (int row = 0; row < ROWS; ++row) {
    for (int v = 0; v < VECS; ++v) sums[row][v] = load(to + row * tile.head_dim + v * kLanes);
  }
  for (int key = 0; key < num_keys; ++key) {
    Vec value[VECS];
    for (int v = 0; v < VECS; ++v) value[v] = load(values[key] + d + v * kLanes);
    for (int row = 0; row < ROWS; ++row) {
      const float weight = tile.scores[(first_row + row) * kChunkKeys + key];
      for (int v = 0; v < VECS; ++v) sums[row][v] += value[v] * weight;
    }
  }
  for (int row = 0; row < ROWS; ++row) {
    for (int v = 0; v < VECS; ++v) store(to + row * tile.head_dim + v * kLanes, sums[row][v]);
  }
}

template <int ROWS>
inline void add_rows(const Tile& tile, int first_row, const float* const* values, int num_keys) {
  int d = 0;
  for (; d + 4 * kLanes <= tile.head_dim; d += 4 * kLanes) {
    add_values<ROWS, 4>(tile, first_row, d, values, num_keys);
  }
  for (; d < tile.head_dim; d += kLanes) add_values<ROWS, 1>(tile, first_row, d, values, num_keys);
}

Tile carve(const AttentionArgs& args, int rows, float* scratch) {
  Tile tile;
  tile.rows = rows;
  tile.head_dim = args.head_dim;
  tile.q = scratch;
  tile.sums = tile.q + rows * args.head_dim;
  tile.scores = tile.sums + rows * args.head_dim;
  tile.state = tile.scores + rows * kChunkKeys;
  tile.keys_t = tile.state + rows * kLanes;
  return tile;
}

}  // namespace

void attention(const AttentionArgs& args, const AttentionTask& task, float* scratch) {
  const int group = args.num_heads / args.num_kv_heads;
  const int head_dim = args.head_dim;
  const Tile tile = carve(args, task.num_queries * group, scratch);

  // 1. Row r is query r / group, head kv_head * group + r % group; take it scaled.
  for (int row = 0; row < tile.rows; ++row) {
    const float* q = args.q + (task.first_row + row / group) * args.q_stride +
                     static_cast<int64_t>(task.kv_head * group + row % group) * head_dim;
    for (int d = 0; d < head_dim; ++d) {
      tile.q[row * head_dim + d] = q[d] * args.scale;
      tile.sums[row * head_dim + d] = 0;
    }
    tile.state[row * kLanes] = kMinusInfinity;
    tile.state[row * kLanes + 1] = 0;
  }

  // 2. Chunk by chunk over the keys that the last query sees.
  const int num_keys = task.first_position + task.num_queries;
  const int64_t slot_stride = static_cast<int64_t>(args.num_kv_heads) * head_dim;
  const float* keys[kChunkKeys];
  const float* values[kChunkKeys];
  for (int start = 0; start < num_keys; start += kChunkKeys) {
    const int in_chunk = num_keys - start < kChunkKeys ? num_keys - start : kChunkKeys;
    for (int key = 0; key < in_chunk; ++key) {
      const int position = start + key;
      const int64_t slot = static_cast<int64_t>(task.block_ids[position / args.block_size]) *
                               args.block_size + position % args.block_size;
      const int64_t offset = slot * slot_stride + task.kv_head * head_dim;
      keys[key] = args.k_cache + offset;
      values[key] = args.v_cache + offset;
    }
    if (tile.rows < 8) {
      score_directly(tile, keys, in_chunk);
    } else {
      score_transposed(tile, keys, in_chunk);
    }
    for (int row = 0; row < tile.rows; ++row) {
      const int visible = task.first_position + row / group + 1 - start;
      soften_row(tile, row, visible < 0 ? 0 : (visible < in_chunk ? visible : in_chunk));
    }
    int row = 0;
    for (; row + 4 <= tile.rows; row += 4) add_rows<4>(tile, row, values, in_chunk);
    for (; row < tile.rows; ++row) add_rows<1>(tile, row, values, in_chunk);
  }

  // 3. Divide by the denominators.
  for (int row = 0; row < tile.rows; ++row) {
    float* out = args.out + ((task.first_row + row / group) * args.num_heads +
                             task.kv_head * group + row % group) * head_dim;
    const float scale = 1.0f / tile.state[row * kLanes + 1];
    for (int d = 0; d < head_dim; ++d) out[d] = tile.sums[row * head_dim + d] * scale;
  }
}

}  // namespace STARSHADE_ISA
}  // namespace starshade
