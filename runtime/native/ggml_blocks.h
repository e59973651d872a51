// What does a block of a ggml tensor hold?  Codes, scales and minimums, read exactly.
// Block layouts: ggml-common.h of ggml; type ids: the GGUF specification.
#pragma once

#include <cstddef>
#include <cstdint>

namespace starshade {

constexpr int kMaxBlockItems = 256;

// value of item i = (code[i] - offset) * scale[i / scale_items] + min[i / scale_items]
struct BlockItems {
  std::uint8_t codes[kMaxBlockItems];
  float scales[16], mins[16];
};

struct BlockType {
  std::int32_t ggml_type;
  const char* name;
  std::int32_t block_items, block_bytes;
  std::int32_t code_bits;    // 4 or 8; 0: plain floating point
  std::int32_t offset;       // subtracted from each code
  std::int32_t scale_items;  // items that share a scale: 32 or 16
  bool half_scales;          // a block starts with its scale, then any minimum, as halves
  bool has_min;
  std::int32_t nibbles_at;   // where 16 bytes of (item j, item j + 16) lie, if they do; else 0
  void (*read)(const std::uint8_t* block, BlockItems& items);
};

// Null when the type is unknown.
const BlockType* find_block_type(std::int32_t ggml_type);

constexpr std::int32_t kGgmlF32 = 0, kGgmlF16 = 1, kGgmlBf16 = 30;

}  // namespace starshade
