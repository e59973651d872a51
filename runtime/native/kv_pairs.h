// How do two neighbouring items of the paged pool multiply?  For kernels only, once per instruction
// set: no C++ headers (see CMakeLists.txt).
#pragma once

#include "vec_math.h"

namespace starshade {
namespace STARSHADE_ISA {
namespace {

typedef uint16_t Bf16;
typedef IntVec UnalignedIntVec __attribute__((aligned(4), may_alias));

inline IntVec load_int(const void* from) { return *static_cast<const UnalignedIntVec*>(from); }

// Items in pairs, as they lie in the pool, and the coefficients (query items or weights of
// tokens) that they are multiplied by, which lie in pairs too.
struct PairsF32 {
  using Coefficient = float;
  static constexpr bool kHasRest = false;
  static constexpr int kDegree = 6;
  struct Pair { Vec even, odd; };
  static Pair key(const uint8_t* tile, int pair) {
    const float* from = reinterpret_cast<const float*>(tile) + pair * 2 * kLanes;
    return {load(from), load(from + kLanes)};
  }
  static Pair value(const uint8_t* tile, int head_dim, int pair, int d) {
    const float* from = reinterpret_cast<const float*>(tile) + pair * 2 * head_dim + d;
    return {load(from), load(from + head_dim)};
  }
  static Pair first_only(Pair pair) { return {pair.even, Vec{}}; }
  static Vec add_product(Vec sums, Pair pair, const float* coefficients) {
    return sums + pair.even * coefficients[0] + pair.odd * coefficients[1];
  }
  static void put(float* to, Vec first, Vec second) { store(to, first), store(to + kLanes, second); }
  static void put_rest(float*, Vec, Vec) {}
  // Adds the weights that `put` stored to their sum, in any lanes.
  static Vec add_weights(Vec total, const float* weights) {
    return total + (load(weights) + load(weights + kLanes));
  }
};

#ifdef __AVX512BF16__
struct PairsBf16 {
  using Coefficient = Bf16;
  // Queries as the sum of two bf16: one alone costs some agreement with float32.
  static constexpr bool kHasRest = true;
  static constexpr int kDegree = 4;
  typedef __m512bh Pair;
  static Pair key(const uint8_t* tile, int pair) {
    return (__m512bh)_mm512_loadu_si512(tile + pair * 4 * kLanes);
  }
  static Pair value(const uint8_t* tile, int head_dim, int pair, int d) {
    return (__m512bh)_mm512_loadu_si512(tile + (pair * head_dim + d) * 4);
  }
  static Pair first_only(Pair pair) {
    return (__m512bh)_mm512_and_si512((__m512i)pair, _mm512_set1_epi32(0xffff));
  }
  static Vec add_product(Vec sums, Pair pair, const Bf16* coefficients) {
    int32_t both;
    __builtin_memcpy(&both, coefficients, 4);
    return (Vec)_mm512_dpbf16_ps((__m512)sums, pair, (__m512bh)_mm512_set1_epi32(both));
  }
  static void put(Bf16* to, Vec first, Vec second) {
    const __m512bh both = _mm512_cvtne2ps_pbh((__m512)second, (__m512)first);
    _mm512_storeu_si512(to, (__m512i)both);
  }
  // What rounding left of the items that `put` stored.
  static void put_rest(Bf16* to, Vec first, Vec second) {
    put(to, first - rounded(first), second - rounded(second));
  }
  static Vec rounded(Vec v) {
    const __m256bh halves = _mm512_cvtneps_pbh((__m512)v);
    return (Vec)_mm512_castsi512_ps(
        _mm512_slli_epi32(_mm512_cvtepu16_epi32((__m256i)halves), 16));
  }
  // The rounded ones: what they are divided by then errs as they do.
  static Vec add_weights(Vec total, const Bf16* weights) {
    const __m512bh ones = (__m512bh)_mm512_set1_epi16(0x3f80);
    return (Vec)_mm512_dpbf16_ps((__m512)total, (__m512bh)_mm512_loadu_si512(weights), ones);
  }
};
// Queries as one bf16 each, as tiles take them.
struct RoundedPairs : PairsBf16 {
  static constexpr bool kHasRest = false;
  static void put_rest(Bf16*, Vec, Vec) {}
};
#else
struct PairsBf16 {
  using Coefficient = float;
  static constexpr bool kHasRest = false;
  static constexpr int kDegree = 4;
  using Pair = PairsF32::Pair;
  static Pair widen(IntVec words) { return {of_bits(words << 16), of_bits(words & ~0xffff)}; }
  static Pair key(const uint8_t* tile, int pair) { return widen(load_int(tile + pair * 4 * kLanes)); }
  static Pair value(const uint8_t* tile, int head_dim, int pair, int d) {
    return widen(load_int(tile + (pair * head_dim + d) * 4));
  }
  static Pair first_only(Pair pair) { return PairsF32::first_only(pair); }
  static Vec add_product(Vec sums, Pair pair, const float* coefficients) {
    return PairsF32::add_product(sums, pair, coefficients);
  }
  static void put(float* to, Vec first, Vec second) { PairsF32::put(to, first, second); }
  static void put_rest(float*, Vec, Vec) {}
  static Vec add_weights(Vec total, const float* weights) {
    return PairsF32::add_weights(total, weights);
  }
};
using RoundedPairs = PairsBf16;
#endif

}  // namespace
}  // namespace STARSHADE_ISA
}  // namespace starshade
