// What does a thread's share of a matrix product compute?  The contract between dispatch and the
// ISA objects, and the layout of packed weights.
#pragma once

#include <stdint.h>

namespace starshade {

constexpr int kTileOutputs = 16;  // outputs (rows of the weight matrix) per tile, one per lane
constexpr int kGroup = 32;        // inputs per group: integer codes share scales within one

// How the weights of a matrix are stored.  Integers: output = scale * (code - offset) + min,
// scales and minimums per output and group of 32, or half group of 16.
enum WeightFormat : int32_t {
  kQ4Half,     // 4-bit codes, half scales (Q4_0)
  kQ4HalfMin,  // and half minimums (Q4_1)
  kQ4FloatMin,   // float32 scales and minimums (Q4_K)
  kQ4Float16,    // float32 scales per 16 inputs (Q3_K)
  kQ4Float16Min,  // (Q2_K)
  kQ8Half,     // 8-bit codes, offset 128 (Q8_0, Q5_0)
  kQ8HalfMin,  // (Q5_1)
  kQ8FloatMin,   // (Q5_K)
  kQ8Float16,    // (Q6_K)
  kHalf, kBfloat16, kFloat,  // plain numbers
};

constexpr bool is_integer(int32_t format) { return format < kHalf; }

// A tile is: codes of its groups in order; then scales; then minimums, each part 64-byte aligned.
// Codes of a group, 4 bits: four 64-byte vectors; byte 4 i + b of vector j has input 4 j + b of
// output i in its low nibble and input 16 + 4 j + b in the high one.  8 bits: eight vectors, input
// 4 j + b.  Scales of a group: one per output, then one per output for the second half group.
// Plain numbers: input k of the 16 outputs side by side; no groups, any number of inputs.
struct PackedTiles {
  const uint8_t* data;
  int64_t tile_bytes, scales_at, mins_at;
  int64_t num_outputs, num_inputs;
  int32_t format, offset;
  // The same as bf16, by tile: a line of two inputs of the 16 outputs after the other. Null where they
  // are widened in every product.
  uint8_t* widened;
};

// Inputs that are rotated together; rotated rows have so many or a multiple, zeros at the end.
constexpr int kRotated = 64;
constexpr int64_t kMostPartInputs = 576;  // that share a scale

constexpr int64_t rotated_width(int64_t num_inputs) {
  return (num_inputs + kRotated - 1) / kRotated * kRotated;
}
constexpr int64_t rotated_parts(int64_t width) {
  return (width + kMostPartInputs - 1) / kMostPartInputs;
}
// The first input of a part: nearly equal ones.
constexpr int64_t rotated_part(int64_t width, int64_t part) {
  return width / kRotated * part / rotated_parts(width) * kRotated;
}

// Rows of rotated activations: scale * code per part.  31 more rows of codes can be read.
struct RotatedRows {
  int8_t* codes;       // (rows, width)
  float* scales;       // (rows, parts)
  int64_t num_inputs;  // the width, a multiple of 64

  RotatedRows from_row(int64_t row) const {
    return {codes + row * num_inputs, scales + row * rotated_parts(num_inputs), num_inputs};
  }
};

// Rotated weights: codes by tile, four inputs of the 16 outputs to a line; scales by tile and part.
struct RotatedTiles {
  int8_t* codes;
  float* scales;
  int64_t num_outputs, num_inputs;  // the width
};

// Rows of activations as int8: x = scale * code per group of 32 inputs, code in -127 .. 127.
struct QuantizedRows {
  int8_t* codes;       // (rows, inputs)
  float* scales;       // (rows, groups)
  float* scaled_sums;  // scale * sum of the group's codes
  int32_t* sums;       // of the group's codes
  int32_t* half_sums;  // of the first 16
  uint16_t* bf16;      // (rows, inputs): rounded instead; 31 more can be read
  int64_t num_inputs;
  RotatedRows rotated;  // the rows in another form

  // The same from a later group on, counted through all rows; but for rotated rows.
  QuantizedRows from_group(int64_t group) const {
    return {codes + group * kGroup, scales + group,    scaled_sums + group,
            sums + group,           half_sums + group, bf16 + group * kGroup, num_inputs, {}};
  }
  QuantizedRows from_row(int64_t row) const {
    QuantizedRows rows = from_group(row * (num_inputs / kGroup));
    rows.rotated = rotated.from_row(row);
    return rows;
  }
};

// Outputs of tiles first_tile .. end_tile - 1 for all rows: out[row * out_stride + output].
struct MatmulArgs {
  PackedTiles tiles;
  QuantizedRows quantized;  // for multiply_int8
  const float* x;           // for multiply_f32: rows x_stride floats apart
  int64_t x_stride;
  int64_t num_rows, first_tile, end_tile;
  float* out;
  int64_t out_stride;
  bool add;  // to what out holds, instead of storing
};

struct RotatedArgs {
  RotatedTiles tiles;
  RotatedRows x;
  int64_t num_rows, first_tile, end_tile;
  float* out;
  int64_t out_stride;
  bool add;
};

// One row of num_inputs (a multiple of 32) floats into row `row`, as codes or otherwise.
using QuantizeRow = void (*)(const float* x, const QuantizedRows&, int64_t row);
using Multiply = void (*)(const MatmulArgs&);

struct MatmulKernels {
  QuantizeRow quantize_row;
  Multiply multiply_int8;  // integer formats only
  Multiply multiply_f32;   // every format
  // Integer formats and rows rounded to bf16, or rotated rows and weights; null where nothing
  // multiplies them faster.
  QuantizeRow round_row;
  Multiply multiply_bf16;
  QuantizeRow rotate_row;
  void (*multiply_rotated)(const RotatedArgs&);
  void (*rotate_rounded)(const QuantizedRows&, int64_t row);  // from its bf16
  // One tile of an integer format.
  void (*widen_tile)(const PackedTiles&, int64_t tile, uint8_t* to);
  void (*rotate_tile)(const PackedTiles&, int64_t tile, const RotatedTiles& to);
};

namespace portable { MatmulKernels matmul_kernels(); }
namespace avx2 { MatmulKernels matmul_kernels(); }
namespace avx512 { MatmulKernels matmul_kernels(); }
namespace avx512vnni { MatmulKernels matmul_kernels(); }
namespace avx512amx { MatmulKernels matmul_kernels(); }

}  // namespace starshade
