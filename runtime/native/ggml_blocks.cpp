#include "ggml_blocks.h"

#include "half.h"

namespace starshade {
namespace {

using Block = const std::uint8_t*;

float half_at(Block at) { return float_of_half(std::uint16_t(at[0] | at[1] << 8)); }

// Byte j holds item j in its low nibble and item j + 16 in its high nibble.
void read_nibbles(Block nibbles, std::uint8_t* codes) {
  for (int j = 0; j < 16; ++j) {
    codes[j] = nibbles[j] & 15;
    codes[j + 16] = nibbles[j] >> 4;
  }
}

// Bit j of 32 is the fifth bit of item j; `bias` moves codes to the common offset.
void add_fifth_bits(Block bits, std::uint8_t bias, std::uint8_t* codes) {
  for (int j = 0; j < 32; ++j) {
    codes[j] = std::uint8_t(codes[j] + ((bits[j / 8] >> j % 8 & 1) << 4) + bias);
  }
}

void read_q4_0(Block block, BlockItems& items) {
  items.scales[0] = half_at(block);
  read_nibbles(block + 2, items.codes);
}

void read_q4_1(Block block, BlockItems& items) {
  items.scales[0] = half_at(block);
  items.mins[0] = half_at(block + 2);
  read_nibbles(block + 4, items.codes);
}

void read_q5_0(Block block, BlockItems& items) {
  items.scales[0] = half_at(block);
  read_nibbles(block + 6, items.codes);
  add_fifth_bits(block + 2, 128 - 16, items.codes);
}

void read_q5_1(Block block, BlockItems& items) {
  items.scales[0] = half_at(block);
  items.mins[0] = half_at(block + 2);
  read_nibbles(block + 8, items.codes);
  add_fifth_bits(block + 4, 128, items.codes);
}

void read_q8_0(Block block, BlockItems& items) {
  items.scales[0] = half_at(block);
  for (int j = 0; j < 32; ++j) items.codes[j] = block[2 + j] ^ 0x80;
}

// Item 128 n + 32 j + l has bits 2j, 2j + 1 of byte 32 n + l.
void read_pairs_of_bits(Block bytes, std::uint8_t* codes) {
  for (int i = 0; i < 256; ++i) codes[i] = bytes[i / 128 * 32 + i % 32] >> i % 128 / 32 * 2 & 3;
}

void read_q2_k(Block block, BlockItems& items) {
  const float scale = half_at(block + 80), min = half_at(block + 82);
  for (int g = 0; g < 16; ++g) {
    items.scales[g] = scale * float(block[g] & 15);
    items.mins[g] = -min * float(block[g] >> 4);
  }
  read_pairs_of_bits(block + 16, items.codes);
}

void read_q3_k(Block block, BlockItems& items) {
  const float scale = half_at(block + 108);
  const Block scales = block + 96;
  for (int g = 0; g < 16; ++g) {
    const int low = g < 8 ? scales[g] & 15 : scales[g - 8] >> 4;
    const int high = scales[8 + g % 4] >> g / 4 * 2 & 3;
    items.scales[g] = scale * float((low | high << 4) - 32);
  }
  read_pairs_of_bits(block + 32, items.codes);
  for (int i = 0; i < 256; ++i) items.codes[i] |= std::uint8_t((block[i % 32] >> i / 32 & 1) << 2);
}

// Eight 6-bit scales and minimums in 12 bytes: four whole ones each, then four whose upper two
// bits lie above the first ones.
void read_k_scales(Block block, BlockItems& items) {
  const float scale = half_at(block), min = half_at(block + 2);
  const Block packed = block + 4;
  for (int g = 0; g < 8; ++g) {
    int s, m;
    if (g < 4) {
      s = packed[g] & 63;
      m = packed[g + 4] & 63;
    } else {
      s = (packed[g + 4] & 15) | packed[g - 4] >> 6 << 4;
      m = packed[g + 4] >> 4 | packed[g] >> 6 << 4;
    }
    items.scales[g] = scale * float(s);
    items.mins[g] = -min * float(m);
  }
}

// Bytes 32 j .. hold items 64 j .. in their low nibbles, items 64 j + 32 .. in the high ones.
void read_k_nibbles(Block nibbles, std::uint8_t* codes) {
  for (int i = 0; i < 256; ++i) {
    codes[i] = nibbles[i / 64 * 32 + i % 32] >> i % 64 / 32 * 4 & 15;
  }
}

void read_q4_k(Block block, BlockItems& items) {
  read_k_scales(block, items);
  read_k_nibbles(block + 16, items.codes);
}

void read_q5_k(Block block, BlockItems& items) {
  read_k_scales(block, items);
  read_k_nibbles(block + 48, items.codes);
  for (int i = 0; i < 256; ++i) {
    items.codes[i] = std::uint8_t(items.codes[i] + (((block + 16)[i % 32] >> i / 32 & 1) << 4) + 128);
  }
}

void read_q6_k(Block block, BlockItems& items) {
  const float scale = half_at(block + 208);
  for (int g = 0; g < 16; ++g) {
    items.scales[g] = scale * float(static_cast<std::int8_t>(block[192 + g]));
  }
  for (int i = 0; i < 256; ++i) {
    const int half = i / 128, quarter = i % 128 / 32, l = i % 32;
    const int low = block[half * 64 + quarter % 2 * 32 + l] >> quarter / 2 * 4 & 15;
    const int high = block[128 + half * 32 + l] >> quarter * 2 & 3;
    items.codes[i] = std::uint8_t((low | high << 4) + (128 - 32));
  }
}

// Eight-bit codes all have the offset 128: kernels know it.
constexpr BlockType kTypes[] = {
    {kGgmlF32, "F32", 1, 4, 0, 0, 0, false, false, 0, nullptr},
    {kGgmlF16, "F16", 1, 2, 0, 0, 0, false, false, 0, nullptr},
    {2, "Q4_0", 32, 18, 4, 8, 32, true, false, 2, read_q4_0},
    {3, "Q4_1", 32, 20, 4, 0, 32, true, true, 4, read_q4_1},
    {6, "Q5_0", 32, 22, 8, 128, 32, true, false, 0, read_q5_0},
    {7, "Q5_1", 32, 24, 8, 128, 32, true, true, 0, read_q5_1},
    {8, "Q8_0", 32, 34, 8, 128, 32, true, false, 0, read_q8_0},
    {10, "Q2_K", 256, 84, 4, 0, 16, false, true, 0, read_q2_k},
    {11, "Q3_K", 256, 110, 4, 4, 16, false, false, 0, read_q3_k},
    {12, "Q4_K", 256, 144, 4, 0, 32, false, true, 0, read_q4_k},
    {13, "Q5_K", 256, 176, 8, 128, 32, false, true, 0, read_q5_k},
    {14, "Q6_K", 256, 210, 8, 128, 16, false, false, 0, read_q6_k},
    {kGgmlBf16, "BF16", 1, 2, 0, 0, 0, false, false, 0, nullptr},
};

}  // namespace

const BlockType* find_block_type(std::int32_t ggml_type) {
  for (const BlockType& type : kTypes) {
    if (type.ggml_type == ggml_type) return &type;
  }
  return nullptr;
}

}  // namespace starshade
