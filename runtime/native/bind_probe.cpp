// What can this machine do at most, by all threads at once?  The limits that kernels are told by.
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <string>
#include <tuple>
#include <vector>

#include "bind.h"
#include "cpu.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace starshade {
namespace {

constexpr std::int64_t kMaxBytes = std::int64_t(1) << 32;
constexpr std::int64_t kMaxRounds = 1'000'000'000;
constexpr int kMaxPasses = 1000;

using Clock = std::chrono::steady_clock;

template <class Body>
std::vector<double> timed(Cpu& cpu, int num_passes, Body body) {
  std::vector<double> seconds;
  for (int pass = 0; pass < num_passes; ++pass) {
    const Clock::time_point start = Clock::now();
    cpu.threads.run_all(body);
    seconds.push_back(std::chrono::duration<double>(Clock::now() - start).count());
  }
  return seconds;
}

std::vector<double> probe_read(Cpu& cpu, std::int64_t num_bytes, int num_passes) {
  const auto num_threads = std::int64_t(cpu.threads.num_threads());
  require(num_bytes >= kProbeBytes * num_threads && num_bytes <= kMaxBytes,
          "num_bytes is out of range");
  require(num_passes >= 1 && num_passes <= kMaxPasses, "num_passes is out of range");
  nb::gil_scoped_release released;
  const std::shared_ptr<std::uint8_t> buffer = cpu.arena.allocate(std::size_t(num_bytes));
  const std::int64_t share = num_bytes / num_threads / kProbeBytes * kProbeBytes;
  cpu.threads.run_all([&](std::size_t thread, std::size_t) {  // zero pages are read for nothing
    std::fill_n(buffer.get() + std::int64_t(thread) * share, share, std::uint8_t(thread + 1));
  });
  std::atomic<std::uint64_t> sum{0};
  return timed(cpu, num_passes, [&](std::size_t thread, std::size_t) {
    sum += cpu.isa.probe->read(buffer.get() + std::int64_t(thread) * share, share);
  });
}

// Operations of a pass by all threads, and the seconds of each pass.
std::tuple<std::int64_t, std::vector<double>> probe_multiply(Cpu& cpu, const std::string& kind,
                                                             std::int64_t num_rounds,
                                                             int num_passes) {
  require(kind == "int8" || kind == "f32", "kind is int8 or f32");
  require(num_rounds >= 1 && num_rounds <= kMaxRounds, "num_rounds is out of range");
  require(num_passes >= 1 && num_passes <= kMaxPasses, "num_passes is out of range");
  const auto multiply = kind == "int8" ? cpu.isa.probe->multiply_int8 : cpu.isa.probe->multiply_f32;
  std::atomic<std::int64_t> num_operations{0};
  nb::gil_scoped_release released;
  std::vector<double> seconds = timed(
      cpu, num_passes, [&](std::size_t, std::size_t) { num_operations += multiply(num_rounds); });
  return {num_operations / num_passes, std::move(seconds)};
}

}  // namespace

void bind_probe(nb::module_& module) {
  module.def("probe_read", &probe_read, "cpu"_a, "num_bytes"_a, "num_passes"_a);
  module.def("probe_multiply", &probe_multiply, "cpu"_a, "kind"_a, "num_rounds"_a, "num_passes"_a);
}

}  // namespace starshade
