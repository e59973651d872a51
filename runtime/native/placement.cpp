#include "placement.h"

#ifdef __linux__
#include <sched.h>
#endif

namespace starshade {

Placement::Placement(std::size_t num_threads) : cores_(num_threads) {
  for (std::atomic<int>& core : cores_) core.store(-1, std::memory_order_relaxed);
}

#ifdef __linux__

void Placement::note(std::size_t thread) {
  cores_[thread].store(sched_getcpu(), std::memory_order_relaxed);
}

void Placement::settle(std::size_t thread) {
  note(thread);
  leave(thread, thread);
}

void Placement::part(std::size_t thread) { leave(thread, cores_.size()); }

// Whether one of the first `num_others` threads, other than `thread`, stood on `core` last.
bool Placement::is_taken(int core, std::size_t thread, std::size_t num_others) const {
  for (std::size_t other = 0; other < num_others; ++other) {
    if (other != thread && cores_[other].load(std::memory_order_relaxed) == core) return true;
  }
  return false;
}

void Placement::leave(std::size_t thread, std::size_t num_others) {
  const int core = sched_getcpu();
  cpu_set_t allowed;
  if (core < 0 || !is_taken(core, thread, num_others)) return;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
  cpu_set_t free = allowed;
  for (int other = 0; other < CPU_SETSIZE; ++other) {
    if (is_taken(other, thread, num_others)) CPU_CLR(std::size_t(other), &free);
  }
  if (CPU_COUNT(&free) == 0) return;
  if (sched_setaffinity(0, sizeof free, &free) != 0) return;  // moves this thread at once
  note(thread);
  sched_setaffinity(0, sizeof allowed, &allowed);
}

#else

void Placement::settle(std::size_t) {}
void Placement::note(std::size_t) {}
void Placement::part(std::size_t) {}

#endif

}  // namespace starshade
