// Packed weights x int8 or float32 activations, compiled once per instruction set.
// Lanes are outputs, so no sum crosses lanes; a group's codes are unpacked once for several rows.
#include "matmul_kernel.h"

#include "dot.h"
#include "quantize.h"
#include "tile_access.h"
#if defined(__AMX_INT8__)
#include "amx_bf16.h"
#include "amx_panel.h"
#include "amx_rotated.h"
#endif

namespace starshade {
namespace STARSHADE_ISA {
namespace {

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
      const int8_t* x[ROWS];
      int32_t x_sums[ROWS];
      IntVec dots[ROWS];
#pragma GCC unroll 8
      for (int r = 0; r < ROWS; ++r) {
        x[r] = q.codes + (row + r) * q.num_inputs + g * kGroup + part * 16;
        x_sums[r] = F::sum(q, (row + r) * groups + g, part);
      }
      F::template dots<ROWS>(codes + part * F::kPartVectors, x, x_sums, dots);
#pragma GCC unroll 8
      for (int r = 0; r < ROWS; ++r) {
        const int64_t at = (row + r) * groups + g;
        sums[r] += to_floats(dots[r]) * (scale * q.scales[at]);
        if (F::kHasMin) mins[r] += min * F::scaled_sum(q, at, part);
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < ROWS; ++r) put(args, row + r, tile, F::kHasMin ? sums[r] + mins[r] : sums[r]);
}

constexpr int64_t kMostRows = 6;  // whose sums, and a group's codes, fit the registers

// Tiles that stay in the L2 cache while all rows pass over them, a few at a time.
constexpr int64_t kBlockBytes = 384 * 1024;

template <class F, int ROWS>
inline void int8_block(const MatmulArgs& args, int64_t first, int64_t end, int64_t row) {
  for (int64_t tile = first; tile < end; ++tile) int8_tile<F, ROWS>(args, tile, row);
}

template <class F>
void int8_tiles(const MatmulArgs& args) {
#if defined(__AMX_INT8__)
  if (args.num_rows >= kFewestPanelRows && args.tiles.num_inputs <= kMostPanelInputs) {
    return panel_tiles<F>(args);
  }
#endif
  const int64_t fitting = kBlockBytes / args.tiles.tile_bytes, block = fitting < 1 ? 1 : fitting;
  for (int64_t first = args.first_tile; first < args.end_tile; first += block) {
    const int64_t end = first + block < args.end_tile ? first + block : args.end_tile;
    int64_t row = 0;
    for (; args.num_rows - row > kMostRows; row += 4) int8_block<F, 4>(args, first, end, row);
    switch (args.num_rows - row) {
      case 6: int8_block<F, 6>(args, first, end, row); break;
      case 5: int8_block<F, 5>(args, first, end, row); break;
      case 4: int8_block<F, 4>(args, first, end, row); break;
      case 3: int8_block<F, 3>(args, first, end, row); break;
      case 2: int8_block<F, 2>(args, first, end, row); break;
      case 1: int8_block<F, 1>(args, first, end, row); break;
    }
  }
}

// Calls work(Format<...>{}).
template <class Work>
inline void by_format(int32_t format, const Work& work) {
  switch (format) {
    case kQ4Half: return work(Format<kQ4Half>{});
    case kQ4HalfMin: return work(Format<kQ4HalfMin>{});
    case kQ4FloatMin: return work(Format<kQ4FloatMin>{});
    case kQ4Float16: return work(Format<kQ4Float16>{});
    case kQ4Float16Min: return work(Format<kQ4Float16Min>{});
    case kQ8Half: return work(Format<kQ8Half>{});
    case kQ8HalfMin: return work(Format<kQ8HalfMin>{});
    case kQ8FloatMin: return work(Format<kQ8FloatMin>{});
    case kQ8Float16: return work(Format<kQ8Float16>{});
  }
}

void multiply_int8(const MatmulArgs& args) {
  by_format(args.tiles.format, [&](auto format) { int8_tiles<decltype(format)>(args); });
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
  if (!is_integer(tiles.format)) return expand_numbers(tiles, data, first, end, to);
  by_format(tiles.format,
            [&](auto format) { expand<decltype(format)>(tiles, data, first, end, to); });
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

#if defined(__AMX_INT8__)
void multiply_bf16(const MatmulArgs& args) {
  by_format(args.tiles.format, [&](auto format) { bf16_tiles<decltype(format)>(args); });
}

void rotate_row(const float* x, const QuantizedRows& q, int64_t row) {
  rotate_row(x, q.num_inputs, q.rotated, row);
}

void rotate_rounded(const QuantizedRows& q, int64_t row) {
  rotate_rounded_row(q.bf16 + row * q.num_inputs, q.num_inputs, q.rotated, row);
}

// To the nearest, ties to even.
void round_row(const float* x, const QuantizedRows& q, int64_t row) {
  uint16_t* to = q.bf16 + row * q.num_inputs;
  for (int64_t k = 0; k < q.num_inputs; k += kGroup) {
    const __m512 low = (__m512)load(x + k), high = (__m512)load(x + k + kLanes);
    _mm512_storeu_si512(to + k, (__m512i)_mm512_cvtne2ps_pbh(high, low));
  }
}

void widen_tile(const PackedTiles& tiles, int64_t tile, uint8_t* to) {
  by_format(tiles.format, [&](auto format) {
    widen<decltype(format)>(tiles, tile, 0, tiles.num_inputs / kGroup, to);
  });
}

void rotate_tile(const PackedTiles& tiles, int64_t tile, const RotatedTiles& to) {
  alignas(64) float weights[kMostPartInputs * kLanes];
  const int64_t width = to.num_inputs, parts = rotated_parts(width);
  for (int64_t part = 0; part < parts; ++part) {
    const int64_t first = rotated_part(width, part), next = rotated_part(width, part + 1);
    const int64_t end = next < tiles.num_inputs ? next : tiles.num_inputs;
    expand_tile(tiles, tiles.data + tile * tiles.tile_bytes, first, end, weights);
    memset(weights + (end - first) * kLanes, 0, size_t(next - end) * kLanes * sizeof(float));
    for (int64_t k = 0; k < next - first; k += kRotated) rotate_inputs(weights + k * kLanes);
    put_rotated(weights, next - first, to.codes + (tile * width + first) * kLanes,
                to.scales + (tile * parts + part) * kLanes);
  }
}
#endif

}  // namespace

MatmulKernels matmul_kernels() {
  MatmulKernels kernels{};
  kernels.quantize_row = quantize_row;
  kernels.multiply_int8 = multiply_int8;
  kernels.multiply_f32 = multiply_f32;
#if defined(__AMX_INT8__)
  kernels.round_row = round_row;
  kernels.multiply_bf16 = multiply_bf16;
  kernels.rotate_row = rotate_row;
  kernels.multiply_rotated = multiply_rotated;
  kernels.rotate_rounded = rotate_rounded;
  kernels.widen_tile = widen_tile;
  kernels.rotate_tile = rotate_tile;
#endif
  return kernels;
}

}  // namespace STARSHADE_ISA
}  // namespace starshade
