// Who computes a step's kernels?  A few threads, parked between steps, and the caller.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "placement.h"

namespace starshade {

// run_all: one function on every thread, once per step, meeting at barrier() between dependent
// kernels; a barrier costs well under a microsecond.  Threads without work spin for some tens of microseconds, then sleep: others share the cores.
class ThreadPool {
 public:
  using Body = std::function<void(std::size_t thread, std::size_t num_threads)>;

  // Throws std::system_error when a thread cannot be had.
  explicit ThreadPool(std::size_t num_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  std::size_t num_threads() const { return workers_.size() + 1; }

  // Calls body(thread, num_threads) on every thread, the caller's being thread 0; returns when all
  // have returned.  The body must not throw (the process would end).  One caller at a time.
  void run_all(const Body& body);

  // Inside run_all only, by every thread: returns when all threads have come here.  What each
  // wrote before it, all see after it.
  void barrier();

 private:
  void work(std::size_t thread);
  std::uint64_t next_job(std::uint64_t seen);
  void publish();
  void stop();

  std::vector<std::thread> workers_;
  bool may_spin_ = false;
  Placement placement_;
  std::mutex calls_;  // held for a whole run_all
  std::mutex mutex_;
  std::condition_variable start_, meet_;
  // Each has its cache line.
  alignas(64) std::atomic<std::uint64_t> job_{0};  // how many there were
  std::atomic<int> num_parked_{0};
  const Body* body_ = nullptr;
  alignas(64) std::atomic<std::size_t> num_arrived_{0};
  alignas(64) std::atomic<std::uint64_t> meeting_{0};
  std::atomic<int> num_parked_at_barrier_{0};
  std::atomic<std::chrono::steady_clock::rep> crowded_until_{0};  // others keep cores till then
  std::atomic<bool> stopping_{false};
};

}  // namespace starshade
