// How is a step's attention cut into tasks?
#pragma once

#include <cstdint>
#include <vector>

#include "kv_kernel.h"
#include "step_rows.h"

namespace starshade {

// The attention tasks of a step for one window, the same in every layer that has it.
class AttentionPlan {
 public:
  // Partial results of one (row, head), to be merged. count 1: the task wrote the output itself.
  struct Parts {
    std::int32_t count;
    const float* first;
    std::int64_t stride;
  };

  // Sequences of few rows are cut at fixed positions of their context, so that the few KV heads
  // of one sequence keep several threads busy, and so that a row's sums do not depend on the batch.
  // A part whose blocks several of them share is one task for all: it is read once.
  void make(const StepRows& rows, const KvLayout& layout, std::int32_t num_heads,
            std::int32_t window);

  const std::vector<KvAttentionTask>& tasks() const { return tasks_; }
  Parts parts(const StepRows& rows, std::int64_t row, std::int64_t head) const;
  std::int64_t num_partial_floats() const { return num_partial_floats_; }
  // Call when the place of partial results is known.
  void set_partials(float* partials);

 private:
  // Of a sequence: its parts, and where the first one's results begin.
  struct Cut {
    std::int32_t first_part, num_parts;
    std::int64_t first_float;
  };
  struct Query {
    std::int32_t sequence, query;
  };
  // A part that the queries of one sequence see, or the only queries of several: their blocks of it
  // are the same.
  struct Part {
    std::int32_t index, first_tile, end_tile;
    std::vector<Query> queries;
  };

  void add_whole(const SequenceRows& sequence, std::int32_t first, std::int32_t end);
  bool add_split(const StepRows& rows, std::int32_t index);
  void share(const StepRows& rows, const Part& part);
  void add_part(const StepRows& rows, const Part& part);
  bool goes_by_tiles(const SequenceRows& sequence, std::int32_t num_queries) const;
  std::int32_t tile_of(std::int32_t position) const;
  std::int32_t first_tile_of(std::int32_t first_position) const;
  std::int64_t query_floats() const { return std::int64_t{group_} * (layout_.head_dim + 2); }

  std::vector<KvAttentionTask> tasks_;
  std::vector<std::int64_t> lists_at_;     // by task: where it begins in the lists; -1: in none
  std::vector<std::int32_t> query_rows_;   // of tasks with partial results: each query's row,
  std::vector<std::int64_t> partials_at_;  // and where its results begin, in floats
  std::vector<float*> partials_of_;        // and as pointers
  std::vector<Cut> cuts_;                  // by sequence
  std::vector<Part> shared_;
  KvLayout layout_{};
  std::int32_t group_ = 1, window_ = 0;
  const float* partials_ = nullptr;
  std::int64_t num_partial_floats_ = 0;
};

}  // namespace starshade
