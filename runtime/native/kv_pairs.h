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
  // Adds the weights that `put` stored to their sum, in any lanes.
  static Vec add_weights(Vec total, const float* weights) {
    return total + (load(weights) + load(weights + kLanes));
  }
};

// 16-bit items become floats again: a product of bf16 takes twice as long as the two of floats that
// do its work.
struct PairsBf16 {
  using Coefficient = float;
  static constexpr int kDegree = 6;
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
  static Vec add_weights(Vec total, const float* weights) {
    return PairsF32::add_weights(total, weights);
  }
};

#if defined(__AMX_BF16__)
// Coefficients as the tile unit takes them.
struct PairsOfTiles {
  using Coefficient = Bf16;
  static constexpr int kDegree = 4;
  static void put(Bf16* to, Vec first, Vec second) {
    const __m512bh both = _mm512_cvtne2ps_pbh((__m512)second, (__m512)first);
    _mm512_storeu_si512(to, (__m512i)both);
  }
  // The rounded ones: what they are divided by then errs as they do.
  static Vec add_weights(Vec total, const Bf16* weights) {
    const __m512bh ones = (__m512bh)_mm512_set1_epi16(0x3f80);
    return (Vec)_mm512_dpbf16_ps((__m512)total, (__m512bh)_mm512_loadu_si512(weights), ones);
  }
};
#endif

}  // namespace
}  // namespace STARSHADE_ISA
}  // namespace starshade
