#include "placement.h"

#ifdef __linux__
#include <sched.h>
#endif

namespace starshade {

Placement::Placement(std::size_t num_threads) : cores_(num_threads) {
  for (std::atomic<int>& core : cores_) core.store(-1, std::memory_order_relaxed);
}

#ifdef __linux__

void Placement::settle(std::size_t thread) {
  const int core = sched_getcpu();
  cores_[thread].store(core, std::memory_order_relaxed);
  bool shared = false;
  for (std::size_t other = 0; other < thread; ++other) {
    shared |= cores_[other].load(std::memory_order_relaxed) == core;
  }
  cpu_set_t allowed;
  if (!shared || core < 0 || sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
  cpu_set_t free = allowed;
  for (std::size_t other = 0; other < thread; ++other) {
    const int taken = cores_[other].load(std::memory_order_relaxed);
    if (taken >= 0 && taken < CPU_SETSIZE) CPU_CLR(std::size_t(taken), &free);
  }
  if (CPU_COUNT(&free) == 0) return;
  if (sched_setaffinity(0, sizeof free, &free) != 0) return;  // moves this thread at once
  cores_[thread].store(sched_getcpu(), std::memory_order_relaxed);
  sched_setaffinity(0, sizeof allowed, &allowed);
}

#else

void Placement::settle(std::size_t) {}

#endif

}  // namespace starshade
