#include "model_weights.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "kv_kernel.h"

namespace starshade {
namespace {

constexpr std::int64_t kMaxWidth = 1 << 20;

void require(bool holds, const char* message) {
  if (!holds) throw std::invalid_argument(message);
}

bool in_range(std::int64_t value, std::int64_t limit) { return value >= 1 && value <= limit; }

}  // namespace

void ModelShape::check() const {
  require(in_range(vocab_size, kMaxWidth) && in_range(num_layers, 1024) &&
              in_range(num_heads, 1024) && in_range(num_kv_heads, 1024) &&
              in_range(hidden_size, kMaxWidth) && in_range(ffn_size, kMaxWidth) &&
              in_range(max_context_tokens, std::int64_t{1} << 30),
          "a size of the model is out of range");
  require(num_heads % num_kv_heads == 0, "query heads share KV heads evenly");
  require(in_range(head_dim, kKvMaxHeadDim) && head_dim % kKvHeadDimStep == 0,
          "head_dim must be a multiple of 16, at most 512");
  require(rotary_dim >= 0 && rotary_dim <= head_dim && rotary_dim % 2 == 0,
          "rotary_dim does not fit the head");
  require(windows.size() == std::size_t(num_layers) && layer_rope.size() == windows.size(),
          "windows and layer_rope have one entry per layer");
  for (const std::int32_t window : windows) require(window >= 0, "a window is negative");
  for (const Rope& rope : ropes) {
    require(rope.inverse_frequencies.size() == std::size_t(rotary_dim / 2),
            "a rope table does not fit rotary_dim");
  }
  for (const std::int32_t rope : layer_rope) {
    require(rope >= 0 && std::size_t(rope) < ropes.size(), "layer_rope names no table");
  }
  for (const float number : {eps, query_scale, attention_softcap, final_softcap, embedding_scale}) {
    require(std::isfinite(number) && number >= 0, "a number of the model is out of range");
  }
}

Projection::Projection(std::vector<Matrix> parts, std::int64_t num_inputs,
                       std::int64_t num_outputs, bool float_only)
    : parts_(std::move(parts)), num_inputs_(num_inputs), float_only_(float_only) {
  for (const Matrix& part : parts_) {
    require(part.num_cols() == num_inputs, "a matrix has another number of inputs");
    const bool is_int8 = part.takes_int8() && !float_only;
    takes_int8_ |= is_int8;
    takes_f32_ |= !is_int8;
    num_outputs_ += part.num_rows();
  }
  const auto is_rotated = [](const Matrix& part) {
    return part.takes_rotated() || !part.takes_int8();
  };
  is_rotated_ = takes_int8_ && std::all_of(parts_.begin(), parts_.end(), is_rotated);
  require(num_outputs_ == num_outputs, "the matrices have another number of outputs");
}

std::size_t Projection::num_bytes() const {
  std::size_t total = 0;
  for (const Matrix& part : parts_) total += part.num_bytes() + part.rotated_bytes() + part.widened_bytes();
  return total;
}

void Projection::multiply(const MatmulKernels& kernels, Form form, const QuantizedRows& quantized,
                          const float* x, std::int64_t x_stride,
                          std::int64_t num_rows, std::int64_t first, std::int64_t end, float* out,
                          std::int64_t out_stride, Epilogue epilogue) const {
  std::int64_t offset = 0;  // of the part's first output
  for (const Matrix& part : parts_) {
    const std::int64_t from = std::max(first, offset) - offset;
    const std::int64_t to = std::min(end, offset + part.num_rows()) - offset;
    if (from < to) {
      const TileRange tiles{from / kTileOutputs, (to + kTileOutputs - 1) / kTileOutputs};
      if (part.takes_int8() && !float_only_ && form != Form::f32) {
        multiply_narrow(kernels, form, part, quantized, num_rows, tiles, out + offset, out_stride,
                        epilogue);
      } else {
        multiply_f32(kernels, part, x, x_stride, num_rows, tiles, out + offset, out_stride, epilogue);
      }
    }
    offset += part.num_rows();
  }
}

std::size_t ModelWeights::num_bytes() const {
  std::size_t total = embedding[0].num_bytes();
  for (const LayerWeights& layer : layers) {
    total += layer.qkv.num_bytes() + layer.attention_output.num_bytes() +
             layer.gate_up.num_bytes() + layer.down.num_bytes();
  }
  return total + head.num_bytes();
}

}  // namespace starshade
