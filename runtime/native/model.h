// How does a step's batch become logits?  One pass of all threads over all layers.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "aligned.h"
#include "attention_plan.h"
#include "isa.h"
#include "kv_pool.h"
#include "model_weights.h"
#include "step_rows.h"
#include "thread_pool.h"

namespace starshade {

struct Span { std::int64_t first, end; };

// The next of a few tasks, for whoever is free; alone on its cache line.
struct alignas(64) TaskCounter {
  std::atomic<std::int64_t> next{0};
};

// Float rows, and the same rows as codes; a projection reads whichever it takes.
struct Operand {
  float* x;
  std::int64_t stride;
  QuantizedRows quantized;

  Operand from_row(std::int64_t row) const {
    return {x + row * stride, stride, quantized.from_row(row)};
  }
};

// Weights with a KV pool and scratch of its own: one engine's. One caller at a time.
class Model {
 public:
  Model(ThreadPool& threads, const Isa& isa, std::shared_ptr<const ModelWeights> weights,
        std::int64_t num_blocks, std::int32_t block_size, KvType kv_type,
        std::int64_t max_batch_tokens);
  ~Model();

  // Computes the batch; results stay until the next step.  Throws what StepRows::take throws,
  // before anything is written.  More tokens than max_batch_tokens enlarge the scratch.
  void step(const StepArrays& arrays);

  const ModelWeights& weights() const { return *weights_; }
  KvPool& kv_pool() { return kv_pool_; }
  bool has_bulk() const { return has_bulk_; }
  std::int64_t num_logits_rows() const { return std::int64_t(rows_.logits_rows.size()); }
  std::int64_t logits_stride() const { return logits_stride_; }
  const std::shared_ptr<float>& logits() const { return logits_; }
  const std::vector<BestLogit>& best() const { return best_; }

 private:
  struct Thread;  // scratch of one

  void reserve(std::int64_t num_tokens, std::int64_t num_logits_rows);
  void plan_attention();

  // Calls work(span) until all of 0 .. total - 1 is done by some thread; a span has `part` of them at
  // most, or the thread's share in steps of few rows. Every thread comes here in the same order.
  template <class Work>
  void share_out(Thread& self, std::int64_t total, std::int64_t part, const Work& work);
  // The same whatever the rows: threads take the next part when they are free.
  template <class Work>
  void take_parts(Thread& self, std::int64_t total, std::int64_t part, const Work& work);
  // Calls work(row, block) for every row: of the thread's parts, and then waits for the others; or,
  // of so few rows that each thread needs them itself, for all.
  template <class Work>
  void take_rows(Thread& self, std::int64_t num_rows, const std::vector<RowBlock>& blocks,
                 const Work& work);

  // The parts of a step, run by every thread.
  void run(std::size_t thread, std::size_t num_threads);
  void keep_wanted(Thread& self);
  Form form(const Projection& projection, const RowBlock& rows) const {
    return rows.is_bulk ? projection.bulk_form(isa_.matmul) : Form::groups;
  }
  void embed(Thread& self);
  void embed_rows(Span rows);
  void write_heads(Thread& self, std::int32_t layer);
  void attend(Thread& self, std::int32_t layer);
  void ffn_layer(Thread& self, std::int32_t layer);
  void head(Thread& self);
  void head_outputs(Thread& self, const Operand& in, Span outputs);
  void settle_logits(Thread& self, std::int64_t row, const RowBlock& block);
  BestLogit best_of(std::size_t row) const;
  void refine_logits(Thread& self, std::int64_t row);

  Operand norm_rows(Thread& self, const std::vector<float>& weight, const Projection& projection,
                    const std::int32_t* rows, const std::vector<RowBlock>& blocks);
  Operand attended_rows(Thread& self, const AttentionPlan& plan, const Projection& projection);
  void take_heads(std::int32_t layer, const RowBlock& rows, Span heads);
  void take_head(const LayerWeights& weights, std::int32_t layer, std::int64_t row,
                 std::int64_t head);
  void activate(Thread& self, std::int32_t layer, const Operand& in, const Operand& out);
  void rotate_activated(Thread& self, const Projection& projection, const QuantizedRows& activated);
  void activate_columns(Thread& self, std::int32_t layer, const Operand& in, const Operand& out,
                      const RowBlock& rows, Span columns);
  void add_projection(Thread& self, const Projection& projection, const Operand& in,
                      const std::vector<float>& post_norm);
  // out: that of output 0 of the block's first row; in: of all rows.
  void multiply(const Projection& projection, const Operand& in, const RowBlock& rows, Span outputs,
                float* out, std::int64_t out_stride, Epilogue epilogue) const;

  std::mutex calls_;
  ThreadPool& threads_;
  const Isa& isa_;
  std::shared_ptr<const ModelWeights> weights_;
  const ModelShape& shape_;
  KvPool kv_pool_;
  std::int64_t logits_stride_, qkv_stride_;

  StepRows rows_;
  StepRows wanted_;                         // those that the last layer attends for
  bool has_wanted_ = false;                 // are those fewer?
  std::vector<std::int32_t> plan_windows_;  // distinct ones
  std::vector<AttentionPlan> plans_;        // by distinct window
  AttentionPlan wanted_plan_;
  bool has_bulk_;                           // are many rows multiplied in another form than few?
  std::vector<std::int32_t> layer_plan_;    // by layer: index into plans_
  std::vector<TaskCounter> next_part_;      // of what is shared out, in order

  // Scratch, sized for capacity_ rows.
  std::int64_t capacity_ = 0;
  LineVector<float> hidden_, qkv_, attended_, normed_, activated_, projected_, partials_;
  std::vector<std::vector<float>> cosines_, sines_;  // by rope table: (T, rotary_dim / 2)
  std::unique_ptr<QuantizedBuffer> quantized_, quantized_ffn_;
  std::vector<std::unique_ptr<Thread>> per_thread_;
  std::shared_ptr<float> logits_;
  std::int64_t logits_capacity_ = 0;
  std::vector<BestLogit> best_;
};

}  // namespace starshade
