// How do tests and benchmarks call packed matrices from Python?  The GIL is released.
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <tuple>
#include <vector>

#include "bind.h"
#include "cpu.h"
#include "matmul.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace starshade {
namespace {

using Bytes = Array<const std::uint8_t, 1>;
using Part = std::tuple<std::int32_t, Bytes, std::int64_t>;  // ggml type, data, rows

constexpr std::int64_t kMaxTimedRows = 4096;
constexpr int kMaxPasses = 10'000;

Matrix stack(Cpu& cpu, const std::vector<Part>& parts, std::int64_t num_cols) {
  std::vector<MatrixPart> sources;
  for (const auto& [type, data, num_rows] : parts) {
    sources.push_back({type, data.data(), data.size(), num_rows});
  }
  nb::gil_scoped_release released;
  return Matrix::pack(cpu.arena, cpu.threads, sources, num_cols);
}

Matrix pack(Cpu& cpu, std::int32_t ggml_type, Bytes data, std::int64_t num_rows,
            std::int64_t num_cols) {
  return stack(cpu, {{ggml_type, data, num_rows}}, num_cols);
}

void rotate(Matrix& matrix, Cpu& cpu) {
  nb::gil_scoped_release released;
  matrix.rotate(cpu.isa.matmul, cpu.arena, cpu.threads);
}

void widen(Matrix& matrix, Cpu& cpu) {
  nb::gil_scoped_release released;
  matrix.widen(cpu.isa.matmul, cpu.arena, cpu.threads);
}

void dequantize_row(const Matrix& matrix, std::int64_t row, Array<float, 1> out) {
  require(row >= 0 && row < matrix.num_rows(), "the row is out of range");
  require(std::int64_t(out.shape(0)) == matrix.num_cols(), "out has another width");
  matrix.dequantize_row(row, out.data());
}

// How `mode` multiplies: float32 rows, or others in some form.
struct Mode {
  bool is_f32 = true;
  Form form = Form::groups;
};

Mode mode_named(const std::string& name, const Matrix& matrix, const Cpu& cpu) {
  if (name == "f32") return {};
  require(name == "int8" || name == "bf16" || name == "rotated", "mode is int8, bf16, rotated or f32");
  require(matrix.takes_int8(), "only packed integers take other activations than float32");
  if (name == "int8") return {false, Form::groups};
  if (name == "bf16") {
    require(cpu.isa.matmul.multiply_bf16 != nullptr, "this ISA has no bf16 products");
    return {false, Form::bf16};
  }
  require(matrix.takes_rotated(), "the matrix has no rotated form");
  return {false, Form::rotated};
}

// One product by the whole pool; called inside run_all by every thread.
struct Product {
  Cpu& cpu;
  QuantizedBuffer& quantized;
  const float* x;
  std::int64_t x_stride, num_rows;
  float* out;
  std::int64_t out_stride;
  Epilogue epilogue;

