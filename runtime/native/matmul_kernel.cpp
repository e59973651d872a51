// Packed weights x int8 or float32 activations, compiled once per instruction set.
// Lanes are outputs, so no sum crosses lanes; a group's codes are unpacked once for several rows.
#include "matmul_kernel.h"

#include "dot.h"
#include "quantize.h"

namespace starshade {
namespace STARSHADE_ISA {
namespace {

constexpr int kVectors = 8;  // vectors of codes per group

// What the compiler must know of a format to unroll it.
template <int32_t FORMAT>
struct Format {
  static constexpr bool kFourBits = FORMAT < kQ8Half;
  static constexpr bool kHalfScales = FORMAT == kQ4Half || FORMAT == kQ4HalfMin ||
                                      FORMAT == kQ8Half || FORMAT == kQ8HalfMin;
  static constexpr bool kHasMin = FORMAT == kQ4HalfMin || FORMAT == kQ4FloatMin ||
                                  FORMAT == kQ4Float16Min || FORMAT == kQ8HalfMin ||
                                  FORMAT == kQ8FloatMin;
  static constexpr int kOffset = !kFourBits            ? 128
                                 : FORMAT == kQ4Half    ? 8
                                 : FORMAT == kQ4Float16 ? 4
                                                        : 0;
  static constexpr int kParts =  // scales per group
      FORMAT == kQ4Float16 || FORMAT == kQ4Float16Min || FORMAT == kQ8Float16 ? 2 : 1;
  static constexpr int kPartVectors = kVectors / kParts;
  static constexpr int64_t kCodeBytes = kFourBits ? 256 : 512;
  static constexpr int64_t kScaleBytes = kParts * kLanes * (kHalfScales ? 2 : 4);

  static constexpr int64_t kGroupBytes = kCodeBytes + kScaleBytes * (kHasMin ? 2 : 1);

  // The part of the next tile that lies as far in it as group g in this one, to be there in time.
  static inline void prefetch(const uint8_t* tile, int64_t g) {
#pragma GCC unroll 16
    for (int64_t at = 0; at < kGroupBytes; at += 64) {
      __builtin_prefetch(tile + g * kGroupBytes + at);
    }
  }

  static inline void unpack(const uint8_t* from, Codes* codes) {
    for (int j = 0; j < kVectors; ++j) {
      if (!kFourBits) {
        codes[j] = load_codes(from + 64 * j);
      } else if (j < 4) {
        const Codes pairs = load_codes(from + 64 * j);
        codes[j] = low_nibbles(pairs);
        codes[j + 4] = high_nibbles(pairs);
      }
    }
  }

  static inline Vec scale(const uint8_t* from, int part) {
    if (kHalfScales) return load_halves(from);
    return load(reinterpret_cast<const float*>(from) + part * kLanes);
  }

