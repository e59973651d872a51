#include "model.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "model_thread.h"

namespace starshade {
namespace {

constexpr std::int64_t kMaxBatchTokens = 1 << 20;
// Counters of what is shared out, at most: norm, heads, attention, its rows, output projection with
// its norm, norm, gates and ups, their rows, down projection with its norm; embedding, norm, head, its
// logits.
constexpr std::size_t kSharedPerLayer = 11, kSharedApart = 4;

std::int64_t padded(std::int64_t count) { return (count + 15) / 16 * 16; }

}  // namespace

Model::Model(ThreadPool& threads, const Isa& isa, std::shared_ptr<const ModelWeights> weights,
             std::int64_t num_blocks, std::int32_t block_size, KvType kv_type,
             std::int64_t max_batch_tokens)
    : threads_(threads),
      isa_(isa),
      weights_(std::move(weights)),
      shape_(weights_->shape),
      kv_pool_({shape_.num_layers, shape_.num_kv_heads, shape_.head_dim, block_size, kv_type},
               num_blocks),
      logits_stride_(padded(shape_.vocab_size)),
      qkv_stride_(std::int64_t{shape_.num_all_heads()} * shape_.head_dim) {
  if (max_batch_tokens < 1 || max_batch_tokens > kMaxBatchTokens) {
    throw std::invalid_argument("max_batch_tokens is out of range");
  }
  for (const std::int32_t window : shape_.windows) {
    const auto found = std::find(plan_windows_.begin(), plan_windows_.end(), window);
    layer_plan_.push_back(std::int32_t(found - plan_windows_.begin()));
    if (found == plan_windows_.end()) plan_windows_.push_back(window);
  }
  plans_.resize(plan_windows_.size());
  const auto has_bulk = [this](const LayerWeights& layer) {
    return layer.down.bulk_form(isa_.matmul) != Form::groups;
  };
  has_bulk_ = std::all_of(weights_->layers.begin(), weights_->layers.end(), has_bulk);
  next_part_ = std::vector<TaskCounter>(std::size_t(shape_.num_layers) * kSharedPerLayer + kSharedApart);
  cosines_.resize(shape_.ropes.size());
  sines_.resize(shape_.ropes.size());
  const std::int64_t max_cols = std::max(shape_.hidden_size, shape_.q_width());
  const std::int32_t group = shape_.num_heads / shape_.num_kv_heads;
  const std::size_t scratch_bytes = kv_attention_scratch_bytes(
      std::size_t(std::max(kKvTileRows, group)), std::size_t(shape_.head_dim));
  for (std::size_t thread = 0; thread < threads_.num_threads(); ++thread) {
    per_thread_.push_back(
        std::make_unique<Thread>(thread, threads_.num_threads(), max_cols, shape_.ffn_size,
                                 scratch_bytes));
  }
  reserve(max_batch_tokens, 1);
}

Model::~Model() = default;

void Model::reserve(std::int64_t num_tokens, std::int64_t num_logits_rows) {
  if (num_logits_rows > logits_capacity_) {  // views of the old ones keep them alive
    logits_.reset(new float[std::size_t(num_logits_rows * logits_stride_)],
                  std::default_delete<float[]>());
    logits_capacity_ = num_logits_rows;
  }
  if (num_tokens <= capacity_) return;
  const auto rows = std::size_t(num_tokens);
  const std::int64_t max_cols = std::max(shape_.hidden_size, shape_.q_width());
  hidden_.resize(rows * std::size_t(shape_.hidden_size));
  qkv_.resize(rows * std::size_t(qkv_stride_));
  attended_.resize(rows * std::size_t(shape_.q_width()));
  normed_.resize(rows * std::size_t(shape_.hidden_size));
  const auto takes_f32 = [](const LayerWeights& layer) { return layer.down.takes_f32(); };
  if (std::any_of(weights_->layers.begin(), weights_->layers.end(), takes_f32)) {
    activated_.resize(rows * std::size_t(shape_.ffn_size));
  }
  if (shape_.post_norms) projected_.resize(rows * std::size_t(shape_.hidden_size));
  for (std::size_t rope = 0; rope < cosines_.size(); ++rope) {
    cosines_[rope].resize(rows * std::size_t(shape_.rotary_dim / 2));
    sines_[rope].resize(rows * std::size_t(shape_.rotary_dim / 2));
  }
  quantized_ = std::make_unique<QuantizedBuffer>(num_tokens, max_cols);
  quantized_ffn_ = std::make_unique<QuantizedBuffer>(num_tokens, shape_.ffn_size);
  capacity_ = num_tokens;
}

void Model::plan_attention() {
  std::int64_t num_floats = 0;
  for (std::size_t index = 0; index < plans_.size(); ++index) {
    plans_[index].make(rows_, kv_pool_.layout(), shape_.num_heads, plan_windows_[index]);
    num_floats = std::max(num_floats, plans_[index].num_partial_floats());
  }
  wanted_plan_.make(wanted_, kv_pool_.layout(), shape_.num_heads, shape_.windows.back());
  num_floats = std::max(num_floats, wanted_plan_.num_partial_floats());
  if (std::size_t(num_floats) > partials_.size()) partials_.resize(std::size_t(num_floats));
  for (AttentionPlan& plan : plans_) plan.set_partials(partials_.data());
  wanted_plan_.set_partials(partials_.data());
}

void Model::step(const StepArrays& arrays) {
  const std::lock_guard<std::mutex> call(calls_);
  if (arrays.num_tokens > kMaxBatchTokens) throw std::invalid_argument("too many tokens in a step");
  rows_.take(arrays, {shape_.vocab_size, kv_pool_.num_blocks(), kv_pool_.layout().block_size,
                      shape_.max_context_tokens, has_bulk_});
  has_wanted_ = wanted_.take_wanted(rows_);
  best_.assign(rows_.logits_rows.size(), {-INFINITY, -1, 0});
  if (arrays.num_tokens == 0) return;
  reserve(arrays.num_tokens, arrays.num_logits_rows);
  plan_attention();
  for (TaskCounter& counter : next_part_) counter.next.store(0, std::memory_order_relaxed);
  for (const auto& thread : per_thread_) {
    thread->num_shared_out = 0;
    thread->best.assign(best_.size(), {-INFINITY, -1, 0});
  }
  threads_.run_all([this](std::size_t thread, std::size_t num_threads) { run(thread, num_threads); });
}

void Model::run(std::size_t thread, std::size_t) {
  Thread& self = *per_thread_[thread];
  self.rows = &rows_;
  embed(self);
  threads_.barrier();
  for (std::int32_t layer = 0; layer < shape_.num_layers; ++layer) {
    write_heads(self, layer);
    if (layer + 1 == shape_.num_layers && has_wanted_) keep_wanted(self);
    if (self.rows->num_tokens() == 0) return;  // prompts that go on in a later step
    attend(self, layer);
    ffn_layer(self, layer);
  }
  head(self);
}

void Model::ffn_layer(Thread& self, std::int32_t layer) {
  const LayerWeights& weights = weights_->layers[std::size_t(layer)];
  const Operand in = norm_rows(self, weights.ffn_norm, weights.gate_up, nullptr, self.rows->blocks);
  const Operand activated{activated_.data(), shape_.ffn_size,
                          quantized_ffn_->rows(shape_.ffn_size)};
  activate(self, layer, in, activated);
  threads_.barrier();
  const auto is_rotated = [&](const RowBlock& rows) { return form(weights.down, rows) == Form::rotated; };
  if (std::any_of(self.rows->blocks.begin(), self.rows->blocks.end(), is_rotated)) {
    rotate_activated(self, weights.down, activated.quantized);
  }
  add_projection(self, weights.down, activated, weights.post_ffn_norm);
}

void Model::embed(Thread& self) {
  share_out(self, rows_.num_tokens(), kRowsAtOnce, [this](Span rows) { embed_rows(rows); });
}

void Model::embed_rows(Span span) {
  const std::int64_t half = shape_.rotary_dim / 2;
  for (std::int64_t row = span.first; row < span.end; ++row) {
    float* hidden = hidden_.data() + row * shape_.hidden_size;
    weights_->embedding[0].dequantize_row(rows_.token_ids[std::size_t(row)], hidden);
    if (shape_.embedding_scale != 1) {
      isa_.rows->scale(hidden, shape_.embedding_scale, shape_.hidden_size);
    }
    for (std::size_t index = 0; index < shape_.ropes.size(); ++index) {
      const ModelShape::Rope& rope = shape_.ropes[index];
      for (std::int64_t pair = 0; pair < half; ++pair) {
        const double angle =
            rows_.positions[std::size_t(row)] * rope.inverse_frequencies[std::size_t(pair)];
        cosines_[index][std::size_t(row * half + pair)] = float(std::cos(angle)) * rope.attention_factor;
        sines_[index][std::size_t(row * half + pair)] = float(std::sin(angle)) * rope.attention_factor;
      }
    }
  }
}

// Rows of the residual stream, normed and in the forms that `projection` takes.  rows: which ones,
// null for all; blocks: of the rows that result.
Operand Model::norm_rows(Thread& self, const std::vector<float>& weight,
                         const Projection& projection, const std::int32_t* rows,
                         const std::vector<RowBlock>& blocks) {
  const std::int64_t width = shape_.hidden_size, num_rows = blocks.back().end;
  const bool alone = num_rows <= kAloneRows;
  const Operand out{alone ? self.x.data() : normed_.data(), width,
                    (alone ? self.quantized : *quantized_).rows(width)};
  const auto norm = [&](std::int64_t row, const RowBlock& block) {
    // Where only the narrow form is read, the other need not leave the cache.
    float* to = projection.takes_f32() ? out.x + row * width : self.x.data();
    const float* from = hidden_.data() + (rows == nullptr ? row : rows[row]) * width;
    isa_.rows->rms_norm(from, weight.data(), shape_.eps, width, to);
    if (projection.takes_int8()) rounding(isa_.matmul, form(projection, block))(to, out.quantized, row);
  };
  take_rows(self, num_rows, blocks, norm);
  return out;
}

// The thread's share of the gated activations, in the forms that the next projection takes.
void Model::activate(Thread& self, std::int32_t layer, const Operand& in, const Operand& out) {
  const std::int64_t ffn_size = shape_.ffn_size, groups = (ffn_size + kGroup - 1) / kGroup;
  share_out(self, groups, kActivatedColumns / kGroup, [&](Span part) {
    const Span span{part.first * kGroup, std::min(part.end * kGroup, ffn_size)};
    for (const RowBlock& rows : self.rows->blocks) activate_columns(self, layer, in, out, rows, span);
  });
}

void Model::activate_columns(Thread& self, std::int32_t layer, const Operand& in, const Operand& out,
                           const RowBlock& rows, Span columns) {
  const LayerWeights& weights = weights_->layers[std::size_t(layer)];
  const std::int64_t ffn_size = shape_.ffn_size, width = columns.end - columns.first;
  const std::int64_t stride = 2 * width;
  float *gates = self.gate_up.data(), *ups = gates + width;
  multiply(weights.gate_up, in, rows, columns, gates - columns.first, stride, Epilogue::store);
  multiply(weights.gate_up, in, rows, {ffn_size + columns.first, ffn_size + columns.end},
           ups - ffn_size - columns.first, stride, Epilogue::store);
  for (std::int64_t row = rows.first; row < rows.end; ++row) {
    float* gate = gates + (row - rows.first) * stride;
    isa_.rows->activate(gate, gate + width, width, shape_.activation);
    const Operand to = out.from_row(row);
    if (weights.down.takes_f32()) std::copy_n(gate, width, to.x + columns.first);
    if (!weights.down.takes_int8()) continue;
    QuantizedRows part = to.quantized.from_group(columns.first / kGroup);
    part.num_inputs = width;
    const bool is_bulk = form(weights.down, rows) != Form::groups;
    (is_bulk ? isa_.matmul.round_row : isa_.matmul.quantize_row)(gate, part, 0);
  }
}

// A scale is for more columns than are activated at once.
void Model::rotate_activated(Thread& self, const Projection& projection,
                             const QuantizedRows& activated) {
  const auto rotate = [&](std::int64_t row, const RowBlock& block) {
    if (form(projection, block) == Form::rotated) isa_.matmul.rotate_rounded(activated, row);
  };
  share_out(self, self.rows->num_tokens(), kRowsAtOnce,
            [&](Span rows) { for_rows(rows, self.rows->blocks, rotate); });
  threads_.barrier();
}

// hidden += projection(in), normed before if there is a post_norm.  Ends at a barrier.
void Model::add_projection(Thread& self, const Projection& projection, const Operand& in,
                           const std::vector<float>& post_norm) {
  const std::int64_t width = shape_.hidden_size;
  const Epilogue epilogue = post_norm.empty() ? Epilogue::add : Epilogue::store;
  float* const to = post_norm.empty() ? hidden_.data() : projected_.data();
  share_out(self, (width + kTileOutputs - 1) / kTileOutputs, kTilesAtOnce, [&](Span tiles) {
    const Span outputs{tiles.first * kTileOutputs, std::min(tiles.end * kTileOutputs, width)};
    for (const RowBlock& rows : self.rows->blocks) {
      multiply(projection, in, rows, outputs, to + rows.first * width, width, epilogue);
    }
  });
  if (!post_norm.empty()) {
    threads_.barrier();
    share_out(self, self.rows->num_tokens(), kRowsAtOnce, [&](Span rows) {
      for (std::int64_t row = rows.first; row < rows.end; ++row) {
        float* projected = projected_.data() + row * width;
        isa_.rows->rms_norm(projected, post_norm.data(), shape_.eps, width, projected);
        isa_.rows->add(hidden_.data() + row * width, projected, width);
      }
    });
  }
  threads_.barrier();
}

void Model::multiply(const Projection& projection, const Operand& in, const RowBlock& rows,
                     Span outputs, float* out, std::int64_t out_stride, Epilogue epilogue) const {
  if (outputs.first >= outputs.end) return;
  const Operand block = in.from_row(rows.first);
  projection.multiply(isa_.matmul, form(projection, rows), block.quantized, block.x, block.stride,
                      rows.end - rows.first, outputs.first, outputs.end, out, out_stride, epilogue);
}

}  // namespace starshade