  void run(const Matrix& matrix, Mode mode, std::size_t thread, std::size_t num_threads) const {
    const TileRange tiles = share(matrix.num_tiles(), thread, num_threads);
    const MatmulKernels& kernels = cpu.isa.matmul;
    if (mode.is_f32) {
      multiply_f32(kernels, matrix, x, x_stride, num_rows, tiles, out, out_stride, epilogue);
      return;
    }
    const QuantizedRows rows = quantized.rows(matrix.num_cols());
    const QuantizeRow take = rounding(kernels, mode.form);
    for (auto row = std::int64_t(thread); row < num_rows; row += std::int64_t(num_threads)) {
      take(x + row * x_stride, rows, row);
    }
    cpu.threads.barrier();
    multiply_narrow(kernels, mode.form, matrix, rows, num_rows, tiles, out, out_stride, epilogue);
  }
};

void matmul(Cpu& cpu, const Matrix& matrix, Array<const float, 2> x, Array<float, 2> out,
            const std::string& mode, bool add) {
  const Mode form = mode_named(mode, matrix, cpu);
  require(std::int64_t(x.shape(1)) == matrix.num_cols(), "x and the matrix have one width");
  require(out.shape(0) == x.shape(0) && std::int64_t(out.shape(1)) == matrix.num_rows(),
          "out has another shape");
  const auto num_rows = std::int64_t(x.shape(0));
  QuantizedBuffer quantized(num_rows, matrix.num_cols());
  const Product product{cpu,      quantized,          x.data(),
                        matrix.num_cols(), num_rows,  out.data(),
                        matrix.num_rows(), add ? Epilogue::add : Epilogue::store};
  nb::gil_scoped_release released;
  cpu.threads.run_all([&](std::size_t thread, std::size_t num_threads) {
    product.run(matrix, form, thread, num_threads);
  });
}

void quantize(Cpu& cpu, Array<const float, 2> x, Array<std::int8_t, 2> codes,
              Array<float, 2> scales, Array<std::int32_t, 2> sums) {
  const auto num_rows = std::int64_t(x.shape(0)), num_cols = std::int64_t(x.shape(1));
  require(num_cols % kGroup == 0, "columns come in groups of 32");
  const std::size_t num_groups = x.shape(1) / kGroup;
  require(codes.shape(0) == x.shape(0) && codes.shape(1) == x.shape(1), "codes have x's shape");
  require(scales.shape(0) == x.shape(0) && scales.shape(1) == num_groups &&
              sums.shape(0) == x.shape(0) && sums.shape(1) == num_groups,
          "one scale and one sum per group");
  std::vector<float> scaled_sums(scales.size());
  std::vector<std::int32_t> half_sums(scales.size());
  const QuantizedRows rows{codes.data(), scales.data(),    scaled_sums.data(),
                           sums.data(),  half_sums.data(), nullptr, num_cols, {}};
  for (std::int64_t row = 0; row < num_rows; ++row) {
    cpu.isa.matmul.quantize_row(x.data() + row * num_cols, rows, row);
  }
}

// Seconds of each pass over all matrices in turn, with quantization and barriers as in a step.
std::vector<double> time_matmul(Cpu& cpu, const std::vector<const Matrix*>& matrices,
                                std::int64_t num_rows, const std::string& mode, int num_passes) {
  require(num_rows >= 1 && num_rows <= kMaxTimedRows, "num_rows is out of range");
  require(num_passes >= 1 && num_passes <= kMaxPasses, "num_passes is out of range");
  std::int64_t most_in = 0, most_out = 0;
  Mode form;
  for (const Matrix* matrix : matrices) {
    form = mode_named(mode, *matrix, cpu);
    most_in = std::max(most_in, matrix->num_cols());
    most_out = std::max(most_out, matrix->num_rows());
  }
  LineVector<float> x(std::size_t(num_rows * most_in)), out(std::size_t(num_rows * most_out));
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = float(i * 37 % 101) / 50.0f - 1.0f;
  QuantizedBuffer quantized(num_rows, most_in);
  const Product product{cpu,        quantized, x.data(), most_in,        num_rows,
                        out.data(), most_out,  Epilogue::store};
  std::vector<double> seconds;
  nb::gil_scoped_release released;
  for (int pass = 0; pass < num_passes; ++pass) {
    const auto start = std::chrono::steady_clock::now();
    cpu.threads.run_all([&](std::size_t thread, std::size_t num_threads) {
      for (const Matrix* matrix : matrices) {
        product.run(*matrix, form, thread, num_threads);
        cpu.threads.barrier();
      }
    });
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
    seconds.push_back(taken.count());
  }
  return seconds;
}

}  // namespace

void bind_matmul(nb::module_& module) {
  nb::class_<Matrix>(module, "Matrix")
      .def_static("pack", &pack, "cpu"_a, "ggml_type"_a, "data"_a.noconvert(), "num_rows"_a,
                  "num_cols"_a)
      .def_static("stack", &stack, "cpu"_a, "parts"_a, "num_cols"_a)
      .def_static("pack_alike", &Matrix::pack_alike, "ggml_type"_a, "other"_a)
      .def_prop_ro("num_rows", &Matrix::num_rows)
      .def_prop_ro("num_cols", &Matrix::num_cols)
      .def_prop_ro("num_bytes", &Matrix::num_bytes)
      .def_prop_ro("takes_int8", &Matrix::takes_int8)
      .def_prop_ro("rotated_bytes", &Matrix::rotated_bytes)
      .def_prop_ro("widened_bytes", &Matrix::widened_bytes)
      .def_prop_ro("takes_rotated", &Matrix::takes_rotated)
      .def("rotate", &rotate, "cpu"_a)
      .def("widen", &widen, "cpu"_a)
      .def("dequantize_row", &dequantize_row, "row"_a, "out"_a.noconvert());
  module.def("matmul", &matmul, "cpu"_a, "matrix"_a, "x"_a.noconvert(), "out"_a.noconvert(),
             "mode"_a, nb::kw_only(), "add"_a = false);
  module.def("quantize", &quantize, "cpu"_a, "x"_a.noconvert(), "codes"_a.noconvert(),
             "scales"_a.noconvert(), "sums"_a.noconvert());
  module.def("time_matmul", &time_matmul, "cpu"_a, "matrices"_a, "num_rows"_a, "mode"_a,
             "num_passes"_a);
}

}  // namespace starshade
