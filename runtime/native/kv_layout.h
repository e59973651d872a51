// Where does a key or value lie inside the KV pool?  Shared by dispatch and the ISA objects.
//
// A block holds all layers of `block_size` tokens, so that one block is one contiguous piece:
// layer, KV head, then keys, values and (int8 only) their scales. Tokens stand in tiles of 16,
// the lanes of a vector; a block size that is no multiple of 16 leaves the last lanes unused.
//   16-bit and 8-bit keys   (D / 2, 16, 2)   one load gives a pair of items of 16 tokens
//   16-bit and 8-bit values (8, D, 2)        one load gives 16 items of a pair of tokens
//   32-bit keys (D, 16), values (16, D)
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace starshade {

constexpr int kTileTokens = 16;

enum KvType : int32_t { kKvF32, kKvBf16, kKvInt8 };

struct KvLayout {
  int32_t num_layers, num_kv_heads, head_dim, block_size;
  KvType type;

  int32_t tiles() const { return (block_size + kTileTokens - 1) / kTileTokens; }
  int64_t item_bytes() const { return type == kKvF32 ? 4 : type == kKvBf16 ? 2 : 1; }
  int64_t tile_bytes() const { return item_bytes() * kTileTokens * head_dim; }
  int64_t values_offset() const { return tiles() * tile_bytes(); }
  int64_t scales_offset() const { return 2 * values_offset(); }  // (2, tiles, 16) float32
  int64_t head_bytes() const {
    const int64_t scales = type == kKvInt8 ? int64_t{2} * tiles() * kTileTokens * 4 : 0;
    return (scales_offset() + scales + 63) / 64 * 64;
  }
  int64_t layer_bytes() const { return num_kv_heads * head_bytes(); }
  int64_t block_bytes() const { return num_layers * layer_bytes(); }
};

}  // namespace starshade
