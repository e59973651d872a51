// Do a pool's threads stand on cores of their own?
#pragma once

#include <atomic>
#include <cstddef>
#include <vector>

namespace starshade {

// A scheduler may wake a worker on its caller's core, or move it there when another process wants a
// core for a moment, and leave it: both then wait for each other at every barrier, for up to 10 ms
// beside an idle core.  Threads are moved apart, not pinned: where each may run stays as it was.
class Placement {
 public:
  explicit Placement(std::size_t num_threads);

  // By each thread as a job starts: leaves the core if a thread of lower index stands on it.
  void settle(std::size_t thread);
  // By each thread as it comes to a barrier: where it stands now.
  void note(std::size_t thread);
  // By a thread that waits there for another: leaves the core if any stood on it last.
  void part(std::size_t thread);

 private:
  bool is_taken(int core, std::size_t thread, std::size_t num_others) const;
  void leave(std::size_t thread, std::size_t num_others);

  std::vector<std::atomic<int>> cores_;  // where each thread was last seen
};

}  // namespace starshade
