// What does one attention task compute?  The contract between dispatch and the ISA objects.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace starshade {

constexpr int kHeadDimStep = 16;  // head_dim is a multiple of it
constexpr int kMaxHeadDim = 256;
constexpr int kChunkKeys = 32;    // keys that are scored at a time
constexpr int kTileRows = 32;     // (query, head) rows of a task, if the group is not larger

struct AttentionArgs {
  const float* q;        // (T, H, D), q_stride floats between tokens
  const float* k_cache;  // (N, block_size, K, D)
  const float* v_cache;
  float* out;            // (T, H, D), contiguous
  float scale;
  int64_t q_stride;
  int32_t num_heads, num_kv_heads, head_dim, block_size;
};

// Queries first_row .. first_row + num_queries - 1 of one sequence, for one KV head.
struct AttentionTask {
  const int32_t* block_ids;
  int64_t first_row;  // in T
  int32_t num_queries;
  int32_t first_position;  // of the first query
  int32_t kv_head;
};

// Floats of scratch for tasks of up to `rows` rows, 64-byte aligned by the caller.
constexpr size_t scratch_floats(size_t rows, size_t head_dim) {
  return rows * (2 * head_dim + kChunkKeys + kHeadDimStep) + head_dim * kChunkKeys;
}

using AttentionKernel = void (*)(const AttentionArgs&, const AttentionTask&, float* scratch);

namespace portable { void attention(const AttentionArgs&, const AttentionTask&, float* scratch); }
namespace avx2 { void attention(const AttentionArgs&, const AttentionTask&, float* scratch); }
namespace avx512 { void attention(const AttentionArgs&, const AttentionTask&, float* scratch); }
namespace avx512vnni { void attention(const AttentionArgs&, const AttentionTask&, float* scratch); }

}  // namespace starshade
