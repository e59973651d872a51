#include "select.h"

#include <algorithm>
#include <cmath>
#include <functional>

namespace starshade {
namespace {

constexpr std::int64_t kDrawPiece = 1024;

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

std::int32_t draw(const Isa& isa, const float* logits, std::int64_t width, float best,
                  float inverse_temperature, double uniform) {
  // 1. Sums of pieces. 2. The piece that holds the point. 3. Walk through it.
  std::vector<double> sums;
  double total = 0;
  for (std::int64_t start = 0; start < width; start += kDrawPiece) {
    sums.push_back(isa.rows->sum_exp(logits + start, std::min(kDrawPiece, width - start), nullptr,
                                     best, inverse_temperature));
    total += sums.back();
  }
  const double target = uniform * total;
  double reached = 0;
  std::size_t piece = 0;
  while (piece + 1 < sums.size() && reached + sums[piece] <= target) reached += sums[piece++];
  const std::int64_t first = std::int64_t(piece) * kDrawPiece;
  std::int64_t last_possible = -1;
  for (std::int64_t id = first; id < std::min(first + kDrawPiece, width); ++id) {
    const double weight = std::exp(double(logits[id] - best) * double(inverse_temperature));
    if (weight <= 0) continue;
    last_possible = id;
    reached += weight;
    if (reached > target) break;
  }
  // Rounding may leave the point just past a piece of vanishing weights: the best is never wrong.
  if (last_possible < 0) last_possible = std::find(logits, logits + width, best) - logits;
  return std::int32_t(last_possible);
}

}  // namespace starshade
