// How is a linear layer shared among threads?
#pragma once

#include "linear_kernel.h"
#include "thread_pool.h"

namespace starshade {

void linear(ThreadPool& pool, LinearKernel kernel, const LinearArgs& args);

}  // namespace starshade
