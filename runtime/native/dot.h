// u8 codes x s8 activations, sixteen outputs at a time, in whatever instructions there are.
// For kernels only; no C++ headers (see CMakeLists.txt).
#pragma once

#include <stdint.h>
#include <string.h>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include "vec.h"

namespace starshade {
namespace STARSHADE_ISA {
namespace {

// Four consecutive inputs' codes of each of 16 outputs.
typedef uint8_t Codes __attribute__((vector_size(64)));
typedef uint8_t UnalignedCodes __attribute__((vector_size(64), aligned(1), may_alias));

inline Codes load_codes(const uint8_t* from) {
  return *reinterpret_cast<const UnalignedCodes*>(from);
}
inline Codes low_nibbles(Codes pairs) { return pairs & 15; }
inline Codes high_nibbles(Codes pairs) { return pairs >> 4; }

inline IntVec broadcast(int32_t value) { return value - IntVec{}; }
inline Vec to_floats(IntVec ints) { return __builtin_convertvector(ints, Vec); }

inline int32_t four(const int8_t* x) {
  int32_t bits;
  memcpy(&bits, x, 4);
  return bits;
}

#if defined(__AVX512VNNI__)

// Of ROWS rows at once, one input after the other in all of them: an addition waits five cycles for the
// one before, and the scheduler sees less far than one row's are long. Few rows have two sums each.
template <int COUNT, int ROWS>
inline void dots(const Codes* codes, const int8_t* const* x, IntVec* totals) {
  constexpr int kSums = ROWS < 4 ? 2 : 1;
  __m512i sums[kSums][ROWS];
  for (int s = 0; s < kSums; ++s) {
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; ++r) sums[s][r] = _mm512_setzero_si512();
  }
#pragma GCC unroll 8
  for (int j = 0; j < COUNT; ++j) {
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; ++r) {
      sums[j % kSums][r] = _mm512_dpbusd_epi32(sums[j % kSums][r], (__m512i)codes[j],
                                               _mm512_set1_epi32(four(x[r] + 4 * j)));
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < ROWS; ++r) {
    totals[r] = (IntVec)(kSums == 1 ? sums[0][r] : _mm512_add_epi32(sums[0][r], sums[kSums - 1][r]));
  }
}

// Codes to 15: sums of (code - OFFSET) x activation, `sums` being those of the activations.
template <int COUNT, int OFFSET, int ROWS>
inline void dots_4bit(const Codes* codes, const int8_t* const* x, const int32_t* sums, IntVec* totals) {
  dots<COUNT, ROWS>(codes, x, totals);
#pragma GCC unroll 8
  for (int r = 0; OFFSET != 0 && r < ROWS; ++r) totals[r] -= broadcast(sums[r]) * OFFSET;
}

// Any codes, offset 128.
template <int COUNT, int ROWS>
inline void dots_8bit(const Codes* codes, const int8_t* const* x, const int32_t* sums, IntVec* totals) {
  dots_4bit<COUNT, 128, ROWS>(codes, x, sums, totals);
}

#elif defined(__AVX512BW__)

template <int COUNT, int OFFSET>
inline IntVec dot_4bit(const Codes* codes, const int8_t* x, int32_t sum) {
  __m512i pairs = _mm512_setzero_si512();  // at most 8 x 2 x 15 x 127 < 2^15
  for (int j = 0; j < COUNT; ++j) {
    const __m512i items = _mm512_set1_epi32(four(x + 4 * j));
    pairs = _mm512_add_epi16(pairs, _mm512_maddubs_epi16((__m512i)codes[j], items));
  }
  return (IntVec)_mm512_madd_epi16(pairs, _mm512_set1_epi16(1)) - OFFSET * sum;
}

template <int COUNT>
inline IntVec dot_8bit(const Codes* codes, const int8_t* x, int32_t) {
  __m512i total = _mm512_setzero_si512();
  for (int j = 0; j < COUNT; ++j) {
    const __m512i items = _mm512_set1_epi32(four(x + 4 * j));
    // |code - 128| <= 128 as u8, its sign moved to the activation: 2 x 128 x 127 < 2^15.
    const __m512i value = _mm512_xor_si512((__m512i)codes[j], _mm512_set1_epi8(-128));
    const __m512i moved = _mm512_mask_sub_epi8(items, _mm512_movepi8_mask(value),
                                               _mm512_setzero_si512(), items);
    const __m512i pairs = _mm512_maddubs_epi16(_mm512_abs_epi8(value), moved);
    total = _mm512_add_epi32(total, _mm512_madd_epi16(pairs, _mm512_set1_epi16(1)));
  }
  return (IntVec)total;
}

#elif defined(__AVX2__)

struct Halves {
  __m256i low, high;
};

inline Halves halves(Codes codes) {
  Halves both;
  memcpy(&both, &codes, sizeof both);
  return both;
}

inline IntVec whole(__m256i low, __m256i high) {
  const Halves both{low, high};
  IntVec result;
  memcpy(&result, &both, sizeof result);
  return result;
}

template <int COUNT, int OFFSET>
inline IntVec dot_4bit(const Codes* codes, const int8_t* x, int32_t sum) {
  __m256i low = _mm256_setzero_si256(), high = low;  // at most 8 x 2 x 15 x 127 < 2^15
  for (int j = 0; j < COUNT; ++j) {
    const __m256i items = _mm256_set1_epi32(four(x + 4 * j));
    const Halves both = halves(codes[j]);
    low = _mm256_add_epi16(low, _mm256_maddubs_epi16(both.low, items));
    high = _mm256_add_epi16(high, _mm256_maddubs_epi16(both.high, items));
  }
  const __m256i ones = _mm256_set1_epi16(1), less = _mm256_set1_epi32(OFFSET * sum);
  return whole(_mm256_sub_epi32(_mm256_madd_epi16(low, ones), less),
               _mm256_sub_epi32(_mm256_madd_epi16(high, ones), less));
}

// |code - 128| <= 128 as u8, its sign moved to the activation: 2 x 128 x 127 < 2^15.
inline __m256i signed_dot(__m256i codes, __m256i items, __m256i total) {
  const __m256i value = _mm256_xor_si256(codes, _mm256_set1_epi8(-128));
  const __m256i pairs =
      _mm256_maddubs_epi16(_mm256_abs_epi8(value), _mm256_sign_epi8(items, value));
  return _mm256_add_epi32(total, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}

template <int COUNT>
inline IntVec dot_8bit(const Codes* codes, const int8_t* x, int32_t) {
  __m256i low = _mm256_setzero_si256(), high = low;
  for (int j = 0; j < COUNT; ++j) {
    const __m256i items = _mm256_set1_epi32(four(x + 4 * j));
    const Halves both = halves(codes[j]);
    low = signed_dot(both.low, items, low);
    high = signed_dot(both.high, items, high);
  }
  return whole(low, high);
}

#else

template <int COUNT, int OFFSET>
inline IntVec dot_4bit(const Codes* codes, const int8_t* x, int32_t sum) {
  int32_t total[kLanes];
  for (int lane = 0; lane < kLanes; ++lane) total[lane] = -OFFSET * sum;
  uint8_t bytes[COUNT * 64];
  memcpy(bytes, codes, sizeof bytes);
  for (int j = 0; j < COUNT; ++j) {
    for (int i = 0; i < 64; ++i) total[i / 4] += bytes[64 * j + i] * x[4 * j + i % 4];
  }
  IntVec result;
  memcpy(&result, total, sizeof result);
  return result;
}

template <int COUNT>
inline IntVec dot_8bit(const Codes* codes, const int8_t* x, int32_t sum) {
  return dot_4bit<COUNT, 128>(codes, x, sum);
}

#endif

#if !defined(__AVX512VNNI__)

template <int COUNT, int OFFSET, int ROWS>
inline void dots_4bit(const Codes* codes, const int8_t* const* x, const int32_t* sums, IntVec* totals) {
#pragma GCC unroll 8
  for (int r = 0; r < ROWS; ++r) totals[r] = dot_4bit<COUNT, OFFSET>(codes, x[r], sums[r]);
}

template <int COUNT, int ROWS>
inline void dots_8bit(const Codes* codes, const int8_t* const* x, const int32_t* sums, IntVec* totals) {
#pragma GCC unroll 8
  for (int r = 0; r < ROWS; ++r) totals[r] = dot_8bit<COUNT>(codes, x[r], sums[r]);
}

#endif

// Sixteen halves as floats.
inline Vec load_halves(const uint8_t* from) {
#if defined(__AVX512F__)
  return (Vec)_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
#elif defined(__F16C__)
  const __m128i* at = reinterpret_cast<const __m128i*>(from);
  const __m256 both[2] = {_mm256_cvtph_ps(_mm_loadu_si128(at)),
                          _mm256_cvtph_ps(_mm_loadu_si128(at + 1))};
  Vec result;
  memcpy(&result, both, sizeof result);
  return result;
#else
  uint16_t halves[kLanes];
  memcpy(halves, from, sizeof halves);
  IntVec bits = {};
  for (int lane = 0; lane < kLanes; ++lane) bits[lane] = halves[lane];
  const IntVec rest = bits & 0x7fff;
  // A half's exponent bias is 112 less; infinities and NaNs keep the largest exponent.
  const Vec scaled = (Vec)(rest << 13) * 0x1p112f;
  const IntVec special = rest >= 0x7c00;
  const IntVec magnitude =
      (special & ((rest << 13) | 0x7f800000)) | (~special & (IntVec)scaled);
  return (Vec)(magnitude | ((bits & 0x8000) << 16));
#endif
}

}  // namespace
}  // namespace STARSHADE_ISA
}  // namespace starshade
