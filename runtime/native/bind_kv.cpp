// How do tests and tools reach a KV pool and its attention from Python?
#include <nanobind/stl/string.h>

#include <atomic>
#include <string>
#include <vector>

#include "aligned.h"
#include "attention_plan.h"
#include "bind.h"
#include "cpu.h"
#include "kv_pool.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace starshade {
namespace {

void new_pool(KvPool* self, std::int32_t num_layers, std::int64_t num_blocks,
              std::int32_t block_size, std::int32_t num_kv_heads, std::int32_t head_dim,
              const std::string& kv_dtype) {
  new (self) KvPool({num_layers, num_kv_heads, head_dim, block_size, parse_kv_type(kv_dtype)},
                    num_blocks);
}

// keys, values: (T, K, D); token i goes to slots[i].
void write(KvPool& pool, Cpu& cpu, std::int32_t layer, Array<const std::int64_t, 1> slots,
           Array<const float, 3> keys, Array<const float, 3> values) {
  const KvLayout& layout = pool.layout();
  require(layer >= 0 && layer < layout.num_layers, "the layer is out of range");
  for (const auto& items : {keys, values}) {
    require(items.shape(0) == slots.shape(0) && std::int64_t(items.shape(1)) == layout.num_kv_heads &&
                std::int64_t(items.shape(2)) == layout.head_dim,
            "keys and values are (tokens, KV heads, head_dim)");
  }
  for (std::size_t token = 0; token < slots.shape(0); ++token) {
    const std::int64_t slot = slots(token);
    require(slot >= 0 && slot < pool.num_blocks() * layout.block_size, "a slot is out of range");
    for (std::int64_t head = 0; head < layout.num_kv_heads; ++head) {
      cpu.isa.kv_write(layout, pool.head(slot / layout.block_size, layer, head),
                       int(slot % layout.block_size), &keys(token, head, 0),
                       &values(token, head, 0));
    }
  }
}

// A step of such sequences, of which only the attention matters.
StepRows rows_of(const KvPool& pool, Array<const std::int32_t, 1> query_starts,
                 Array<const std::int32_t, 1> context_lens,
                 Array<const std::int32_t, 2> block_tables, bool of_prompts, bool in_bulk) {
  const std::size_t num_sequences = context_lens.shape(0);
  require(query_starts.shape(0) == num_sequences + 1 && block_tables.shape(0) == num_sequences,
          "query_starts needs one entry more, block_tables as many");
  const std::int64_t num_tokens = query_starts(num_sequences), block_size = pool.layout().block_size;
  require(num_tokens >= 0 && num_tokens <= 1 << 20, "the number of tokens is out of range");
  std::vector<std::int32_t> zeros(std::size_t(num_tokens), 0), positions = zeros;
  std::vector<std::int64_t> slots(std::size_t(num_tokens), 0);
  for (std::size_t index = 0; index < num_sequences; ++index) {
    for (std::int64_t row = query_starts(index); row < query_starts(index + 1); ++row) {
      const std::int64_t position = context_lens(index) - query_starts(index + 1) + row;
      require(row >= 0 && row < num_tokens && position >= 0, "rows do not fit the context");
      require(position / block_size < std::int64_t(block_tables.shape(1)), "a block table is short");
      positions[std::size_t(row)] = std::int32_t(position);
      slots[std::size_t(row)] =
          block_tables(index, position / block_size) * block_size + position % block_size;
    }
  }
  StepRows rows;
  const std::vector<std::int32_t> no_prompts(num_sequences);
  const auto batch_invariant = std::make_unique<bool[]>(num_sequences);
  std::fill_n(batch_invariant.get(), num_sequences, !in_bulk);
  rows.take({zeros.data(), positions.data(), slots.data(), query_starts.data(), context_lens.data(),
             of_prompts ? context_lens.data() : no_prompts.data(), batch_invariant.get(),
             block_tables.data(), nullptr, num_tokens, std::int64_t(num_sequences),
             std::int64_t(block_tables.shape(1)), 0},
            {1, pool.num_blocks(), block_size, std::int64_t{1} << 30, in_bulk});
  return rows;
}

// q, out: (T, H, D)
void attend(KvPool& pool, Cpu& cpu, std::int32_t layer, Array<const float, 3> q,
            Array<const std::int32_t, 1> query_starts, Array<const std::int32_t, 1> context_lens,
            Array<const std::int32_t, 2> block_tables, Array<float, 3> out, float scale,
            float softcap, std::int32_t window, bool of_prompts, bool in_bulk) {
  const KvLayout& layout = pool.layout();
  const auto num_heads = std::int32_t(q.shape(1)), head_dim = layout.head_dim;
  require(layer >= 0 && layer < layout.num_layers, "the layer is out of range");
  require(num_heads > 0 && num_heads % layout.num_kv_heads == 0, "query heads share KV heads evenly");
  require(std::int64_t(q.shape(2)) == head_dim && window >= 0, "q or the window does not fit");
  for (std::size_t axis = 0; axis < 3; ++axis) {
    require(out.shape(axis) == q.shape(axis), "out has the shape of q");
  }
  const StepRows rows = rows_of(pool, query_starts, context_lens, block_tables, of_prompts, in_bulk);
  require(std::int64_t(q.shape(0)) == rows.num_tokens(), "q has other rows than the step");
  AttentionPlan plan;
  plan.make(rows, layout, num_heads, window);
  std::vector<float> partials(std::size_t(plan.num_partial_floats()));
  plan.set_partials(partials.data());
  const std::int64_t stride = std::int64_t{num_heads} * head_dim;
  const KvAttentionArgs args{q.data(),       out.data(), pool.layer(layer), stride, stride,
                             layout.block_bytes(), layout, scale, softcap, window, num_heads};
  const std::size_t scratch_bytes = kv_attention_scratch_bytes(
      std::size_t(std::max(kKvTileRows, num_heads / layout.num_kv_heads)), std::size_t(head_dim));
  nb::gil_scoped_release released;
  std::atomic<std::size_t> next{0};
  cpu.threads.run_all([&](std::size_t, std::size_t) {
    LineVector<std::uint8_t> scratch(scratch_bytes);
    for (std::size_t task; (task = next.fetch_add(1)) < plan.tasks().size();) {
      cpu.isa.attention_for(plan.tasks()[task])(args, plan.tasks()[task], nullptr, scratch.data());
    }
  });
  for (std::int64_t row = 0; row < rows.num_tokens(); ++row) {
    for (std::int32_t head = 0; head < num_heads; ++head) {
      const AttentionPlan::Parts parts = plan.parts(rows, row, head);
      if (parts.count == 1) continue;
      cpu.isa.kv_merge(parts.first, parts.count, parts.stride, head_dim,
                       out.data() + row * stride + head * head_dim);
    }
  }
}

}  // namespace

