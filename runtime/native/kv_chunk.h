// Which tiles of the paged pool does attention read at a time, and where do they lie?  For kernels
// only, see kv_pairs.h.
#pragma once

#include "kv_kernel.h"
#include "kv_pairs.h"

namespace starshade {
namespace STARSHADE_ISA {
namespace {

// Where one chunk's tiles lie; those past the end repeat the first and show no token.
template <int TILES>
struct Chunk {
  int num_tiles;
  int32_t first_position[TILES];
  int count[TILES];
  const uint8_t* keys[TILES];
  const uint8_t* values[TILES];
  const float* key_scales[TILES];  // int8 only
  const float* value_scales[TILES];
};

// int8 as bf16, which holds every such value exactly.  A plain loop: GCC makes vectors of it, but
// single items of a conversion of vectors of bytes.
inline void widen(const uint8_t* from, Bf16* to, int num_items) {
  for (int i = 0; i < num_items; ++i) {
    const float value = static_cast<int8_t>(from[i]);
    uint32_t bits;
    __builtin_memcpy(&bits, &value, sizeof(bits));
    to[i] = static_cast<Bf16>(bits >> 16);
  }
}

// Of tiles first_tile .. end_tile - 1, or those of them that the task has.
template <int TILES>
inline void find_chunk(const KvAttentionArgs& args, const KvAttentionTask& task, int first_tile,
                       int end_tile, Bf16* widened, Chunk<TILES>& chunk) {
  const KvLayout& layout = args.layout;
  const int per_block = layout.tiles();
  chunk.num_tiles = (end_tile < task.end_tile ? end_tile : task.end_tile) - first_tile;
  for (int t = 0; t < TILES; ++t) {
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

// Begins to load what the chunk at first_tile needs. Blocks lie apart: no hardware foresees them.
inline void prefetch_chunk(const KvAttentionArgs& args, const KvAttentionTask& task,
                           int first_tile) {
  const KvLayout& layout = args.layout;
  const int per_block = layout.tiles(), end = first_tile + kChunkTiles;
  for (int index = first_tile; index < end && index < task.end_tile; ++index) {
    const uint8_t* keys = args.pool + task.block_ids[index / per_block] * args.block_bytes +
                          task.kv_head * layout.head_bytes() +
                          index % per_block * layout.tile_bytes();
    for (int64_t at = 0; at < layout.tile_bytes(); at += 64) {
      __builtin_prefetch(keys + at);
      __builtin_prefetch(keys + layout.values_offset() + at);
    }
  }
}

}  // namespace
}  // namespace STARSHADE_ISA
}  // namespace starshade