  static inline IntVec dot(const Codes* codes, const int8_t* x, const int32_t& sum) {
    if constexpr (kFourBits) return dot_4bit<kPartVectors, kOffset>(codes, x, sum);
    return dot_8bit<kPartVectors>(codes, x, sum);
  }
};

inline void put(const MatmulArgs& args, int64_t row, int64_t tile, Vec values) {
  float* to = args.out + row * args.out_stride + tile * kLanes;
  const int64_t left = args.tiles.num_outputs - tile * kLanes;
  if (left >= kLanes) {
    store(to, args.add ? load(to) + values : values);
    return;
  }
  for (int64_t lane = 0; lane < left; ++lane) {
    to[lane] = args.add ? to[lane] + values[lane] : values[lane];
  }
}

// One tile for ROWS rows.  Scaled codes and minimums are summed apart, each in group order: a
// row's result is the same whatever ROWS is.
template <class F, int ROWS>
inline void int8_tile(const MatmulArgs& args, int64_t tile, int64_t row) {
  const PackedTiles& tiles = args.tiles;
  const QuantizedRows& q = args.quantized;
  const uint8_t* data = tiles.data + tile * tiles.tile_bytes;
  const uint8_t* next = data + tiles.tile_bytes;
  const int64_t groups = tiles.num_inputs / kGroup;
  Vec sums[ROWS] = {}, mins[ROWS] = {};
  for (int64_t g = 0; g < groups; ++g) {
    Codes codes[kVectors];
    F::prefetch(next, g);
    F::unpack(data + g * F::kCodeBytes, codes);
    for (int part = 0; part < F::kParts; ++part) {
      const Vec scale = F::scale(data + tiles.scales_at + g * F::kScaleBytes, part);
      const Vec min =
          F::kHasMin ? F::scale(data + tiles.mins_at + g * F::kScaleBytes, part) : Vec{};
#pragma GCC unroll 8
      for (int r = 0; r < ROWS; ++r) {
        const int64_t at = (row + r) * groups + g;
        const int32_t sum = F::kParts == 1 ? q.sums[at]
                            : part == 0    ? q.half_sums[at]
                                           : q.sums[at] - q.half_sums[at];
        const int8_t* x = q.codes + (row + r) * q.num_inputs + g * kGroup + part * 16;
        const IntVec dots = F::dot(codes + part * F::kPartVectors, x, sum);
        sums[r] += to_floats(dots) * (scale * q.scales[at]);
        if (F::kHasMin) {
          mins[r] += min * (F::kParts == 1 ? q.scaled_sums[at] : q.scales[at] * float(sum));
        }
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < ROWS; ++r) put(args, row + r, tile, F::kHasMin ? sums[r] + mins[r] : sums[r]);
}

// Tiles that stay in the L2 cache while all rows pass over them, a few at a time.
constexpr int64_t kBlockBytes = 384 * 1024;

template <class F, int ROWS>
inline void int8_block(const MatmulArgs& args, int64_t first, int64_t end, int64_t row) {
  for (int64_t tile = first; tile < end; ++tile) int8_tile<F, ROWS>(args, tile, row);
}

template <class F>
void int8_tiles(const MatmulArgs& args) {
  const int64_t fitting = kBlockBytes / args.tiles.tile_bytes, block = fitting < 1 ? 1 : fitting;
  for (int64_t first = args.first_tile; first < args.end_tile; first += block) {
    const int64_t end = first + block < args.end_tile ? first + block : args.end_tile;
    int64_t row = 0;
    for (; row + 8 <= args.num_rows; row += 8) int8_block<F, 8>(args, first, end, row);
    for (; row + 4 <= args.num_rows; row += 4) int8_block<F, 4>(args, first, end, row);
    for (; row < args.num_rows; ++row) int8_block<F, 1>(args, first, end, row);
  }
}

void multiply_int8(const MatmulArgs& args) {
  switch (args.tiles.format) {
    case kQ4Half: return int8_tiles<Format<kQ4Half>>(args);
    case kQ4HalfMin: return int8_tiles<Format<kQ4HalfMin>>(args);
    case kQ4FloatMin: return int8_tiles<Format<kQ4FloatMin>>(args);
    case kQ4Float16: return int8_tiles<Format<kQ4Float16>>(args);
    case kQ4Float16Min: return int8_tiles<Format<kQ4Float16Min>>(args);
    case kQ8Half: return int8_tiles<Format<kQ8Half>>(args);
    case kQ8HalfMin: return int8_tiles<Format<kQ8HalfMin>>(args);
    case kQ8FloatMin: return int8_tiles<Format<kQ8FloatMin>>(args);
    case kQ8Float16: return int8_tiles<Format<kQ8Float16>>(args);
  }
}

// Float32 activations: weights of kChunk inputs become floats, then all rows pass over them.
constexpr int64_t kChunk = 512;  // 32 KiB of floats

template <class F>
inline void expand_group(const PackedTiles& tiles, const uint8_t* data, int64_t g, float* to) {
  Codes codes[kVectors];
  F::unpack(data + g * F::kCodeBytes, codes);
  for (int part = 0; part < F::kParts; ++part) {
    const Vec scale = F::scale(data + tiles.scales_at + g * F::kScaleBytes, part);
    const Vec min = F::kHasMin ? F::scale(data + tiles.mins_at + g * F::kScaleBytes, part) : Vec{};
    for (int j = part * F::kPartVectors; j < (part + 1) * F::kPartVectors; ++j) {
      const IntVec four_codes = (IntVec)codes[j];
      for (int b = 0; b < 4; ++b) {
        const IntVec code = (four_codes >> (8 * b) & 0xff) - F::kOffset;
        store(to + (4 * j + b) * kLanes, to_floats(code) * scale + min);
      }
    }
  }
}

template <class F>
void expand(const PackedTiles& tiles, const uint8_t* data, int64_t first, int64_t end, float* to) {
  for (int64_t g = first / kGroup; g < end / kGroup; ++g, to += kGroup * kLanes) {
    expand_group<F>(tiles, data, g, to);
  }
}

void expand_numbers(const PackedTiles& tiles, const uint8_t* data, int64_t first, int64_t end,
                    float* to) {
  for (int64_t k = first; k < end; ++k, to += kLanes) {
    if (tiles.format == kFloat) {
      store(to, load(reinterpret_cast<const float*>(data) + k * kLanes));
    } else if (tiles.format == kHalf) {
      store(to, load_halves(data + k * kLanes * 2));
    } else {
      uint16_t upper[kLanes];
      memcpy(upper, data + k * kLanes * 2, sizeof upper);
      IntVec bits = {};
      for (int lane = 0; lane < kLanes; ++lane) bits[lane] = int32_t(uint32_t(upper[lane]) << 16);
      store(to, (Vec)bits);
    }
  }
}

// Inputs first .. end - 1 of a tile as (end - first, 16) floats.
void expand_tile(const PackedTiles& tiles, const uint8_t* data, int64_t first, int64_t end,
                 float* to) {
  switch (tiles.format) {
    case kQ4Half: return expand<Format<kQ4Half>>(tiles, data, first, end, to);
    case kQ4HalfMin: return expand<Format<kQ4HalfMin>>(tiles, data, first, end, to);
    case kQ4FloatMin: return expand<Format<kQ4FloatMin>>(tiles, data, first, end, to);
    case kQ4Float16: return expand<Format<kQ4Float16>>(tiles, data, first, end, to);
    case kQ4Float16Min: return expand<Format<kQ4Float16Min>>(tiles, data, first, end, to);
    case kQ8Half: return expand<Format<kQ8Half>>(tiles, data, first, end, to);
    case kQ8HalfMin: return expand<Format<kQ8HalfMin>>(tiles, data, first, end, to);
    case kQ8FloatMin: return expand<Format<kQ8FloatMin>>(tiles, data, first, end, to);
    case kQ8Float16: return expand<Format<kQ8Float16>>(tiles, data, first, end, to);
    default: return expand_numbers(tiles, data, first, end, to);
  }
}

template <int ROWS>
inline void f32_rows(const MatmulArgs& args, int64_t tile, int64_t row, int64_t first, int64_t end,
                     const float* weights) {
  const float* x = args.x + row * args.x_stride + first;
  Vec sums[ROWS] = {};
  for (int64_t k = 0; k < end - first; ++k) {
    const Vec w = load(weights + k * kLanes);
    for (int r = 0; r < ROWS; ++r) sums[r] += w * x[r * args.x_stride + k];
  }
  for (int r = 0; r < ROWS; ++r) put(args, row + r, tile, sums[r]);
}

void multiply_f32(const MatmulArgs& whole) {
  alignas(64) float weights[kChunk * kLanes];
  const PackedTiles& tiles = whole.tiles;
  for (int64_t tile = whole.first_tile; tile < whole.end_tile; ++tile) {
    MatmulArgs args = whole;
    for (int64_t first = 0; first < tiles.num_inputs; first += kChunk, args.add = true) {
      const int64_t end =
          first + kChunk < tiles.num_inputs ? first + kChunk : tiles.num_inputs;
      expand_tile(tiles, tiles.data + tile * tiles.tile_bytes, first, end, weights);
      int64_t row = 0;
      for (; row + 8 <= args.num_rows; row += 8) f32_rows<8>(args, tile, row, first, end, weights);
      for (; row + 4 <= args.num_rows; row += 4) f32_rows<4>(args, tile, row, first, end, weights);
      for (; row < args.num_rows; ++row) f32_rows<1>(args, tile, row, first, end, weights);
    }
  }
}

void quantize_row(const float* x, const QuantizedRows& q, int64_t row) {
  const int64_t groups = q.num_inputs / kGroup;
  for (int64_t g = 0; g < groups; ++g) {
    const Vec low = load(x + g * kGroup), high = load(x + g * kGroup + kLanes);
    const float most = largest_size(low, high);
    const float inverse = most > 0 ? 127.0f / most : 0.0f;
    const int64_t at = row * groups + g;
    int8_t* codes = q.codes + row * q.num_inputs + g * kGroup;
    put_codes(low * inverse, high * inverse, codes, q.half_sums[at], q.sums[at]);
    q.scales[at] = most / 127.0f;
    q.scaled_sums[at] = q.scales[at] * float(q.sums[at]);
  }
}

}  // namespace

MatmulKernels matmul_kernels() { return {quantize_row, multiply_int8, multiply_f32}; }

}  // namespace STARSHADE_ISA
}  // namespace starshade
