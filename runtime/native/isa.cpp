#include "isa.h"

namespace starshade {
namespace {

std::vector<Isa> find() {
  std::vector<Isa> isas;
#ifdef STARSHADE_HAS_avx512vnni
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bf16")) {
    isas.push_back({"avx512vnni", avx512vnni::attention, avx512vnni::linear,
                    avx512vnni::matmul_kernels()});
  }
#endif
#ifdef STARSHADE_HAS_avx512
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
    isas.push_back({"avx512", avx512::attention, avx512::linear, avx512::matmul_kernels()});
  }
#endif
#ifdef STARSHADE_HAS_avx2
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
      __builtin_cpu_supports("f16c")) {
    isas.push_back({"avx2", avx2::attention, avx2::linear, avx2::matmul_kernels()});
  }
#endif
  isas.push_back({"portable", portable::attention, portable::linear, portable::matmul_kernels()});
  return isas;
}

}  // namespace

const std::vector<Isa>& usable_isas() {
  static const std::vector<Isa> isas = find();
  return isas;
}

}  // namespace starshade
