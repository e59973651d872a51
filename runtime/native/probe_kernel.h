// What can one core do at most?  The contract between probe.cpp and the ISA objects.
#pragma once

#include <stdint.h>

namespace starshade {

constexpr int64_t kProbeBytes = 256;  // a read's length and start are multiples of it

struct ProbeKernels {
  // Reads all bytes; the result depends on each.
  uint64_t (*read)(const uint8_t* from, int64_t bytes);
  // Products of 8-bit integers summed to 32 bits, and float32 multiply-adds, all in registers.
  // How many operations were done, a multiply and an add being two.
  int64_t (*multiply_int8)(int64_t rounds);
  int64_t (*multiply_f32)(int64_t rounds);
};

namespace portable { extern const ProbeKernels probe_kernels; }
namespace avx2 { extern const ProbeKernels probe_kernels; }
namespace avx512 { extern const ProbeKernels probe_kernels; }
namespace avx512vnni { extern const ProbeKernels probe_kernels; }
namespace avx512amx { extern const ProbeKernels probe_kernels; }

}  // namespace starshade
