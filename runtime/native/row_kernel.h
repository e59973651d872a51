// What happens to rows between the matrix products?  The contract with the ISA objects.
#pragma once

#include <stdint.h>

namespace starshade {

enum Activation : int32_t { kSilu, kGeluTanh };
enum RopeStyle : int32_t { kRopeInterleaved, kRopeHalf };

// Where a scan of logits stands: the best so far, the lowest id where several are equal.
struct BestLogit {
  float value;
  int32_t id;         // -1: none yet
  int32_t is_broken;  // a NaN or +infinity was met
};

struct RowKernels {
  // out = x / sqrt(mean(x^2) + eps) * weight, `width` items; may be in place.
  void (*rms_norm)(const float* x, const float* weight, float eps, int64_t width, float* out);
  // to += from
  void (*add)(float* to, const float* from, int64_t width);
  void (*scale)(float* row, float factor, int64_t width);
  // Rotates the first `rotary_dim` items of a head by the angles of cosines, sines (rotary_dim / 2).
  void (*rotate)(float* head, const float* cosines, const float* sines, int rotary_dim,
                 RopeStyle style);
  // gate = activation(gate) * up
  void (*activate)(float* gate, const float* up, int64_t width, Activation activation);
  // logits = cap * tanh(logits / cap)
  void (*soft_cap)(float* logits, float cap, int64_t width);
  // Takes `width` logits of the ids from first_id on into `best`. Bit i of word i / 32 of `allowed`
  // (null: all) says whether id i counts.
  void (*scan)(const float* logits, int64_t width, int32_t first_id, const uint32_t* allowed,
               BestLogit* best);
  // Sum of exp((x - best) * inverse_temperature) over the allowed, all of them at most `best`.
  double (*sum_exp)(const float* logits, int64_t width, const uint32_t* allowed, float best,
                    float inverse_temperature);
  // The largest allowed logit of every 64, -infinity where none is: ceil(width / 64) values.
  void (*block_maxima)(const float* logits, int64_t width, const uint32_t* allowed, float* maxima);
  // The ids of allowed logits >= threshold in rising order, at most `limit`; how many there are.
  int64_t (*collect)(const float* logits, int64_t width, const uint32_t* allowed, float threshold,
                     int64_t limit, int32_t* ids);
};

constexpr int kMaximaBlock = 64;

namespace portable { extern const RowKernels row_kernels; }
namespace avx2 { extern const RowKernels row_kernels; }
namespace avx512 { extern const RowKernels row_kernels; }
namespace avx512vnni { extern const RowKernels row_kernels; }

}  // namespace starshade
