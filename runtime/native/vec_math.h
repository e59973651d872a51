// Exponentials of sixteen floats.  For kernels only, see vec.h.
#pragma once

#include "vec.h"

#ifdef __AVX512F__
#include <immintrin.h>
#endif

namespace starshade {
namespace STARSHADE_ISA {
namespace {

constexpr float kMinusInfinity = -__builtin_inff();
constexpr float kLog2E = 1.44269504088896341f;

inline Vec greater(Vec a, Vec b) { return a > b ? a : b; }
inline IntVec lanes() { return IntVec{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}; }
inline IntVec bits_of(Vec v) { return reinterpret_cast<IntVec>(v); }
inline Vec of_bits(IntVec v) { return reinterpret_cast<Vec>(v); }

inline float maximum(Vec v) {
  typedef float Half __attribute__((vector_size(32)));
  typedef float Quarter __attribute__((vector_size(16)));
  const Half low = __builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7);
  const Half high = __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15);
  const Half half = low > high ? low : high;
  const Quarter first = __builtin_shufflevector(half, half, 0, 1, 2, 3);
  const Quarter second = __builtin_shufflevector(half, half, 4, 5, 6, 7);
  const Quarter quarter = first > second ? first : second;
  const float a = quarter[0] > quarter[2] ? quarter[0] : quarter[2];
  const float b = quarter[1] > quarter[3] ? quarter[1] : quarter[3];
  return a > b ? a : b;
}

// 2^x for x <= 127; 0 below -126 and for -infinity; NaN stays.  Polynomials fitted to 2^f on
// [-1/2, 1/2]: relative error 3e-6 with DEGREE 4, 1e-7 (an ulp) with DEGREE 6.
template <int DEGREE>
inline Vec exp2(Vec x) {
  const IntVec vanishes = x < broadcast(-126.0f);
  x = vanishes ? broadcast(-126.0f) : x;
#ifdef __AVX512F__
  const Vec n = reinterpret_cast<Vec>(
      _mm512_maskz_roundscale_ps(0xffff, reinterpret_cast<__m512>(x), _MM_FROUND_TO_NEAREST_INT));
#else
  const Vec magic = broadcast(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer
  const Vec n = (x + magic) - magic;
#endif
  const Vec f = x - n;
  Vec p;
  if (DEGREE == 4) {
    p = broadcast(9.57010128e-3f);
    p = p * f + 5.59178591e-2f;
    p = p * f + 2.40247443e-1f;
    p = p * f + 6.93121791e-1f;
    p = p * f + 9.99999285e-1f;
  } else {
    p = broadcast(1.53458124e-4f);
    p = p * f + 1.33999309e-3f;
    p = p * f + 9.61848907e-3f;
    p = p * f + 5.55032864e-2f;
    p = p * f + 2.40226462e-1f;
    p = p * f + 6.93147182e-1f;
    p = p * f + 1.0f;
  }
#ifdef __AVX512F__
  const Vec result = reinterpret_cast<Vec>(
      _mm512_maskz_scalef_ps(0xffff, reinterpret_cast<__m512>(p), reinterpret_cast<__m512>(n)));
#else
  const IntVec power = (__builtin_convertvector(n, IntVec) + 127) << 23;
  const Vec result = p * of_bits(power);
#endif
  return vanishes ? Vec{} : result;
}

// 1 / (1 + e^-x)
inline Vec sigmoid(Vec x) {
  Vec power = x * -kLog2E;
  power = power > broadcast(126.0f) ? broadcast(126.0f) : power;
  return 1.0f / (1.0f + exp2<6>(power));
}

inline Vec tanh_of(Vec x) { return 2.0f * sigmoid(2.0f * x) - 1.0f; }

}  // namespace
}  // namespace STARSHADE_ISA
}  // namespace starshade
