// What do bindings run on?  Threads, the kernels chosen for them, and memory for packed weights.
#pragma once

#include <stdexcept>

#include "arena.h"
#include "isa.h"
#include "thread_pool.h"

namespace starshade {

struct Cpu {
  Cpu(std::size_t num_threads, const Isa& isa) : threads(num_threads), isa(isa) {}
  ThreadPool threads;
  Arena arena;
  const Isa& isa;
};

// ValueError in Python.
inline void require(bool holds, const char* message) {
  if (!holds) throw std::invalid_argument(message);
}

}  // namespace starshade
