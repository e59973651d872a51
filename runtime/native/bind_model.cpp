// How does Python build a native model and step it?  The GIL is released while it computes.
#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "bind.h"
#include "cpu.h"
#include "model.h"
#include "select.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace starshade {
namespace {

using Ints = Array<const std::int32_t, 1>;
using Floats = Array<const float, 1>;
using Matrices = std::map<std::string, std::vector<const Matrix*>>;
using Vectors = std::map<std::string, Floats>;

std::vector<float> take_vector(const Vectors& vectors, const std::string& name, bool wanted,
                               std::int64_t width) {
  const auto found = vectors.find(name);
  require((found != vectors.end()) == wanted, "a vector is missing, or the model has none such");
  if (!wanted) return {};
  require(std::int64_t(found->second.shape(0)) == width, "a vector has another width");
  return {found->second.data(), found->second.data() + width};
}

Projection take_projection(const Matrices& matrices, const std::string& name,
                           std::int64_t num_inputs, std::int64_t num_outputs, bool float_only) {
  const auto found = matrices.find(name);
  require(found != matrices.end() && !found->second.empty(), "a matrix is missing");
  std::vector<Matrix> parts;
  for (const Matrix* matrix : found->second) parts.push_back(*matrix);
  return {std::move(parts), num_inputs, num_outputs, float_only};
}

// Weights under construction: complete when they have as many layers as their shape says.
struct WeightsBuilder {
  std::shared_ptr<ModelWeights> weights = std::make_shared<ModelWeights>();
  bool float_only;
};

void new_weights(WeightsBuilder* self, const ModelShape& shape, const Matrix& embedding,
                 const Matrix& head, Floats output_norm, bool float_only) {
  shape.check();
  require(embedding.num_rows() == shape.vocab_size && embedding.num_cols() == shape.hidden_size,
          "the embedding has another shape");
  Projection projection({head}, shape.hidden_size, shape.vocab_size, float_only);
  new (self) WeightsBuilder();
  self->float_only = float_only;
  self->weights->shape = shape;
  self->weights->embedding.push_back(embedding);
  self->weights->head = std::move(projection);
  self->weights->output_norm =
      take_vector({{"output_norm", output_norm}}, "output_norm", true, shape.hidden_size);
}

void add_layer(WeightsBuilder& self, const Matrices& matrices, const Vectors& vectors) {
  const ModelShape& shape = self.weights->shape;
  require(self.weights->layers.size() < std::size_t(shape.num_layers), "there are enough layers");
  const std::int64_t hidden = shape.hidden_size, ffn = shape.ffn_size;
  const std::int64_t qkv = std::int64_t{shape.num_all_heads()} * shape.head_dim;
  LayerWeights layer;
  layer.attention_norm = take_vector(vectors, "attention_norm", true, hidden);
  layer.ffn_norm = take_vector(vectors, "ffn_norm", true, hidden);
  layer.post_attention_norm = take_vector(vectors, "post_attention_norm", shape.post_norms, hidden);
  layer.post_ffn_norm = take_vector(vectors, "post_ffn_norm", shape.post_norms, hidden);
  layer.qkv_bias = take_vector(vectors, "qkv_bias", shape.qkv_bias, qkv);
  layer.q_norm = take_vector(vectors, "q_norm", shape.qk_norm, shape.head_dim);
  layer.k_norm = take_vector(vectors, "k_norm", shape.qk_norm, shape.head_dim);
  const bool float_only = self.float_only;
  layer.qkv = take_projection(matrices, "qkv", hidden, qkv, float_only);
  layer.attention_output =
      take_projection(matrices, "attention_output", shape.q_width(), hidden, float_only);
  layer.gate_up = take_projection(matrices, "gate_up", hidden, 2 * ffn, float_only);
  layer.down = take_projection(matrices, "down", ffn, hidden, float_only);
  self.weights->layers.push_back(std::move(layer));
}

void new_model(Model* self, Cpu& cpu, const WeightsBuilder& weights, std::int64_t num_blocks,
               std::int32_t block_size, const std::string& kv_dtype,
               std::int64_t max_batch_tokens) {
  require(weights.weights->layers.size() == std::size_t(weights.weights->shape.num_layers),
          "layers are missing");
  new (self) Model(cpu.threads, cpu.isa, weights.weights, num_blocks, block_size,
                   parse_kv_type(kv_dtype), max_batch_tokens);
}

void step(Model& model, Ints token_ids, Ints positions, Ints query_starts, Ints context_lens,
          Ints prompt_lens, Array<const bool, 1> batch_invariant,
          Array<const std::int32_t, 2> block_tables, Array<const std::int64_t, 1> slots,
          Ints logits_rows) {
  const std::size_t num_tokens = token_ids.shape(0), num_sequences = context_lens.shape(0);
  require(positions.shape(0) == num_tokens && slots.shape(0) == num_tokens,
          "tokens, positions and slots differ in number");
  require(query_starts.shape(0) == num_sequences + 1, "query_starts needs one entry more");
  require(prompt_lens.shape(0) == num_sequences, "one prompt length per sequence");
  require(batch_invariant.shape(0) == num_sequences, "one batch_invariant per sequence");
  require(block_tables.shape(0) == num_sequences, "one block table per sequence");
  const StepArrays arrays{token_ids.data(),
                          positions.data(),
                          slots.data(),
                          query_starts.data(),
                          context_lens.data(),
                          prompt_lens.data(),
                          batch_invariant.data(),
                          block_tables.data(),
                          logits_rows.data(),
                          std::int64_t(num_tokens),
                          std::int64_t(num_sequences),
                          std::int64_t(block_tables.shape(1)),
                          std::int64_t(logits_rows.shape(0))};
  nb::gil_scoped_release released;
  model.step(arrays);
}

nb::tuple best(const Model& model) {
  nb::list ids, broken;
  for (const BestLogit& row : model.best()) {
    ids.append(row.id);
    if (row.is_broken || row.id < 0) broken.append(ids.size() - 1);
  }
  return nb::make_tuple(ids, broken);
}

nb::ndarray<nb::numpy, float, nb::ndim<2>> logits(Model& model) {
  auto* held = new std::shared_ptr<float>(model.logits());
  const nb::capsule owner(held, [](void* kept) noexcept {
    delete static_cast<std::shared_ptr<float>*>(kept);
  });
  const std::size_t shape[2] = {std::size_t(model.num_logits_rows()),
                                std::size_t(model.weights().shape.vocab_size)};
  const std::int64_t strides[2] = {model.logits_stride(), 1};
  return {held->get(), 2, shape, owner, strides};
}

using Mask = nb::ndarray<const std::uint32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

template <class Item>
nb::ndarray<nb::numpy, Item, nb::ndim<1>> to_numpy(std::vector<Item>&& items) {
  auto* held = new std::vector<Item>(std::move(items));
  const nb::capsule owner(held, [](void* kept) noexcept {
    delete static_cast<std::vector<Item>*>(kept);
  });
  return {held->data(), {held->size()}, owner};
}

nb::tuple largest(Cpu& cpu, Floats logits, std::int64_t count, float inverse_temperature,
                  Mask allowed) {
  const auto width = std::int64_t(logits.shape(0));
  require(!allowed.is_valid() || std::int64_t(allowed.shape(0)) >= (width + 31) / 32,
          "the mask has too few words");
  Candidates found;
  {
    nb::gil_scoped_release released;
    found = select_largest(cpu.isa, logits.data(), width, count, inverse_temperature,
                           allowed.is_valid() ? allowed.data() : nullptr);
  }
  return nb::make_tuple(to_numpy(std::move(found.ids)), to_numpy(std::move(found.logits)),
                        found.log_sum_exp, found.is_broken);
}

std::int32_t draw_id(Cpu& cpu, Floats logits, float best, float inverse_temperature,
                     double uniform) {
  const auto width = std::int64_t(logits.shape(0));
  require(width >= 1 && std::isfinite(best), "there is no finite logit");
  require(uniform >= 0 && uniform < 1, "uniform is not in [0, 1)");
  nb::gil_scoped_release released;
  return draw(cpu.isa, logits.data(), width, best, inverse_temperature, uniform);
}

void add_rope(ModelShape& shape, std::vector<double> inverse_frequencies, float attention_factor) {
  shape.ropes.push_back({std::move(inverse_frequencies), attention_factor});
}

void bind_shape(nb::module_& module) {
  nb::class_<ModelShape>(module, "ModelShape")
      .def("__init__", [](ModelShape* self) { new (self) ModelShape(); })
      .def_rw("vocab_size", &ModelShape::vocab_size)
      .def_rw("num_layers", &ModelShape::num_layers)
      .def_rw("num_heads", &ModelShape::num_heads)
      .def_rw("num_kv_heads", &ModelShape::num_kv_heads)
      .def_rw("head_dim", &ModelShape::head_dim)
      .def_rw("hidden_size", &ModelShape::hidden_size)
      .def_rw("ffn_size", &ModelShape::ffn_size)
      .def_rw("max_context_tokens", &ModelShape::max_context_tokens)
      .def_rw("rotary_dim", &ModelShape::rotary_dim)
      .def_rw("eps", &ModelShape::eps)
      .def_rw("query_scale", &ModelShape::query_scale)
      .def_rw("attention_softcap", &ModelShape::attention_softcap)
      .def_rw("final_softcap", &ModelShape::final_softcap)
      .def_rw("embedding_scale", &ModelShape::embedding_scale)
      .def_prop_rw(
          "rope_is_interleaved",
          [](const ModelShape& shape) { return shape.rope_style == kRopeInterleaved; },
          [](ModelShape& shape, bool is) { shape.rope_style = is ? kRopeInterleaved : kRopeHalf; })
      .def_prop_rw(
          "activation_is_gelu",
          [](const ModelShape& shape) { return shape.activation == kGeluTanh; },
          [](ModelShape& shape, bool is) { shape.activation = is ? kGeluTanh : kSilu; })
      .def_rw("qkv_bias", &ModelShape::qkv_bias)
      .def_rw("qk_norm", &ModelShape::qk_norm)
      .def_rw("post_norms", &ModelShape::post_norms)
      .def_rw("windows", &ModelShape::windows)
      .def_rw("layer_rope", &ModelShape::layer_rope)
      .def("add_rope", &add_rope, "inverse_frequencies"_a, "attention_factor"_a);
}

}  // namespace

