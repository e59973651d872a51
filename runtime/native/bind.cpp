// How does Python call the kernels?  Arrays come by DLPack or buffer; the GIL is released.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include <string>

#include "attention.h"
#include "bind.h"
#include "cpu.h"
#include "linear.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace starshade {
namespace {

using Int32Vector = nb::ndarray<const std::int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Int32Matrix = nb::ndarray<const std::int32_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Rows = nb::ndarray<const float, nb::ndim<3>, nb::device::cpu>;
using Cache = nb::ndarray<const float, nb::ndim<4>, nb::c_contig, nb::device::cpu>;
using Out = nb::ndarray<float, nb::ndim<3>, nb::c_contig, nb::device::cpu>;

using FloatMatrix = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using OutMatrix = nb::ndarray<float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

constexpr std::size_t kMaxThreads = 256;

void new_cpu(Cpu* self, std::size_t num_threads, const std::string& isa) {
  require(num_threads >= 1 && num_threads <= kMaxThreads, "num_threads is out of range");
  for (const Isa& usable : usable_isas()) {
    if (isa.empty() || isa == usable.name) {
      new (self) Cpu(num_threads, usable);
      return;
    }
  }
  throw std::invalid_argument("the instruction set is unknown or not usable here");
}

nb::tuple isa_names() {
  nb::list names;
  for (const Isa& usable : usable_isas()) names.append(usable.name);
  return nb::tuple(names);
}

void new_step(AttentionStep* self, Int32Vector query_starts, Int32Vector context_lens,
              Int32Matrix block_tables, std::int32_t num_blocks, std::int32_t block_size) {
  const std::size_t num_sequences = context_lens.shape(0);
  require(query_starts.shape(0) == num_sequences + 1, "query_starts needs one entry more");
  require(block_tables.shape(0) == num_sequences, "one block table per sequence");
  new (self) AttentionStep(query_starts.data(), context_lens.data(), block_tables.data(),
                           num_sequences, block_tables.shape(1), num_blocks, block_size);
}

void paged_attention(Cpu& cpu, AttentionStep& step, Rows q, Cache k_cache, Cache v_cache,
                     Out out, float scale) {
  const std::size_t num_heads = q.shape(1), head_dim = q.shape(2), num_kv_heads = k_cache.shape(2);
  require(std::int64_t(q.shape(0)) == step.num_rows(), "q has other rows than the step");
  require(head_dim % kHeadDimStep == 0 && head_dim > 0 && head_dim <= kMaxHeadDim,
          "head_dim must be a multiple of 16, at most 256");
  require(q.stride(2) == 1 && q.stride(1) == std::int64_t(head_dim), "rows of q are contiguous");
  require(num_kv_heads > 0 && num_heads > 0 && num_heads % num_kv_heads == 0,
          "query heads share KV heads evenly");
  for (std::size_t axis = 0; axis < 4; ++axis) {
    require(k_cache.shape(axis) == v_cache.shape(axis), "both caches have one shape");
  }
  require(std::int64_t(k_cache.shape(0)) == step.num_blocks() &&
              std::int64_t(k_cache.shape(1)) == step.block_size() && k_cache.shape(3) == head_dim,
          "the cache has another shape than the step or q");
  for (std::size_t axis = 0; axis < 3; ++axis) {
    require(out.shape(axis) == q.shape(axis), "out has the shape of q");
  }
  const AttentionArgs args{q.data(), k_cache.data(), v_cache.data(), out.data(), scale,
                           q.stride(0), std::int32_t(num_heads), std::int32_t(num_kv_heads),
                           std::int32_t(head_dim), step.block_size()};
  nb::gil_scoped_release released;
  step.attend(cpu.threads, cpu.isa.attention, args);
}

void linear_layer(Cpu& cpu, FloatMatrix x, FloatMatrix weight, FloatMatrix add,
                  OutMatrix out) {
  require(x.shape(1) == weight.shape(1), "x and weight have one width");
  require(out.shape(0) == x.shape(0) && out.shape(1) == weight.shape(0), "out has another shape");
  require(!add.is_valid() || (add.shape(0) == out.shape(0) && add.shape(1) == out.shape(1)),
          "add has the shape of out");
  const LinearArgs args{x.data(), weight.data(), add.is_valid() ? add.data() : nullptr, out.data(),
                        std::int64_t(x.shape(0)), std::int64_t(x.shape(1)),
                        std::int64_t(weight.shape(0))};
  nb::gil_scoped_release released;
  linear(cpu.threads, cpu.isa.linear, args);
}

}  // namespace
}  // namespace starshade

NB_MODULE(_native, module) {
  using namespace starshade;
  module.def("isas", &isa_names);
  nb::class_<Cpu>(module, "Cpu")
      .def("__init__", &new_cpu, "num_threads"_a, "isa"_a = "")
      .def_prop_ro("num_threads", [](const Cpu& cpu) { return cpu.threads.num_threads(); })
      .def_prop_ro("isa", [](const Cpu& cpu) { return cpu.isa.name; });
  nb::class_<AttentionStep>(module, "AttentionStep")
      .def("__init__", &new_step, "query_starts"_a.noconvert(), "context_lens"_a.noconvert(),
           "block_tables"_a.noconvert(), nb::kw_only(), "num_blocks"_a, "block_size"_a);
  module.def("paged_attention", &paged_attention, "cpu"_a, "step"_a, "q"_a.noconvert(),
             "k_cache"_a.noconvert(), "v_cache"_a.noconvert(), "out"_a.noconvert(), "scale"_a);
  module.def("linear", &linear_layer, "cpu"_a, "x"_a.noconvert(), "weight"_a.noconvert(),
             "add"_a.noconvert().none(), "out"_a.noconvert());
  bind_matmul(module);
  bind_model(module);
  bind_kv(module);
  bind_probe(module);
}
