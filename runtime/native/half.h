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

// To nearest, ties to even.
inline std::uint16_t half_of_float(float value) {
  const std::uint32_t bits = bits_of_float(value);
  const auto sign = std::uint16_t(bits >> 16 & 0x8000u);
  const std::uint32_t rest = bits & 0x7fffffffu;
  if (rest > 0x7f800000u) return sign | 0x7e00u;
  if (rest >= 0x477ff000u) return sign | 0x7c00u;  // 65520 and more
  if (rest < 0x38800000u) {  // below 2^-14: units of 2^-24, which adding 0.5 rounds to
    const float shifted = float_of_bits(rest) + 0.5f;
    return sign | std::uint16_t(bits_of_float(shifted) - bits_of_float(0.5f));
  }
  const std::uint32_t odd = rest >> 13 & 1u;
  return sign | std::uint16_t((rest - (112u << 23) + 0xfffu + odd) >> 13);
}

}  // namespace starshade
