// Which are the largest of a row's logits, and what do all of them sum to?
#pragma once

#include <cstdint>
#include <vector>

#include "isa.h"

namespace starshade {

struct Candidates {
  std::vector<std::int32_t> ids;  // the largest first, ties by id; never of -infinity
  std::vector<float> logits;
  // Natural logarithm of the sum over all allowed of exp(logit * inverse_temperature).
  double log_sum_exp;
  bool is_broken;  // a NaN or +infinity among the allowed
};

// The `count` largest of `width` logits. allowed: as RowKernels::scan, ceil(width / 32) words.
Candidates select_largest(const Isa& isa, const float* logits, std::int64_t width,
                          std::int64_t count, float inverse_temperature,
                          const std::uint32_t* allowed);

// The id at which the sum of exp((x - best) * inverse_temperature), taken in the order of ids,
// first exceeds `uniform` (in [0, 1)) of the whole.  best: the largest logit, which is finite.
std::int32_t draw(const Isa& isa, const float* logits, std::int64_t width, float best,
                  float inverse_temperature, double uniform);

}  // namespace starshade
