#include "thread_pool.h"

namespace starshade {

ThreadPool::ThreadPool(std::size_t num_threads) {
  for (std::size_t thread = 1; thread < num_threads; ++thread) {
    workers_.emplace_back([this, thread] { work(thread); });
  }
}

ThreadPool::~ThreadPool() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  start_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::run(std::size_t num_tasks, const Task& task) {
  std::lock_guard<std::mutex> call(calls_);
  if (num_tasks <= 1 || workers_.empty()) {
    for (std::size_t index = 0; index < num_tasks; ++index) task(index, 0);
    return;
  }
  {
    std::lock_guard<std::mutex> lock(mutex_);
    task_ = &task;
    num_tasks_ = num_tasks;
    next_.store(0, std::memory_order_relaxed);
    ++generation_;
  }
  start_.notify_all();
  take_tasks(task, num_tasks, 0);
  // A worker that has not woken yet finds task_ gone and is not waited for.
  std::unique_lock<std::mutex> lock(mutex_);
  task_ = nullptr;
  done_.wait(lock, [this] { return num_working_ == 0; });
}

void ThreadPool::take_tasks(const Task& task, std::size_t num_tasks, std::size_t thread) {
  for (;;) {
    const std::size_t index = next_.fetch_add(1, std::memory_order_relaxed);
    if (index >= num_tasks) return;
    task(index, thread);
  }
}

void ThreadPool::work(std::size_t thread) {
  std::size_t seen = 0;
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    start_.wait(lock, [&] { return stopping_ || generation_ != seen; });
    if (stopping_) return;
    seen = generation_;
    if (task_ == nullptr) continue;
    const Task& task = *task_;
    const std::size_t num_tasks = num_tasks_;
    ++num_working_;
    lock.unlock();
    take_tasks(task, num_tasks, thread);
    lock.lock();
    if (--num_working_ == 0) done_.notify_one();
  }
}

}  // namespace starshade
