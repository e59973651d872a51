#include "isa.h"

#ifdef STARSHADE_HAS_avx512amx
#include <sys/syscall.h>
#include <unistd.h>
#endif

#define STARSHADE_ISA_OF(isa)                                                                  \
  {#isa,          isa::matmul_kernels(), isa::kv_attention,  isa::kv_attention,                \
   isa::kv_write, isa::kv_merge,         &isa::row_kernels, &isa::probe_kernels}

namespace starshade {
namespace {

#ifdef STARSHADE_HAS_avx512amx
// Linux gives a process the tiles' state when it asks; it may have been refused to all.
bool may_use_tiles() {
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // arch_prctl(2), XSTATE of TILEDATA
  return __builtin_cpu_supports("amx-tile") && __builtin_cpu_supports("amx-int8") &&
         __builtin_cpu_supports("amx-bf16") && __builtin_cpu_supports("avx512bf16") &&
         __builtin_cpu_supports("avx512vbmi") &&
         syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}
#endif

std::vector<Isa> find() {
  std::vector<Isa> isas;
#ifdef STARSHADE_HAS_avx512vnni
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512vnni")) {
#ifdef STARSHADE_HAS_avx512amx
    if (may_use_tiles()) {  // for products; all else is the same
      isas.push_back(STARSHADE_ISA_OF(avx512vnni));
      isas.back().name = "avx512amx";
      isas.back().matmul = avx512amx::matmul_kernels();
      isas.back().kv_attention_by_tiles = avx512amx::kv_attention;
      isas.back().probe = &avx512amx::probe_kernels;
    }
#endif
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
