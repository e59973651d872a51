// Which instruction set do the kernels use on this CPU?
#pragma once

#include "attention_kernel.h"
#include "linear_kernel.h"

namespace starshade {

struct Isa {
  const char* name;
  AttentionKernel attention;
  LinearKernel linear;
};

// The best that is compiled in and that this CPU has.
const Isa& best_isa();

}  // namespace starshade
