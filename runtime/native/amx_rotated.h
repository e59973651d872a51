// Rows of rotated int8 by AMX tiles: sixteen rows x sixteen outputs x 64 inputs at a time.
// For kernels only; no C++ headers (see CMakeLists.txt).  [Intel SDM vol. 1 ch. 18, AMX]
//
// Products of a part are exact integers, summed in the tiles and scaled once: a row's result does not
// depend on the rows beside it.
#pragma once

#include "amx_tiles.h"
#include "rotate.h"
#include "tile_access.h"

namespace starshade {
namespace STARSHADE_ISA {
namespace {

// A square's products, whose rows are scaled and stored one by one.
struct alignas(64) Square {
  int32_t sums[kSide * kSide];
  const float *row_scales, *first_scales, *second_scales;
  int64_t scale_stride, num_rows, num_outputs;
  float* out;  // of the next row's first output
  int64_t out_stride, next_row;
  bool add;

  inline void store_row() {
    const int32_t* from = sums + next_row * kSide;
    const float scale = row_scales[next_row++ * scale_stride];
    const Vec low = to_floats((IntVec)_mm512_load_si512(from)) * (load(first_scales) * scale);
    const Vec high =
        to_floats((IntVec)_mm512_load_si512(from + kLanes)) * (load(second_scales) * scale);
    float* const to = out;
    out += out_stride;
    put_vector(to, low, num_outputs, add);
    if (num_outputs > kLanes) put_vector(to + kLanes, high, num_outputs - kLanes, add);
  }
  inline void store_rows(int64_t count) {
    while (count-- > 0 && next_row < num_rows) store_row();
  }
};

// Sums of 32 rows x 32 outputs, or of the first 16 rows alone. Meanwhile the vector units, which
// would be idle, store the square before.
template <bool BOTH>
inline void multiply_square(const int8_t* x, int64_t stride, const int8_t* first,
                            const int8_t* second, int64_t num_inputs, int32_t* sums,
                            Square& before) {
  constexpr size_t kBytes = kSide * sizeof(int32_t);
  const int64_t rows = (kSide * kRotated + num_inputs - 1) / num_inputs;  // for each step
  _tile_zero(0);
  _tile_zero(1);
  if (BOTH) _tile_zero(2);
  if (BOTH) _tile_zero(3);
  for (int64_t k = 0; k < num_inputs; k += kRotated) {
    _tile_loadd(6, first + k * kLanes, 64);
    _tile_stream_loadd(4, x + k, size_t(stride));
    _tile_dpbssd(0, 4, 6);
    _tile_loadd(7, second + k * kLanes, 64);
    _tile_dpbssd(1, 4, 7);
    if (BOTH) {
      _tile_stream_loadd(5, x + kTileRows * stride + k, size_t(stride));
      _tile_dpbssd(2, 5, 6);
      _tile_dpbssd(3, 5, 7);
    }
    before.store_rows(rows);
  }
  _tile_stored(0, sums, kBytes);
  _tile_stored(1, sums + kLanes, kBytes);
  if (BOTH) _tile_stored(2, sums + kTileRows * kSide, kBytes);
  if (BOTH) _tile_stored(3, sums + kTileRows * kSide + kLanes, kBytes);
}

void multiply_rotated(const RotatedArgs& args) {
  const RotatedTiles& weights = args.tiles;
  const int64_t width = weights.num_inputs, parts = rotated_parts(width);
  Square squares[2];
  squares[0].num_rows = squares[0].next_row = squares[1].num_rows = squares[1].next_row = 0;
  int turn = 0;
  configure_squares();
  for (int64_t tile = args.first_tile; tile < args.end_tile; tile += 2) {
    const bool both = tile + 1 < args.end_tile;  // else the one twice
    const int64_t left = weights.num_outputs - tile * kLanes, own = both ? kSide : kLanes;
    for (int64_t part = 0; part < parts; ++part) {
      const int64_t first = rotated_part(width, part);
      const int64_t num_inputs = rotated_part(width, part + 1) - first;
      const int8_t* codes = weights.codes + (tile * width + first) * kLanes;
      const int8_t* next = both ? codes + width * kLanes : codes;
      const float* scales = weights.scales + (tile * parts + part) * kLanes;
      for (int64_t row = 0; row < args.num_rows; row += kSide, turn = 1 - turn) {
        Square &square = squares[turn], &before = squares[1 - turn];
        const int64_t rows_left = args.num_rows - row;
        square.row_scales = args.x.scales + row * parts + part;
        square.first_scales = scales;
        square.second_scales = both ? scales + parts * kLanes : scales;
        square.scale_stride = parts;
        square.num_rows = rows_left < kSide ? rows_left : kSide;
        square.num_outputs = own < left ? own : left;
        square.out = args.out + row * args.out_stride + tile * kLanes;
        square.out_stride = args.out_stride;
        square.next_row = 0;
        square.add = args.add || part > 0;
        const int8_t* x = args.x.codes + row * width + first;
        if (square.num_rows > kTileRows) {
          multiply_square<true>(x, width, codes, next, num_inputs, square.sums, before);
        } else {
          multiply_square<false>(x, width, codes, next, num_inputs, square.sums, before);
        }
      }
    }
  }
  squares[1 - turn].store_rows(kSide);
  _tile_release();
}

}  // namespace
}  // namespace STARSHADE_ISA
}  // namespace starshade
