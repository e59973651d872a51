// What is a model, apart from any sequence?  Its shape, switches and packed weights.
#pragma once

#include <cstdint>
#include <vector>

#include "matmul.h"
#include "matrix.h"
#include "row_kernel.h"

namespace starshade {

// See runtime/models/config.py, whose names these are.
struct ModelShape {
  std::int32_t vocab_size, num_layers, num_heads, num_kv_heads, head_dim, hidden_size, ffn_size;
  std::int32_t max_context_tokens, rotary_dim;
  float eps, query_scale, attention_softcap, final_softcap, embedding_scale;
  RopeStyle rope_style;
  Activation activation;
  bool qkv_bias, qk_norm, post_norms;
  std::vector<std::int32_t> windows, layer_rope;  // by layer
  struct Rope {
    std::vector<double> inverse_frequencies;  // rotary_dim / 2
    float attention_factor;
  };
  std::vector<Rope> ropes;

  std::int32_t num_all_heads() const { return num_heads + 2 * num_kv_heads; }
  std::int32_t q_width() const { return num_heads * head_dim; }
  // Throws std::invalid_argument when sizes are out of range or contradict each other.
  void check() const;
};

// Matrices with the same inputs, their outputs one after the other: q, k and v.
class Projection {
 public:
  Projection() = default;
  // Throws std::invalid_argument unless the matrices have `num_inputs` and, together, num_outputs.
  // With `float_only` none is multiplied by int8 activations.
  Projection(std::vector<Matrix> parts, std::int64_t num_inputs, std::int64_t num_outputs,
             bool float_only);

  std::int64_t num_inputs() const { return num_inputs_; }
  std::int64_t num_outputs() const { return num_outputs_; }
  std::size_t num_bytes() const;
  // Which forms of the input its matrices want.
  bool takes_int8() const { return takes_int8_; }
  bool takes_f32() const { return takes_f32_; }
  // Of many rows: the fastest that its matrices and the kernels have.
  Form bulk_form(const MatmulKernels& kernels) const {
    if (is_rotated_) return Form::rotated;
    return takes_int8_ && kernels.multiply_bf16 != nullptr ? Form::bf16 : Form::groups;
  }

  // Outputs first .. end - 1 of `num_rows` rows; boundaries of matrices and multiples of 16 only
  // (or the end). Quantized rows are of this form. out is that of output 0.
  void multiply(const MatmulKernels& kernels, Form form, const QuantizedRows& quantized,
                const float* x, std::int64_t x_stride, std::int64_t num_rows, std::int64_t first,
                std::int64_t end, float* out, std::int64_t out_stride, Epilogue epilogue) const;

 private:
  std::vector<Matrix> parts_;
  std::int64_t num_inputs_ = 0, num_outputs_ = 0;
  bool float_only_ = false, takes_int8_ = false, takes_f32_ = false, is_rotated_ = false;
};

// Vectors are empty where the shape's switches have none.
struct LayerWeights {
  std::vector<float> attention_norm, ffn_norm, post_attention_norm, post_ffn_norm;
  std::vector<float> qkv_bias, q_norm, k_norm;
  Projection qkv, attention_output, gate_up, down;
};

struct ModelWeights {
  ModelShape shape;
  std::vector<Matrix> embedding;  // one
  std::vector<LayerWeights> layers;
  std::vector<float> output_norm;
  Projection head;

  std::size_t num_bytes() const;
};

}  // namespace starshade
