// Rows of bf16 activations by AMX tiles: sixteen rows x sixteen outputs x 32 inputs at a time.
// For kernels only; no C++ headers (see CMakeLists.txt).  [Intel SDM vol. 1 ch. 18, AMX]
//
// Weights of 32 outputs become bf16 once for all rows; products are summed in the tiles, so that
// nothing has to be scaled between groups.  A row's sums do not depend on the rows beside it.
#pragma once

#include "amx_tiles.h"
#include "tile_access.h"

namespace starshade {
namespace STARSHADE_ISA {
namespace {

constexpr int kStripTiles = 2;             // tiles of outputs that are unpacked together
constexpr int64_t kMostStripInputs = 576;  // of both: 36 KiB of bf16, which stay in the L1 cache
constexpr int64_t kLineBytes = 64;         // a pair of inputs of sixteen outputs
constexpr int64_t kWidenedGroupBytes = kGroup / 2 * kLineBytes;

// The weights of both tiles over up to kMostStripInputs inputs.
struct Strip {
  const uint8_t* weights[kStripTiles];
};

// Sixteen outputs' weights of two inputs, side by side.
inline void store_pair(uint8_t* to, Vec first, Vec second) {
  const __m512i order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24,
                                         8, 23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  const __m512i both = (__m512i)_mm512_cvtne2ps_pbh((__m512)second, (__m512)first);
  _mm512_store_si512(to, _mm512_permutexvar_epi16(order, both));
}

// Groups first .. end - 1 of one tile.
template <class F>
inline void widen(const PackedTiles& tiles, int64_t tile, int64_t first, int64_t end, uint8_t* to) {
  const uint8_t* data = tiles.data + tile * tiles.tile_bytes;
  for (int64_t g = first; g < end; ++g) {
    Codes codes[kVectors];
    F::prefetch(data + tiles.tile_bytes, g);
    F::unpack(data + g * F::kCodeBytes, codes);
#pragma GCC unroll 2
    for (int part = 0; part < F::kParts; ++part) {
      const Vec scale = F::scale(data + tiles.scales_at + g * F::kScaleBytes, part);
      Vec least = scale * float(-F::kOffset);
      if (F::kHasMin) least += F::scale(data + tiles.mins_at + g * F::kScaleBytes, part);
#pragma GCC unroll 8
      for (int j = part * F::kPartVectors; j < (part + 1) * F::kPartVectors; ++j) {
        const IntVec four = (IntVec)codes[j];
        const Vec a = to_floats(four & 0xff), b = to_floats(four >> 8 & 0xff);
        const Vec c = to_floats(four >> 16 & 0xff), d = to_floats(four >> 24 & 0xff);
        store_pair(to, a * scale + least, b * scale + least);
        store_pair(to + kLineBytes, c * scale + least, d * scale + least);
        to += 2 * kLineBytes;
      }
    }
  }
}

// Sums of 32 rows x 32 outputs, or of the first 16 rows alone, over `num_inputs` inputs; added to
// what is there.
template <bool BOTH>
inline void multiply_square(const uint16_t* x, int64_t x_stride, const Strip& strip,
                            int64_t num_inputs, float* out, int64_t out_stride, bool add) {
  const size_t x_bytes = size_t(x_stride) * 2, out_bytes = size_t(out_stride) * 4;
  float* const low = out + kTileRows * out_stride;
  _tile_zero(0);
  _tile_zero(1);
  if (BOTH) _tile_zero(2);
  if (BOTH) _tile_zero(3);
  if (add) {
    _tile_loadd(0, out, out_bytes);
    _tile_loadd(1, out + kLanes, out_bytes);
    if (BOTH) _tile_loadd(2, low, out_bytes);
    if (BOTH) _tile_loadd(3, low + kLanes, out_bytes);
  }
  for (int64_t k = 0; k < num_inputs; k += kGroup) {
    _tile_loadd(6, strip.weights[0] + k / 2 * kLineBytes, kLineBytes);
    _tile_stream_loadd(4, x + k, x_bytes);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, strip.weights[1] + k / 2 * kLineBytes, kLineBytes);
    _tile_dpbf16ps(1, 4, 7);
    if (!BOTH) continue;
    _tile_stream_loadd(5, x + kTileRows * x_stride + k, x_bytes);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, out, out_bytes);
  _tile_stored(1, out + kLanes, out_bytes);
  if (BOTH) _tile_stored(2, low, out_bytes);
  if (BOTH) _tile_stored(3, low + kLanes, out_bytes);
}

// A square of which `out` has only some rows and outputs, by way of `room`.
inline void multiply_edge(const uint16_t* x, int64_t x_stride, const Strip& strip,
                          int64_t num_inputs, float* out, int64_t out_stride, bool add,
                          int64_t num_rows, int64_t num_outputs, float* room) {
  const size_t bytes = size_t(num_outputs) * sizeof(float);
  for (int64_t row = 0; add && row < num_rows; ++row) {
    __builtin_memcpy(room + row * kSide, out + row * out_stride, bytes);
  }
  if (num_rows > kTileRows) {
    multiply_square<true>(x, x_stride, strip, num_inputs, room, kSide, add);
  } else {
    multiply_square<false>(x, x_stride, strip, num_inputs, room, kSide, add);
  }
  for (int64_t row = 0; row < num_rows; ++row) {
    __builtin_memcpy(out + row * out_stride, room + row * kSide, bytes);
  }
}

inline void multiply_strip(const MatmulArgs& args, int64_t tile, int64_t num_outputs,
                           const Strip& strip, int64_t first_input, int64_t num_inputs, bool add,
                           float* room) {
  const int64_t width = args.quantized.num_inputs;
  for (int64_t row = 0; row < args.num_rows; row += kSide) {
    const int64_t left = args.num_rows - row, num_rows = left < kSide ? left : kSide;
    const uint16_t* x = args.quantized.bf16 + row * width + first_input;
    float* out = args.out + row * args.out_stride + tile * kLanes;
    if (num_rows == kSide && num_outputs == kSide) {
      multiply_square<true>(x, width, strip, num_inputs, out, args.out_stride, add);
    } else {
      multiply_edge(x, width, strip, num_inputs, out, args.out_stride, add, num_rows, num_outputs,
                    room);
    }
  }
}

template <class F>
void bf16_tiles(const MatmulArgs& args) {
  alignas(64) uint8_t widened[kStripTiles][kMostStripInputs / 2 * kLineBytes];
  alignas(64) float room[kSide * kSide] = {};
  const int64_t groups = args.tiles.num_inputs / kGroup;
  const int64_t parts = (args.tiles.num_inputs + kMostStripInputs - 1) / kMostStripInputs;
  configure_squares();
  for (int64_t tile = args.first_tile; tile < args.end_tile; tile += kStripTiles) {
    const int64_t left = args.tiles.num_outputs - tile * kLanes;
    const int64_t own = (args.end_tile - tile) * kLanes, most = own < left ? own : left;
    for (int64_t part = 0; part < parts; ++part) {
      const int64_t first = groups * part / parts, end = groups * (part + 1) / parts;
      Strip strip;
      for (int t = 0; t < kStripTiles; ++t) {  // the last one twice where there is no second
        const int64_t last = args.end_tile - 1, at = tile + t < last ? tile + t : last;
        strip.weights[t] = widened[t];
        if (args.tiles.widened == nullptr) {
          widen<F>(args.tiles, at, first, end, widened[t]);
        } else {
          strip.weights[t] = args.tiles.widened + (at * groups + first) * kWidenedGroupBytes;
        }
      }
      multiply_strip(args, tile, most < kSide ? most : kSide, strip, first * kGroup,
                     (end - first) * kGroup, args.add || part > 0, room);
    }
  }
  _tile_release();
}

}  // namespace
}  // namespace STARSHADE_ISA
}  // namespace starshade
