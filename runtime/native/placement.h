// Do a pool's threads stand on cores of their own?
#pragma once

#include <atomic>
#include <cstddef>
#include <vector>

namespace starshade {

// A scheduler may wake a worker on its caller's core, where both then wait for each other at every
// barrier.  Threads are moved apart, not pinned: where each may run stays as it was.
class Placement {
 public:
  explicit Placement(std::size_t num_threads);

  // By each thread as a job starts: leaves the core if a thread of lower index stands on it.
  void settle(std::size_t thread);

 private:
  std::vector<std::atomic<int>> cores_;  // where each thread was last seen
};

}  // namespace starshade
