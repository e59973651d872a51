// What does one task of a linear layer compute?  The contract between dispatch and ISA objects.
#pragma once

#include <stdint.h>

namespace starshade {

struct LinearArgs {
  const float* x;       // (rows, width)
  const float* weight;  // (outputs, width)
  const float* add;     // (rows, outputs) or null
  float* out;           // (rows, outputs)
  int64_t rows, width, outputs;
};

// All rows, outputs first .. end - 1.
using LinearKernel = void (*)(const LinearArgs&, int64_t first, int64_t end);

namespace portable { void linear(const LinearArgs&, int64_t first, int64_t end); }
namespace avx2 { void linear(const LinearArgs&, int64_t first, int64_t end); }
namespace avx512 { void linear(const LinearArgs&, int64_t first, int64_t end); }
namespace avx512vnni { void linear(const LinearArgs&, int64_t first, int64_t end); }

}  // namespace starshade