void bind_model(nb::module_& module) {
  bind_shape(module);
  nb::class_<WeightsBuilder>(module, "ModelWeights")
      .def("__init__", &new_weights, "shape"_a, "embedding"_a, "head"_a,
           "output_norm"_a.noconvert(), nb::kw_only(), "float_only"_a)
      .def("add_layer", &add_layer, "matrices"_a, "vectors"_a)
      .def_prop_ro("num_bytes",
                   [](const WeightsBuilder& self) { return self.weights->num_bytes(); });
  nb::class_<Model>(module, "Model")
      .def("__init__", &new_model, nb::keep_alive<1, 2>(), "cpu"_a, "weights"_a, nb::kw_only(),
           "num_blocks"_a, "block_size"_a, "kv_dtype"_a, "max_batch_tokens"_a)
      .def("step", &step, "token_ids"_a.noconvert(), "positions"_a.noconvert(),
           "query_starts"_a.noconvert(), "context_lens"_a.noconvert(), "prompt_lens"_a.noconvert(),
           "batch_invariant"_a.noconvert(), "block_tables"_a.noconvert(), "slots"_a.noconvert(),
           "logits_rows"_a.noconvert())
      .def("best", &best)
      .def("logits", &logits)
      .def_prop_ro("has_bulk", &Model::has_bulk)
      .def_prop_ro("block_bytes", [](Model& model) { return model.kv_pool().layout().block_bytes(); });
  module.def("largest", &largest, "cpu"_a, "logits"_a.noconvert(), "count"_a,
             "inverse_temperature"_a = 1.0f, "allowed"_a.noconvert().none() = nb::none());
  module.def("draw", &draw_id, "cpu"_a, "logits"_a.noconvert(), "best"_a, "inverse_temperature"_a,
             "uniform"_a);
}

}  // namespace starshade
