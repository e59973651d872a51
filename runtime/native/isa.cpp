#include "isa.h"

namespace starshade {
namespace {

Isa choose() {
#ifdef STARSHADE_HAS_avx512
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
    return {"avx512", avx512::attention, avx512::linear};
  }
#endif
#ifdef STARSHADE_HAS_avx2
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    return {"avx2", avx2::attention, avx2::linear};
  }
#endif
  return {"portable", portable::attention, portable::linear};
}

}  // namespace

const Isa& best_isa() {
  static const Isa isa = choose();
  return isa;
}

}  // namespace starshade
