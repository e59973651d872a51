// y = x W^T (+ add) in float32 over row-major weights, compiled once per instruction set.
// Vectors run along the width, so weights need no repacking; lanes are summed once per output.
#include "linear_kernel.h"

#include "vec.h"

namespace starshade {
namespace STARSHADE_ISA {
namespace {

// As many accumulators as the register file holds: each weight vector serves kTileRows products.
#if defined(__AVX512F__)
constexpr int kTileRows = 8, kTileOutputs = 3;
#else
constexpr int kTileRows = 2, kTileOutputs = 2;
#endif

template <int ROWS, int OUTPUTS>
inline void tile(const LinearArgs& args, int64_t row, int64_t output) {
  const float* x = args.x + row * args.width;
  const float* weight = args.weight + output * args.width;
  const int64_t whole = args.width / kLanes * kLanes;
  Vec dots[ROWS][OUTPUTS] = {};
  for (int64_t k = 0; k < whole; k += kLanes) {
    Vec w[OUTPUTS];
    for (int o = 0; o < OUTPUTS; ++o) w[o] = load(weight + o * args.width + k);
    for (int r = 0; r < ROWS; ++r) {
      const Vec items = load(x + r * args.width + k);
      for (int o = 0; o < OUTPUTS; ++o) dots[r][o] += items * w[o];
    }
  }
  for (int r = 0; r < ROWS; ++r) {
    for (int o = 0; o < OUTPUTS; ++o) {
      float total = sum(dots[r][o]);
      for (int64_t k = whole; k < args.width; ++k) {
        total += x[r * args.width + k] * weight[o * args.width + k];
      }
      const int64_t at = (row + r) * args.outputs + output + o;
      args.out[at] = args.add ? total + args.add[at] : total;
    }
  }
}

template <int ROWS>
inline void rows(const LinearArgs& args, int64_t row, int64_t first, int64_t end) {
  int64_t output = first;
  for (; output + kTileOutputs <= end; output += kTileOutputs) {
    tile<ROWS, kTileOutputs>(args, row, output);
  }
  for (; output < end; ++output) tile<ROWS, 1>(args, row, output);
}

}  // namespace

void linear(const LinearArgs& args, int64_t first, int64_t end) {
  int64_t row = 0;
  for (; row + kTileRows <= args.rows; row += kTileRows) rows<kTileRows>(args, row, first, end);
  for (; row + 2 <= args.rows; row += 2) rows<2>(args, row, first, end);
  for (; row < args.rows; ++row) rows<1>(args, row, first, end);
}

}  // namespace STARSHADE_ISA
}  // namespace starshade
