#include "isa.h"

#define STARSHADE_ISA_OF(isa)                                                                  \
  {#isa, isa::attention, isa::linear, isa::matmul_kernels(), isa::kv_attention, isa::kv_write, \
   isa::kv_merge, &isa::row_kernels, &isa::probe_kernels}

namespace starshade {
namespace {

std::vector<Isa> find() {
  std::vector<Isa> isas;
#ifdef STARSHADE_HAS_avx512vnni
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bf16")) {
    isas.push_back(STARSHADE_ISA_OF(avx512vnni));
  }
#endif
#ifdef STARSHADE_HAS_avx512
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
    isas.push_back(STARSHADE_ISA_OF(avx512));
  }
#endif
#ifdef STARSHADE_HAS_avx2
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
      __builtin_cpu_supports("f16c")) {
    isas.push_back(STARSHADE_ISA_OF(avx2));
  }
#endif
  isas.push_back(STARSHADE_ISA_OF(portable));
  return isas;
}

}  // namespace

const std::vector<Isa>& usable_isas() {
  static const std::vector<Isa> isas = find();
  return isas;
}

}  // namespace starshade
