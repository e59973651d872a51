// Sixteen floats at a time, in whatever registers the instruction set has.  For kernels only:
// GCC and Clang vector extensions, no C++ headers (see CMakeLists.txt).
#pragma once

#include <stdint.h>

namespace starshade {
namespace STARSHADE_ISA {
namespace {

constexpr int kLanes = 16;

typedef float Vec __attribute__((vector_size(kLanes * 4)));
typedef float UnalignedVec __attribute__((vector_size(kLanes * 4), aligned(4), may_alias));
typedef int32_t IntVec __attribute__((vector_size(kLanes * 4)));

inline Vec load(const float* from) { return *reinterpret_cast<const UnalignedVec*>(from); }
inline void store(float* to, Vec value) { *reinterpret_cast<UnalignedVec*>(to) = value; }
inline Vec broadcast(float value) { return value - Vec{}; }

// Across the lanes, pairwise.
inline float sum(Vec v) {
  typedef float Half __attribute__((vector_size(32)));
  typedef float Quarter __attribute__((vector_size(16)));
  const Half half = __builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7) +
                    __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15);
  const Quarter quarter = __builtin_shufflevector(half, half, 0, 1, 2, 3) +
                          __builtin_shufflevector(half, half, 4, 5, 6, 7);
  return (quarter[0] + quarter[2]) + (quarter[1] + quarter[3]);
}

}  // namespace
}  // namespace STARSHADE_ISA
}  // namespace starshade
