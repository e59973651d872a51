// What do the kernels do with a paged KV cache?  The contract between dispatch and ISA objects.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "kv_layout.h"

namespace starshade {

constexpr int kKvHeadDimStep = 16;  // head_dim is a multiple of it
constexpr int kKvMaxHeadDim = 512;
constexpr int kChunkTiles = 4;      // tiles of keys that vectors score at a time
// Keys are summed in parts that end at multiples of so many tiles, whether one task has them all or
// each has its own: a row's bits do not depend on how its sequence was cut.
constexpr int kPartTiles = 16;      // which the tile unit scores at a time
constexpr int kKvPartKeys = kPartTiles * kTileTokens;
constexpr int kKvTileRows = 96;     // (query, head) rows of a task, if the group is not larger

struct KvAttentionArgs {
  const float* q;       // (T, H, D), q_stride floats between tokens
  float* out;           // (T, H, D), out_stride floats between tokens
  const uint8_t* pool;  // of this layer: block b, KV head h at b * block_bytes + h * head_bytes
  int64_t q_stride, out_stride, block_bytes;
  KvLayout layout;
  float scale, softcap;  // softcap 0: none
  int32_t window;        // 0: all; else position i sees j with i - window < j <= i
  int32_t num_heads;
};

// Queries of one sequence, one after the other, for one KV head, over the sequence's tiles of keys
// first_tile .. end_tile - 1; first_tile is a multiple of kChunkTiles. Or queries of several
// sequences that all see these tiles whole, from the same blocks.
struct KvAttentionTask {
  const int32_t* block_ids;   // of the whole sequence, or of one of them
  int64_t first_row;          // in T
  const int32_t* query_rows;  // in T; null: from first_row on
  int32_t num_queries;
  int32_t first_position;     // of the first query, the least of several sequences
  int32_t kv_head;
  int32_t first_tile, end_tile;
  bool by_tiles;              // where the CPU has them: a prompt's, or many rows in bulk
  // Null: results go to `out`. Else each query's (group, 2 + D): maximum (of scores times log2 e),
  // denominator and undivided sums, to be merged with other tasks' tiles.
  float* const* partials;

  int64_t row_of(int query) const { return query_rows ? query_rows[query] : first_row + query; }
};

// Bytes of scratch for tasks of up to `rows` (query, head) rows; 64-byte aligned by the caller.
// Blocks of up to 16 rows may pad them by one less than there are blocks.  The kernel's carve_tile
// checks that it needs no more.
constexpr size_t kv_attention_scratch_bytes(size_t rows, size_t head_dim) {
  return (rows + rows / 16) * (head_dim * 12 + kKvPartKeys * 8 + 136) + 6 * kKvPartKeys * head_dim + 1024;
}

// next: what the caller is likely to do then, or null; its keys are fetched meanwhile.
using KvAttentionKernel = void (*)(const KvAttentionArgs&, const KvAttentionTask&,
                                   const KvAttentionTask* next, void* scratch);

// Stores one token's key and value, D floats each, or one of them, the other being null; `head` is
// the (block, layer, KV head).
using KvWriteKernel = void (*)(const KvLayout&, uint8_t* head, int offset_in_block,
                               const float* key, const float* value);

// Merges `num_parts` partial results of one (query, head), `stride` floats apart, into out (D).
using KvMergeKernel = void (*)(const float* parts, int num_parts, int64_t stride, int head_dim,
                               float* out);

#define STARSHADE_KV_KERNELS(isa)                                                     \
  namespace isa {                                                                     \
  void kv_attention(const KvAttentionArgs&, const KvAttentionTask&,                   \
                    const KvAttentionTask* next, void* scratch);                      \
  void kv_write(const KvLayout&, uint8_t*, int, const float*, const float*);          \
  void kv_merge(const float*, int, int64_t, int, float*);                             \
  }
STARSHADE_KV_KERNELS(portable)
STARSHADE_KV_KERNELS(avx2)
STARSHADE_KV_KERNELS(avx512)
STARSHADE_KV_KERNELS(avx512vnni)
STARSHADE_KV_KERNELS(avx512amx)
#undef STARSHADE_KV_KERNELS

}  // namespace starshade
