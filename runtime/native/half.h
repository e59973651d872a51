// IEEE half precision in plain C++, for packing; kernels convert in registers.
#pragma once

#include <cstdint>
#include <cstring>

namespace starshade {

inline float float_of_bits(std::uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

inline std::uint32_t bits_of_float(float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

inline float float_of_half(std::uint16_t half) {
  const std::uint32_t sign = std::uint32_t(half & 0x8000u) << 16;
  const std::uint32_t rest = half & 0x7fffu;
  if (rest >= 0x7c00u) return float_of_bits(sign | 0x7f800000u | (rest & 0x3ffu) << 13);
  // A half's exponent bias is 112 less: scaled by a power of two, also when it is subnormal.
  const float magnitude = float_of_bits(rest << 13) * float_of_bits(239u << 23);
  return float_of_bits(sign | bits_of_float(magnitude));
}

}  // namespace starshade
