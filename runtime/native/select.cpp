#include "select.h"

#include <algorithm>
#include <cmath>

namespace starshade {
namespace {

// A value that `count` logits or more reach: the count-th largest of the maxima of blocks, each of
// which is a logit. With fewer blocks than that, all logits reach it.
float reached_by(const Isa& isa, const float* logits, std::int64_t width, std::int64_t count,
                 const std::uint32_t* allowed) {
  std::vector<float> maxima(std::size_t((width + kMaximaBlock - 1) / kMaximaBlock));
  if (std::size_t(count) > maxima.size()) return -INFINITY;
  isa.rows->block_maxima(logits, width, allowed, maxima.data());
  std::nth_element(maxima.begin(), maxima.begin() + (count - 1), maxima.end(), std::greater<>());
  return maxima[std::size_t(count - 1)];
}

}  // namespace

Candidates select_largest(const Isa& isa, const float* logits, std::int64_t width,
                          std::int64_t count, float inverse_temperature,
                          const std::uint32_t* allowed) {
  BestLogit best{-INFINITY, -1, 0};
  isa.rows->scan(logits, width, 0, allowed, &best);
  Candidates found{{}, {}, -INFINITY, best.is_broken != 0};
  if (best.is_broken || best.id < 0) return found;
  found.log_sum_exp = double(best.value) * double(inverse_temperature) +
                      std::log(isa.rows->sum_exp(logits, width, allowed, best.value,
                                                 inverse_temperature));
  count = std::min(count, width);
  if (count < 1) return found;
  const float threshold = reached_by(isa, logits, width, count, allowed);
  std::vector<std::int32_t> ids(static_cast<std::size_t>(width));
  ids.resize(std::size_t(
      isa.rows->collect(logits, width, allowed, threshold, width, ids.data())));
  const auto end = ids.begin() + std::min<std::int64_t>(count, std::int64_t(ids.size()));
  std::partial_sort(ids.begin(), end, ids.end(), [logits](std::int32_t a, std::int32_t b) {
    return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
  });
  found.ids.assign(ids.begin(), end);
  for (const std::int32_t id : found.ids) found.logits.push_back(logits[id]);
  return found;
}

}  // namespace starshade
