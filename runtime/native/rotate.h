// Rotated int8: 64 inputs at a time are turned by a Hadamard matrix, so that none stands out and one
// scale does for hundreds of them.  Activations and weights are turned alike; their products stay.
// For kernels only; no C++ headers (see CMakeLists.txt).  [Ashkboos et al. 2024, QuaRot, sec. 3]
#pragma once

#include <immintrin.h>

#include "dot.h"
#include "matmul_kernel.h"

namespace starshade {
namespace STARSHADE_ISA {
namespace {

// Sums of lanes `STEP` apart in the lower one, differences in the upper one.
template <int STEP>
inline Vec butterfly(Vec v) {
  const IntVec lanes = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  const __m512i others = (__m512i)(lanes ^ STEP);
  const Vec signs = to_floats(1 - 2 * ((lanes & STEP) / STEP));
  return (Vec)_mm512_permutexvar_ps(others, (__m512)v) + v * signs;
}

inline void rotate(Vec (&v)[4]) {
#pragma GCC unroll 4
  for (Vec& part : v) part = butterfly<8>(butterfly<4>(butterfly<2>(butterfly<1>(part))));
  const Vec a = v[0] + v[1], b = v[0] - v[1], c = v[2] + v[3], d = v[2] - v[3];
  v[0] = a + c;
  v[1] = b + d;
  v[2] = a - c;
  v[3] = b - d;
}

// The same of 64 vectors, each of one input.
inline void rotate_inputs(float* x) {
  for (int step = 1; step < kRotated; step *= 2) {
    for (int k = 0; k < kRotated; ++k) {
      if (k & step) continue;
      float *low = x + k * kLanes, *high = low + step * kLanes;
      const Vec a = load(low), b = load(high);
      store(low, a + b);
      store(high, a - b);
    }
  }
}

inline Vec magnitude(Vec v) { return (Vec)_mm512_abs_ps((__m512)v); }
inline Vec larger(Vec a, Vec b) { return (Vec)_mm512_max_ps((__m512)a, (__m512)b); }
inline IntVec nearest(Vec v) { return (IntVec)_mm512_cvtps_epi32((__m512)v); }  // ties to even

// load_inputs(k): sixteen inputs from k on.
template <class LoadInputs>
inline void rotate_with(const LoadInputs& load_inputs, int64_t num_inputs, const RotatedRows& rows,
                        int64_t row) {
  alignas(64) float turned[kMostPartInputs];
  const int64_t parts = rotated_parts(rows.num_inputs);
  for (int64_t part = 0; part < parts; ++part) {
    const int64_t first = rotated_part(rows.num_inputs, part);
    const int64_t end = rotated_part(rows.num_inputs, part + 1);
    Vec most = {};
    __mmask16 broken = 0;  // NaN, which no maximum keeps
    for (int64_t k = first; k < end; k += kRotated) {
      Vec v[4];
      for (int i = 0; i < 4; ++i) {
        v[i] = k + i * kLanes < num_inputs ? load_inputs(k + i * kLanes) : Vec{};
      }
      rotate(v);
      for (int i = 0; i < 4; ++i) {
        most = larger(most, magnitude(v[i]));
        broken |= _mm512_cmp_ps_mask((__m512)v[i], (__m512)v[i], _CMP_UNORD_Q);
        store(turned + k - first + i * kLanes, v[i]);
      }
    }
    const float largest = _mm512_reduce_max_ps((__m512)most);
    const float inverse = largest > 0 ? 127.0f / largest : 0.0f;
    int8_t* codes = rows.codes + row * rows.num_inputs + first;
    for (int64_t k = 0; k < end - first; k += kLanes) {
      const IntVec ints = nearest(load(turned + k) * inverse);
      _mm_storeu_si128(reinterpret_cast<__m128i*>(codes + k), _mm512_cvtsepi32_epi8((__m512i)ints));
    }
    rows.scales[row * parts + part] = broken ? __builtin_nanf("") : largest / 127.0f;
  }
}

inline void rotate_row(const float* x, int64_t num_inputs, const RotatedRows& rows, int64_t row) {
  rotate_with([x](int64_t k) { return load(x + k); }, num_inputs, rows, row);
}

// Of a row that round_row has rounded.
inline void rotate_rounded_row(const uint16_t* x, int64_t num_inputs, const RotatedRows& rows,
                               int64_t row) {
  const auto widen = [x](int64_t k) {
    const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x + k));
    return (Vec)_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16);
  };
  rotate_with(widen, num_inputs, rows, row);
}

// The codes of sixteen outputs' weights, four inputs to a line; their scales.
inline void put_rotated(const float* x, int64_t num_inputs, int8_t* codes, float* scales) {
  Vec most = {};
  for (int64_t k = 0; k < num_inputs; ++k) most = larger(most, magnitude(load(x + k * kLanes)));
  store(scales, most * (1.0f / (127 * kRotated)));  // both turns together are 64 times the identity
  const Vec inverse = most > Vec{} ? 127.0f / most : Vec{};
  for (int64_t k = 0; k < num_inputs; k += 4, codes += 64) {
    IntVec line = {};
    for (int b = 0; b < 4; ++b) {
      const IntVec code = nearest(load(x + (k + b) * kLanes) * inverse);
      line |= (code & 255) << (8 * b);
    }
    memcpy(codes, &line, sizeof line);
  }
}

}  // namespace
}  // namespace STARSHADE_ISA
}  // namespace starshade
