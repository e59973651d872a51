// Matrix products inside one SPMD step: y = x W^T, W packed, x int8 or float32.
//
// Every thread of the pool runs the same code (ThreadPool::run_all).  Around a product:
//
//   for (row = thread; row < rows; row += num_threads) isa.matmul.quantize_row(x_row, q, row);
//   pool.barrier();                                          // q is complete
//   multiply_narrow(isa.matmul, Form::groups, matrix, q, rows,
//                   share(matrix.num_tiles(), thread, num_threads), out, out_stride,
//                   Epilogue::store);
//   pool.barrier();                                          // out is complete
//
// A thread writes only the outputs of its own tiles; `x`, `q` and `out` belong to the caller and
// do not overlap.  Any TileRange is allowed: with gate and up stacked in one matrix a thread takes
// the same share of both halves and needs no barrier before their product.  No kernel allocates,
// throws or waits.  A row's result does not depend on the other rows nor on how many there are.
#pragma once

#include <cstdint>

#include "aligned.h"
#include "matmul_kernel.h"
#include "matrix.h"

namespace starshade {

struct TileRange {
  std::int64_t first, end;
};

// The thread's part of num_tiles, about equal ones.
TileRange share(std::int64_t num_tiles, std::size_t thread, std::size_t num_threads);

// Room for quantized rows, for any width up to max_cols.
class QuantizedBuffer {
 public:
  QuantizedBuffer(std::int64_t max_rows, std::int64_t max_cols);
  // A view for rows of num_cols (a multiple of 32); views of one buffer overlap.
  QuantizedRows rows(std::int64_t num_cols);

 private:
  LineVector<std::int8_t> codes_;
  LineVector<float> scales_, scaled_sums_;
  LineVector<std::int32_t> sums_, half_sums_;
  LineVector<std::uint16_t> bf16_;
  LineVector<std::int8_t> rotated_;
  LineVector<float> rotated_scales_;
};

// Of activations: int8 with a scale for each group, rounded to bf16, int8 rotated, or as they are.
enum class Form { groups, bf16, rotated, f32 };
// What rounds one row to this form, but for f32.
QuantizeRow rounding(const MatmulKernels& kernels, Form form);

enum class Epilogue { store, add };  // add: to what out holds (the residual stream)

// x: quantized for matrix.num_cols(); matrix.takes_int8().  out: num_rows rows of num_rows()
// floats, out_stride floats apart.
// Other forms than groups only where the kernels have them, rotated if matrix.takes_rotated().
void multiply_narrow(const MatmulKernels& kernels, Form form, const Matrix& matrix,
                     const QuantizedRows& x, std::int64_t num_rows, TileRange tiles, float* out,
                     std::int64_t out_stride, Epilogue epilogue);

// x: num_rows rows of num_cols() floats, x_stride floats apart.  Any matrix.
void multiply_f32(const MatmulKernels& kernels, const Matrix& matrix, const float* x,
                  std::int64_t x_stride, std::int64_t num_rows, TileRange tiles, float* out,
                  std::int64_t out_stride, Epilogue epilogue);

}  // namespace starshade