KvType parse_kv_type(const std::string& name) {
  if (name == "f32") return kKvF32;
  if (name == "bf16") return kKvBf16;
  require(name == "int8", "kv_dtype is f32, bf16 or int8");
  return kKvInt8;
}

void bind_kv(nb::module_& module) {
  nb::class_<KvPool>(module, "KvPool")
      .def("__init__", &new_pool, nb::kw_only(), "num_layers"_a, "num_blocks"_a, "block_size"_a,
           "num_kv_heads"_a, "head_dim"_a, "kv_dtype"_a)
      .def_prop_ro("num_blocks", &KvPool::num_blocks)
      .def_prop_ro("block_bytes", [](const KvPool& pool) { return pool.layout().block_bytes(); })
      .def("write", &write, "cpu"_a, "layer"_a, "slots"_a.noconvert(), "keys"_a.noconvert(),
           "values"_a.noconvert())
      .def("attend", &attend, "cpu"_a, "layer"_a, "q"_a.noconvert(), "query_starts"_a.noconvert(),
           "context_lens"_a.noconvert(), "block_tables"_a.noconvert(), "out"_a.noconvert(),
           "scale"_a, "softcap"_a = 0.0f, "window"_a = 0, "of_prompts"_a = false, "in_bulk"_a = false);
  module.def(
      "kv_block_bytes",
      [](std::int32_t num_layers, std::int32_t num_kv_heads, std::int32_t head_dim,
         std::int32_t block_size, const std::string& kv_dtype) {
        return KvLayout{num_layers, num_kv_heads, head_dim, block_size, parse_kv_type(kv_dtype)}
            .block_bytes();
      },
      "num_layers"_a, "num_kv_heads"_a, "head_dim"_a, "block_size"_a, "kv_dtype"_a);
}

}  // namespace starshade
