// Keys and values of one token into the paged pool, in the pairs that attention reads, compiled once
// per instruction set.
#include "kv_kernel.h"
#include "vec_math.h"

namespace starshade {
namespace STARSHADE_ISA {
namespace {

typedef uint16_t Bf16;

inline uint32_t bf16_bits(float value) {
  uint32_t bits;
  __builtin_memcpy(&bits, &value, 4);
  if ((bits & 0x7fffffff) > 0x7f800000) return 0x7fc0;  // a NaN, whatever it carries
  return (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
}

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
