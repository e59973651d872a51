// Who computes the tasks of one kernel call?  A few parked threads and the caller.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace starshade {

// Tasks are taken from one counter, so a thread that loses its core delays one task, not all.
// Workers sleep between calls: other processes share the cores.
class ThreadPool {
 public:
  using Task = std::function<void(std::size_t task, std::size_t thread)>;

  explicit ThreadPool(std::size_t num_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  std::size_t num_threads() const { return workers_.size() + 1; }

  // Calls task(0 .. num_tasks - 1, thread index); returns when all are done. One caller at a time.
  void run(std::size_t num_tasks, const Task& task);

 private:
  void work(std::size_t thread);
  void take_tasks(const Task& task, std::size_t num_tasks, std::size_t thread);

  std::vector<std::thread> workers_;
  std::mutex calls_;  // held for a whole run
  std::mutex mutex_;
  std::condition_variable start_, done_;
  const Task* task_ = nullptr;
  std::size_t num_tasks_ = 0;
  std::atomic<std::size_t> next_{0};
  std::size_t num_working_ = 0;
  std::size_t generation_ = 0;
  bool stopping_ = false;
};

}  // namespace starshade
