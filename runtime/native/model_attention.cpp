// The attention half of a layer.
#include <algorithm>

#include "model.h"
#include "model_thread.h"

namespace starshade {

// Norm, then query, key and value heads, rotated; keys and values go to the pool.  Every step of a layer
// ends at a barrier: what one writes, all read next.
void Model::write_heads(Thread& self, std::int32_t layer) {
  const LayerWeights& weights = weights_->layers[std::size_t(layer)];
  const Operand in = norm_rows(self, weights.attention_norm, weights.qkv, nullptr, rows_.blocks);
  share_out(self, shape_.num_all_heads(), 1, [&](Span heads) {
    const Span outputs{heads.first * shape_.head_dim, heads.end * shape_.head_dim};
    for (const RowBlock& rows : rows_.blocks) {
      multiply(weights.qkv, in, rows, outputs, qkv_.data() + rows.first * qkv_stride_, qkv_stride_,
               Epilogue::store);
      take_heads(layer, rows, heads);
    }
  });
  threads_.barrier();
}

// The keys and values of the last layer are written: nothing more of the other rows is needed.  Rows
// move up, so few that one thread moves them.
void Model::keep_wanted(Thread& self) {
  if (self.index == 0) {
    for (std::size_t to = 0; to < rows_.logits_rows.size(); ++to) {
      const std::int64_t from = rows_.logits_rows[to], at = std::int64_t(to);
      std::copy_n(hidden_.data() + from * shape_.hidden_size, shape_.hidden_size,
                  hidden_.data() + at * shape_.hidden_size);
      std::copy_n(qkv_.data() + from * qkv_stride_, shape_.q_width(), qkv_.data() + at * qkv_stride_);
    }
  }
  self.rows = &wanted_;
  threads_.barrier();
}

// Attention, whose tasks go to whoever is free, and its projection into the residual stream.
void Model::attend(Thread& self, std::int32_t layer) {
  const LayerWeights& weights = weights_->layers[std::size_t(layer)];
  const AttentionPlan& plan = self.rows == &wanted_
                                  ? wanted_plan_
                                  : plans_[std::size_t(layer_plan_[std::size_t(layer)])];
  const KvAttentionArgs args{qkv_.data(),
                             attended_.data(),
                             kv_pool_.layer(layer),
                             qkv_stride_,
                             shape_.q_width(),
                             kv_pool_.layout().block_bytes(),
                             kv_pool_.layout(),
                             shape_.query_scale,
                             shape_.attention_softcap,
                             shape_.windows[std::size_t(layer)],
                             shape_.num_heads};
  const std::vector<KvAttentionTask>& tasks = plan.tasks();
  take_parts(self, std::int64_t(tasks.size()), 1, [&](Span part) {
    const KvAttentionTask* task = tasks.data() + part.first;
    const KvAttentionTask* next = part.end < std::int64_t(tasks.size()) ? task + 1 : nullptr;
    isa_.attention_for(*task)(args, *task, next, self.scratch.data());
  });
  threads_.barrier();
  const Operand attended = attended_rows(self, plan, weights.attention_output);
  add_projection(self, weights.attention_output, attended, weights.post_attention_norm);
}

void Model::take_heads(std::int32_t layer, const RowBlock& rows, Span heads) {
  const LayerWeights& weights = weights_->layers[std::size_t(layer)];
  for (std::int64_t row = rows.first; row < rows.end; ++row) {
    for (std::int64_t head = heads.first; head < heads.end; ++head) {
      take_head(weights, layer, row, head);
    }
  }
}

// Bias, norm and rotation of one head of one row; a key or value is stored.
void Model::take_head(const LayerWeights& weights, std::int32_t layer, std::int64_t row,
                      std::int64_t head) {
  const std::int64_t head_dim = shape_.head_dim;
  float* x = qkv_.data() + row * qkv_stride_ + head * head_dim;
  const bool is_query = head < shape_.num_heads;
  const bool is_value = head >= shape_.num_heads + shape_.num_kv_heads;
  if (shape_.qkv_bias) isa_.rows->add(x, weights.qkv_bias.data() + head * head_dim, head_dim);
  if (!is_value) {
    if (shape_.qk_norm) {
      const std::vector<float>& norm = is_query ? weights.q_norm : weights.k_norm;
      isa_.rows->rms_norm(x, norm.data(), shape_.eps, head_dim, x);
    }
    const auto rope = std::size_t(shape_.layer_rope[std::size_t(layer)]);
    const std::int64_t at = row * (shape_.rotary_dim / 2);
    isa_.rows->rotate(x, cosines_[rope].data() + at, sines_[rope].data() + at, shape_.rotary_dim,
                      shape_.rope_style);
  }
  if (is_query) return;
  const std::int64_t kv_head = (head - shape_.num_heads) % shape_.num_kv_heads;
  const std::int64_t slot = rows_.slots[std::size_t(row)];
  const std::int32_t block_size = kv_pool_.layout().block_size;
  isa_.kv_write(kv_pool_.layout(), kv_pool_.head(slot / block_size, layer, kv_head),
                int(slot % block_size), is_value ? nullptr : x, is_value ? x : nullptr);
}

// Attention's output in the forms that `projection` takes; parts of a context are merged.
Operand Model::attended_rows(Thread& self, const AttentionPlan& plan, const Projection& projection) {
  const std::int64_t width = shape_.q_width(), head_dim = shape_.head_dim;
  const bool alone = self.rows->num_tokens() <= kAloneRows;
  const Operand out{alone ? self.x.data() : attended_.data(), width,
                    (alone ? self.quantized : *quantized_).rows(width)};
  const auto take_row = [&](std::int64_t row, const RowBlock& block) {
    float* to = out.x + row * width;
    if (plan.parts(*self.rows, row, 0).count == 1) {
      if (alone) std::copy_n(attended_.data() + row * width, width, to);
    } else {
      for (std::int64_t head = 0; head < shape_.num_heads; ++head) {
        const AttentionPlan::Parts parts = plan.parts(*self.rows, row, head);
        isa_.kv_merge(parts.first, parts.count, parts.stride, int(head_dim), to + head * head_dim);
      }
    }
    if (projection.takes_int8()) rounding(isa_.matmul, form(projection, block))(to, out.quantized, row);
  };
  take_rows(self, self.rows->num_tokens(), self.rows->blocks, take_row);
  return out;
}

}  // namespace starshade
