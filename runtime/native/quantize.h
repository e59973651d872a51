// Thirty-two activations as int8 codes.  For kernels only; no C++ headers (see CMakeLists.txt).
#pragma once

#include "dot.h"

namespace starshade {
namespace STARSHADE_ISA {
namespace {

#if defined(__AVX512BW__)

inline float largest_size(Vec low, Vec high) {
  return _mm512_reduce_max_ps(
      _mm512_max_ps(_mm512_abs_ps((__m512)low), _mm512_abs_ps((__m512)high)));
}

// To the nearest, ties to even; their sum and that of the first half.
inline void put_codes(Vec low, Vec high, int8_t* to, int32_t& half_sum, int32_t& sum) {
  const __m512i first = _mm512_cvtps_epi32((__m512)low), second = _mm512_cvtps_epi32((__m512)high);
  __m128i* at = reinterpret_cast<__m128i*>(to);
  _mm_storeu_si128(at, _mm512_cvtsepi32_epi8(first));
  _mm_storeu_si128(at + 1, _mm512_cvtsepi32_epi8(second));
  half_sum = _mm512_reduce_add_epi32(first);
  sum = _mm512_reduce_add_epi32(_mm512_add_epi32(first, second));
}

#elif defined(__AVX2__)

inline float largest_size(Vec low, Vec high) {
  __m256 parts[4];
  memcpy(parts, &low, 64);
  memcpy(parts + 2, &high, 64);
  const __m256 sign = _mm256_set1_ps(-0.0f);
  for (__m256& part : parts) part = _mm256_andnot_ps(sign, part);
  const __m256 most =
      _mm256_max_ps(_mm256_max_ps(parts[0], parts[1]), _mm256_max_ps(parts[2], parts[3]));
  __m128 four = _mm_max_ps(_mm256_castps256_ps128(most), _mm256_extractf128_ps(most, 1));
  four = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(four, _mm_movehdup_ps(four)));
}

inline int32_t put_half(Vec values, int8_t* to) {
  __m256 parts[2];
  memcpy(parts, &values, sizeof parts);
  const __m256i first = _mm256_cvtps_epi32(parts[0]), second = _mm256_cvtps_epi32(parts[1]);
  const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(first, second), 0xd8);
  const __m128i bytes =
      _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), bytes);
  const __m256i eight = _mm256_add_epi32(first, second);
  __m128i four = _mm_add_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
  four = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4e));
  return _mm_cvtsi128_si32(_mm_add_epi32(four, _mm_shuffle_epi32(four, 0xb1)));
}

inline void put_codes(Vec low, Vec high, int8_t* to, int32_t& half_sum, int32_t& sum) {
  half_sum = put_half(low, to);
  sum = half_sum + put_half(high, to + kLanes);
}

#else

inline float largest_size(Vec low, Vec high) {
  float most = 0;
  for (int lane = 0; lane < kLanes; ++lane) {
    const float a = low[lane] < 0 ? -low[lane] : low[lane];
    const float b = high[lane] < 0 ? -high[lane] : high[lane];
    most = a > most ? a : most;
    most = b > most ? b : most;
  }
  return most;
}

inline int32_t put_half(Vec values, int8_t* to) {
  // Adding 1.5 x 2^23 leaves the nearest integer, ties to even, in the low bits.
  const IntVec codes = (IntVec)(values + 0x1.8p23f) - 0x4b400000;
  int32_t sum = 0;
  for (int lane = 0; lane < kLanes; ++lane) {
    to[lane] = int8_t(codes[lane]);
    sum += to[lane];
  }
  return sum;
}

inline void put_codes(Vec low, Vec high, int8_t* to, int32_t& half_sum, int32_t& sum) {
  half_sum = put_half(low, to);
  sum = half_sum + put_half(high, to + kLanes);
}

#endif

}  // namespace
}  // namespace STARSHADE_ISA
}  // namespace starshade
