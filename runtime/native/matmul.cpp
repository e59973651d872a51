#include "matmul.h"

namespace starshade {
namespace {

constexpr std::int64_t kRowsBeyond = 31;  // that tiles may read

}  // namespace

TileRange share(std::int64_t num_tiles, std::size_t thread, std::size_t num_threads) {
  const auto part = std::int64_t(thread), parts = std::int64_t(num_threads);
  return {num_tiles * part / parts, num_tiles * (part + 1) / parts};
}

QuantizedBuffer::QuantizedBuffer(std::int64_t max_rows, std::int64_t max_cols)
    : codes_(std::size_t(max_rows * max_cols) + 64) {
  const auto groups = std::size_t(max_rows * (max_cols / kGroup));
  scales_.resize(groups);
  scaled_sums_.resize(groups);
  sums_.resize(groups);
  half_sums_.resize(groups);
  bf16_.resize(std::size_t((max_rows + kRowsBeyond) * max_cols));
  const std::int64_t width = rotated_width(max_cols);
  rotated_.resize(std::size_t((max_rows + kRowsBeyond) * width));
  rotated_scales_.resize(std::size_t(max_rows * rotated_parts(width)));
}

QuantizedRows QuantizedBuffer::rows(std::int64_t num_cols) {
  const RotatedRows rotated{rotated_.data(), rotated_scales_.data(), rotated_width(num_cols)};
  return {codes_.data(),     scales_.data(), scaled_sums_.data(), sums_.data(),
          half_sums_.data(), bf16_.data(),   num_cols,            rotated};
}

QuantizeRow rounding(const MatmulKernels& kernels, Form form) {
  if (form == Form::rotated) return kernels.rotate_row;
  return form == Form::bf16 ? kernels.round_row : kernels.quantize_row;
}

void multiply_narrow(const MatmulKernels& kernels, Form form, const Matrix& matrix,
                     const QuantizedRows& x, std::int64_t num_rows, TileRange tiles, float* out,
                     std::int64_t out_stride, Epilogue epilogue) {
  const bool add = epilogue == Epilogue::add;
  if (form == Form::rotated) {
    kernels.multiply_rotated({matrix.rotated(), x.rotated, num_rows, tiles.first, tiles.end, out,
                              out_stride, add});
    return;
  }
  const Multiply multiply = form == Form::bf16 ? kernels.multiply_bf16 : kernels.multiply_int8;
  multiply({matrix.tiles(), x, nullptr, 0, num_rows, tiles.first, tiles.end, out, out_stride, add});
}

void multiply_f32(const MatmulKernels& kernels, const Matrix& matrix, const float* x,
                  std::int64_t x_stride, std::int64_t num_rows, TileRange tiles, float* out,
                  std::int64_t out_stride, Epilogue epilogue) {
  kernels.multiply_f32({matrix.tiles(), {}, x, x_stride, num_rows, tiles.first, tiles.end, out,
                        out_stride, epilogue == Epilogue::add});
}

}  // namespace starshade
