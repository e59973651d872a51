#include "thread_pool.h"

#include <chrono>

namespace starshade {
namespace {

// Shorter than the time between two steps: then other processes need the core.
constexpr std::chrono::microseconds kIdleSpin{50};
// At a barrier the others are about to come.  If one is late, it may want this very core; a sleep
// would cost more than the whole kernel, and again at the next barrier.
constexpr std::chrono::microseconds kBarrierSpin{20}, kBarrierYield{2000};
// Whoever gets the core and keeps it longer does not belong to us: a step would lose that much at every
// barrier.  A thread that sleeps gets its core back when it is woken, so for a while all do.
constexpr std::chrono::microseconds kLongYield{500}, kCrowded{50'000};
constexpr std::chrono::microseconds kGiveWay{2000}, kNobody{10};
constexpr int kPausesPerLook = 32;

thread_local std::size_t this_thread = 0;  // its index in the pool that it computes for

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

using Clock = std::chrono::steady_clock;

// Waits actively until `done` or for `most`; says whether it is done.
template <class Done>
bool spin(std::chrono::microseconds most, const Done& done) {
  for (const auto end = Clock::now() + most; Clock::now() < end;) {
    for (int pauses = 0; pauses < kPausesPerLook; ++pauses) {
      if (done()) return true;
      pause();
    }
  }
  return done();
}

// Gives the core away until `done`, for kBarrierYield or until it is kept; says whether it is done.
template <class Done>
bool yield(std::atomic<Clock::rep>& crowded_until, const Done& done) {
  const auto start = Clock::now();
  if (start.time_since_epoch().count() < crowded_until.load(std::memory_order_relaxed)) return done();
  for (auto last = start; last - start < kBarrierYield && !done();) {
    std::this_thread::yield();
    const auto now = Clock::now();
    if (now - last > kLongYield) {
      const auto until = now + std::chrono::duration_cast<Clock::duration>(kCrowded);
      crowded_until.store(until.time_since_epoch().count(), std::memory_order_relaxed);
      break;
    }
    last = now;
  }
  return done();
}

// Before a step: whoever waits for this core has it, kGiveWay at most.  Put off its core in the middle
// of a step a thread holds up all the others, so what takes one core then costs as much of every core.
void give_way(std::atomic<Clock::rep>& crowded_until) {
  const auto start = Clock::now();
  if (start.time_since_epoch().count() < crowded_until.load(std::memory_order_relaxed)) return;
  for (auto last = start;;) {
    std::this_thread::yield();
    const auto now = Clock::now();
    if (now - start > kGiveWay) {
      const auto until = now + std::chrono::duration_cast<Clock::duration>(kCrowded);
      crowded_until.store(until.time_since_epoch().count(), std::memory_order_relaxed);
      return;
    }
    if (now - last < kNobody) return;
    last = now;
  }
}

// Sleeps until `done`.  The waker changes what `done` reads and then looks at `num_parked`; here
// it is the other way round, both sequentially consistent, so one of the two sees the other.
template <class Done>
void park(std::mutex& mutex, std::condition_variable& wake, std::atomic<int>& num_parked,
          const Done& done) {
  std::unique_lock<std::mutex> lock(mutex);
  num_parked.fetch_add(1);
  wake.wait(lock, done);
  num_parked.fetch_sub(1);
}

void wake_parked(std::mutex& mutex, std::condition_variable& wake, std::atomic<int>& num_parked) {
  if (num_parked.load() == 0) return;
  { const std::lock_guard<std::mutex> lock(mutex); }  // a parking thread is asleep by now
  wake.notify_all();
}

}  // namespace

ThreadPool::ThreadPool(std::size_t num_threads)
    : may_spin_(num_threads <= std::thread::hardware_concurrency()), placement_(num_threads) {
  try {
    for (std::size_t thread = 1; thread < num_threads; ++thread) {
      workers_.emplace_back([this, thread] { work(thread); });
    }
  } catch (...) {
    stop();
    throw;
  }
}

ThreadPool::~ThreadPool() { stop(); }

void ThreadPool::stop() {
  stopping_.store(true);
  publish();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::publish() {
  job_.fetch_add(1);
  wake_parked(mutex_, start_, num_parked_);
}

void ThreadPool::run_all(const Body& body) {
  const std::lock_guard<std::mutex> call(calls_);
  if (workers_.empty()) return body(0, 1);
  body_ = &body;
  this_thread = 0;
  placement_.settle(0);
  publish();
  give_way(crowded_until_);
  body(0, num_threads());
  barrier();
}

void ThreadPool::barrier() {
  if (workers_.empty()) return;
  placement_.note(this_thread);
  const std::uint64_t meeting = meeting_.load(std::memory_order_relaxed);
  if (num_arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == num_threads()) {
    num_arrived_.store(0, std::memory_order_relaxed);
    meeting_.store(meeting + 1);
    wake_parked(mutex_, meet_, num_parked_at_barrier_);
    return;
  }
  const auto met = [&] { return meeting_.load() != meeting; };
  if (may_spin_ && spin(kBarrierSpin, met)) return;
  placement_.part(this_thread);
  if (yield(crowded_until_, met)) return;
  park(mutex_, meet_, num_parked_at_barrier_, met);
}

// The newest job's number, another than `seen`.  After a step the next may follow at once.
std::uint64_t ThreadPool::next_job(std::uint64_t seen) {
  const auto come = [&] { return job_.load() != seen; };
  const bool spun = may_spin_ && seen != 0 && spin(kIdleSpin, come);
  if (!spun) park(mutex_, start_, num_parked_, come);
  return job_.load();
}

void ThreadPool::work(std::size_t thread) {
  this_thread = thread;
  // A thread joins every job, so job_ cannot pass one by while it is away.
  for (std::uint64_t seen = next_job(0); !stopping_.load(); seen = next_job(seen)) {
    placement_.settle(thread);
    give_way(crowded_until_);
    (*body_)(thread, num_threads());
    barrier();
  }
}

}  // namespace starshade
