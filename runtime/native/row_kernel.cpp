// Norms, rotations, activations and scans of logits, compiled once per instruction set.
#include "row_kernel.h"

#include "vec_math.h"

namespace starshade {
namespace STARSHADE_ISA {
namespace {

inline float square_root(float x) { return __builtin_sqrtf(x); }

// The last width % 16 items, the rest of the vector being `filler`.
inline Vec load_first(const float* from, int64_t count, float filler) {
  float padded[kLanes];
  for (int lane = 0; lane < kLanes; ++lane) padded[lane] = lane < count ? from[lane] : filler;
  return load(padded);
}

inline void store_first(float* to, Vec value, int64_t count) {
  for (int lane = 0; lane < count; ++lane) to[lane] = value[lane];
}

// Calls vec(Vec) -> Vec on all items in place.
template <class Function>
inline void in_place(float* row, int64_t width, const Function& function) {
  int64_t i = 0;
  for (; i + kLanes <= width; i += kLanes) store(row + i, function(load(row + i), i));
  if (i < width) store_first(row + i, function(load_first(row + i, width - i, 0), i), width - i);
}

void rms_norm(const float* x, const float* weight, float eps, int64_t width, float* out) {
  // Four sums: one would wait for each addition.
  Vec squares[4] = {};
  int64_t i = 0;
  for (; i + 4 * kLanes <= width; i += 4 * kLanes) {
    for (int v = 0; v < 4; ++v) {
      const Vec items = load(x + i + v * kLanes);
      squares[v] += items * items;
    }
  }
  for (; i < width; i += kLanes) {
    const Vec items = i + kLanes <= width ? load(x + i) : load_first(x + i, width - i, 0);
    squares[0] += items * items;
  }
  const float total = sum((squares[0] + squares[1]) + (squares[2] + squares[3]));
  const float factor = 1.0f / square_root(total / float(width) + eps);
  for (i = 0; i + kLanes <= width; i += kLanes) store(out + i, load(x + i) * factor * load(weight + i));
  for (; i < width; ++i) out[i] = x[i] * factor * weight[i];
}

void add(float* to, const float* from, int64_t width) {
  int64_t i = 0;
  for (; i + kLanes <= width; i += kLanes) store(to + i, load(to + i) + load(from + i));
  for (; i < width; ++i) to[i] += from[i];
}

void scale(float* row, float factor, int64_t width) {
  for (int64_t i = 0; i < width; ++i) row[i] *= factor;
}

void rotate_half(float* head, const float* cosines, const float* sines, int half) {
  int i = 0;
  for (; i + kLanes <= half; i += kLanes) {
    const Vec a = load(head + i), b = load(head + half + i);
    const Vec c = load(cosines + i), s = load(sines + i);
    store(head + i, a * c - b * s);
    store(head + half + i, a * s + b * c);
  }
  for (; i < half; ++i) {
    const float a = head[i], b = head[half + i];
    head[i] = a * cosines[i] - b * sines[i];
    head[half + i] = a * sines[i] + b * cosines[i];
  }
}

void rotate_interleaved(float* head, const float* cosines, const float* sines, int half) {
  int i = 0;
  for (; i + kLanes <= half; i += kLanes) {
    const Vec x = load(head + 2 * i), y = load(head + 2 * i + kLanes);
    const Vec a = __builtin_shufflevector(x, y, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    const Vec b = __builtin_shufflevector(x, y, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
    const Vec c = load(cosines + i), s = load(sines + i);
    const Vec real = a * c - b * s, imaginary = a * s + b * c;
    store(head + 2 * i, __builtin_shufflevector(real, imaginary, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20,
                                                5, 21, 6, 22, 7, 23));
    store(head + 2 * i + kLanes,
          __builtin_shufflevector(real, imaginary, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29,
                                  14, 30, 15, 31));
  }
  for (; i < half; ++i) {
    const float a = head[2 * i], b = head[2 * i + 1];
    head[2 * i] = a * cosines[i] - b * sines[i];
    head[2 * i + 1] = a * sines[i] + b * cosines[i];
  }
}

void rotate(float* head, const float* cosines, const float* sines, int rotary_dim, RopeStyle style) {
  if (style == kRopeHalf) {
    rotate_half(head, cosines, sines, rotary_dim / 2);
  } else {
    rotate_interleaved(head, cosines, sines, rotary_dim / 2);
  }
}

// The tanh form of GELU [Hendrycks & Gimpel 2016]: x / 2 (1 + tanh(z)) = x sigmoid(2 z).
inline Vec gelu(Vec x) {
  return x * sigmoid(1.5957691216057308f * (x + 0.044715f * x * x * x));
}

template <class Function>
inline void gated(float* gate, const float* up, int64_t width, const Function& function) {
  in_place(gate, width, [&](Vec x, int64_t i) {
    return function(x) * (i + kLanes <= width ? load(up + i) : load_first(up + i, width - i, 0));
  });
}

void activate(float* gate, const float* up, int64_t width, Activation activation) {
  if (activation == kSilu) {
    gated(gate, up, width, [](Vec x) { return x * sigmoid(x); });
  } else {
    gated(gate, up, width, gelu);
  }
}

void soft_cap(float* logits, float cap, int64_t width) {
  const float inverse = 1.0f / cap;
  in_place(logits, width, [&](Vec x, int64_t) { return tanh_of(x * inverse) * cap; });
}

// Sixteen logits from id `i` on; those that do not count are -infinity.
inline Vec counted(const float* logits, int64_t i, int64_t width, const uint32_t* allowed,
                   int64_t first_id) {
  Vec x = i + kLanes <= width ? load(logits + i) : load_first(logits + i, width - i, kMinusInfinity);
  if (allowed != nullptr) {
    const int64_t id = first_id + i;  // a multiple of 16
    const int32_t word = int32_t(allowed[id / 32] >> (id % 32));
    const IntVec is_allowed = ((IntVec{} + word) >> lanes()) & 1;
    x = is_allowed != 0 ? x : broadcast(kMinusInfinity);
  }
  return x;
}

void scan(const float* logits, int64_t width, int32_t first_id, const uint32_t* allowed,
          BestLogit* best) {
  const Vec infinity = broadcast(-kMinusInfinity);
  Vec values = broadcast(kMinusInfinity);
  IntVec ids = {}, broken = {};
  for (int64_t i = 0; i < width; i += kLanes) {
    const Vec x = counted(logits, i, width, allowed, first_id);
    const IntVec larger = x > values;
    broken |= ~(x < infinity);
    values = larger ? x : values;
    ids = larger ? lanes() + int32_t(first_id + i) : ids;
  }
  const float largest = maximum(values);
  for (int lane = 0; lane < kLanes; ++lane) best->is_broken |= broken[lane] != 0;
  if (largest == kMinusInfinity) return;
  for (int lane = 0; lane < kLanes; ++lane) {
    if (values[lane] != largest) continue;
    const bool is_better = best->id < 0 || largest > best->value ||
                           (largest == best->value && ids[lane] < best->id);
    if (is_better) best->value = largest, best->id = ids[lane];
  }
}

double sum_exp(const float* logits, int64_t width, const uint32_t* allowed, float best,
               float inverse_temperature) {
  const float factor = inverse_temperature * kLog2E;
  double total = 0;
  for (int64_t start = 0; start < width; start += 1024) {  // short float32 sums, a long float64 one
    Vec part = {};
    const int64_t end = start + 1024 < width ? start + 1024 : width;
    for (int64_t i = start; i < end; i += kLanes) {
      part += exp2<6>((counted(logits, i, width, allowed, 0) - best) * factor);
    }
    total += double(sum(part));
  }
  return total;
}

void block_maxima(const float* logits, int64_t width, const uint32_t* allowed, float* maxima) {
  for (int64_t start = 0; start < width; start += kMaximaBlock) {
    Vec largest = broadcast(kMinusInfinity);
    const int64_t end = start + kMaximaBlock < width ? start + kMaximaBlock : width;
    for (int64_t i = start; i < end; i += kLanes) {
      largest = greater(counted(logits, i, width, allowed, 0), largest);
    }
    *maxima++ = maximum(largest);
  }
}

int64_t collect(const float* logits, int64_t width, const uint32_t* allowed, float threshold,
                int64_t limit, int32_t* ids) {
  int64_t count = 0;
  for (int64_t i = 0; i < width; i += kLanes) {
    const Vec x = counted(logits, i, width, allowed, 0);
    if (maximum(x) < threshold) continue;
    for (int lane = 0; lane < kLanes; ++lane) {
      if (x[lane] < threshold || x[lane] == kMinusInfinity || count == limit) continue;
      ids[count++] = int32_t(i + lane);
    }
  }
  return count;
}

}  // namespace

const RowKernels row_kernels = {rms_norm, add,  scale,   rotate,       activate,
                                soft_cap, scan, sum_exp, block_maxima, collect};

}  // namespace STARSHADE_ISA
}  // namespace starshade
