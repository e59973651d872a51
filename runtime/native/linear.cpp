#include "linear.h"

#include <algorithm>

namespace starshade {
namespace {

// Outputs of one task: their weights stay in the L2 cache while all rows pass (48 x 1536 floats
// are 288 KiB), and a multiple of every tile.
constexpr std::int64_t kTaskOutputs = 48;
// Below this many multiply-adds a call is done before a sleeping thread has woken.
constexpr std::int64_t kWorthWaking = 200'000;

}  // namespace

void linear(ThreadPool& pool, LinearKernel kernel, const LinearArgs& args) {
  if (args.rows * args.outputs * args.width < kWorthWaking) {
    kernel(args, 0, args.outputs);
    return;
  }
  const std::int64_t num_tasks = (args.outputs + kTaskOutputs - 1) / kTaskOutputs;
  pool.run(std::size_t(num_tasks), [&](std::size_t task, std::size_t) {
    const std::int64_t first = std::int64_t(task) * kTaskOutputs;
    kernel(args, first, std::min(first + kTaskOutputs, args.outputs));
  });
}

}  // namespace starshade
