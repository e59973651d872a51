// Scores become weights of one bf16 each, by a table.  For kernels only; no C++ headers (see
// CMakeLists.txt).
//
// A bf16 is a floating-point number of seven bits after the point, so 2^x is nearly x itself in fixed
// point: whole bits go where the exponent lies.  What the fraction's bits then lack is looked up.  With
// eight bits of x, the last to be rounded away, a weight errs by 0.20 % (root mean square), bf16 by 0.17.
#pragma once

#include "kv_softmax.h"

namespace starshade {
namespace STARSHADE_ISA {
namespace {

// 256 (f - (2^f - 1)) for four neighbouring fractions f of 1/256 each, nearest integers.
alignas(64) constexpr uint8_t kExcess[64] = {
    0,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 14, 15, 16, 16, 17, 18, 18, 19,
    19, 20, 20, 21, 21, 21, 21, 22, 22, 22, 22, 22, 22, 22, 22, 22, 22, 21, 21, 21, 20, 20,
    20, 19, 18, 18, 17, 16, 16, 15, 14, 13, 12, 11, 10, 9,  8,  7,  5,  4,  2,  1};

constexpr float kOne = 256.0f;            // 1 in fixed point
constexpr float kExponentOfOne = 127.0f;  // of a floating-point 1

// 2^(x - maximum) of two tiles' scores x, in the order in which `gather` lays values: four tokens of
// one, four of the other. Nothing for x = -infinity.
inline __m512i weights_of(Vec first, Vec second, float maximum, __m512i excess) {
  const Vec bias = broadcast(kOne * kExponentOfOne);
  const __m512i a = _mm512_cvtps_epi32((__m512)((first - maximum) * kOne + bias));
  const __m512i b = _mm512_cvtps_epi32((__m512)((second - maximum) * kOne + bias));
  const __m512i bits = _mm512_packus_epi32(a, b);
  const __m512i lacking = _mm512_permutexvar_epi8(_mm512_srli_epi16(bits, 2), excess);
  const __m512i weights = _mm512_mask_sub_epi8(bits, 0x5555555555555555, bits, lacking);
  return _mm512_avg_epu16(weights, _mm512_setzero_si512());  // half of it, rounded up
}

// Caps and hides as softmax_row does.
template <class Rows>
void prepare_scores(const Rows& tile, const Chunk<Rows::kTiles>& chunk, int num_tiles, float* scores,
                    uint32_t masked, int32_t first, int32_t end) {
  for (int t = 0; t < num_tiles; ++t) {
    Vec score = load(scores + t * kLanes);
    if (tile.softcap != 0) score = capped(score, tile.softcap);
    if (masked >> t & 1) score = seen_only(score, chunk, t, first, end);
    store(scores + t * kLanes, score);
  }
}

struct Largest {
  float score;
  bool has_nan;  // which no maximum keeps, nor any integer
};

inline Largest largest_of(const float* scores, int num_tiles) {
  const Vec none = broadcast(kMinusInfinity);
  Vec best[4] = {none, none, none, none};
  __mmask16 ordered = 0xffff;
  for (int t = 0; t < num_tiles; t += 4) {
    Vec score[4];
    for (int i = 0; i < 4; ++i) {
      score[i] = load(scores + (t + i) * kLanes);
      best[i] = greater(score[i], best[i]);
    }
    ordered = _mm512_mask_cmp_ps_mask(ordered, (__m512)score[0], (__m512)score[1], _CMP_ORD_Q);
    ordered = _mm512_mask_cmp_ps_mask(ordered, (__m512)score[2], (__m512)score[3], _CMP_ORD_Q);
  }
  const Vec all = greater(greater(best[0], best[1]), greater(best[2], best[3]));
  return {_mm512_reduce_max_ps((__m512)all), ordered != 0xffff};
}

// Their sum, in any lanes.
template <class Pairs>
inline Vec put_weights(const float* scores, int num_tiles, float largest, Bf16* weights) {
  const __m512i excess = _mm512_load_si512(kExcess);
  Vec totals[2] = {};
  for (int t = 0; t < num_tiles; t += 4) {
    for (int i = 0; i < 2; ++i) {
      const int64_t at = (t + 2 * i) * kLanes;
      const __m512i both = weights_of(load(scores + at), load(scores + at + kLanes), largest, excess);
      _mm512_storeu_si512(weights + at, both);
      totals[i] = Pairs::add_weights(totals[i], weights + at);
    }
  }
  return totals[0] + totals[1];
}

// Scores of one row become weights. A chunk is a part of its own: there are no sums to rescale yet.
template <class Rows>
void softmax_by_table(const Rows& tile, const Chunk<Rows::kTiles>& chunk, int row, uint32_t masked,
                      int32_t first, int32_t end) {
  static_assert(Rows::kTiles == kPartTiles && kPartTiles % 4 == 0, "four tiles at a time");
  const int num_tiles = (chunk.num_tiles + 3) / 4 * 4;  // past the last one all is masked
  float* scores = tile.scores + row * Rows::kKeys;
  Bf16* weights = tile.weights + row * Rows::kKeys;
  if (masked != 0 || tile.softcap != 0) {
    prepare_scores(tile, chunk, num_tiles, scores, masked, first, end);
  }
  const Largest largest = largest_of(scores, num_tiles);
  tile.maxima[row] = largest.score;
  Vec total = {};
  if (largest.score == kMinusInfinity) {
    __builtin_memset(weights, 0, size_t(num_tiles) * kLanes * sizeof(Bf16));
  } else {
    total = put_weights<typename Rows::Pairs>(scores, num_tiles, largest.score, weights);
  }
  if (largest.has_nan) {
    total = broadcast(__builtin_nanf(""));
    if (largest.score == kMinusInfinity) tile.maxima[row] = 0;  // else it would not be merged
  }
  store(tile.denominators + row * kLanes, total);
}

}  // namespace
}  // namespace STARSHADE_ISA
}  // namespace starshade
