// Reading the codes, scales and minimums of a tile by its format, and writing its outputs.
// For kernels only; no C++ headers (see CMakeLists.txt).
#pragma once

#include "dot.h"
#include "matmul_kernel.h"

namespace starshade {
namespace STARSHADE_ISA {
namespace {

constexpr int kVectors = 8;  // vectors of codes per group

// What the compiler must know of a format to unroll it.
template <int32_t FORMAT>
struct Format {
  static constexpr bool kFourBits = FORMAT < kQ8Half;
  static constexpr bool kHalfScales = FORMAT == kQ4Half || FORMAT == kQ4HalfMin ||
                                      FORMAT == kQ8Half || FORMAT == kQ8HalfMin;
  static constexpr bool kHasMin = FORMAT == kQ4HalfMin || FORMAT == kQ4FloatMin ||
                                  FORMAT == kQ4Float16Min || FORMAT == kQ8HalfMin ||
                                  FORMAT == kQ8FloatMin;
  static constexpr int kOffset = !kFourBits            ? 128
                                 : FORMAT == kQ4Half    ? 8
                                 : FORMAT == kQ4Float16 ? 4
                                                        : 0;
  static constexpr int kParts =  // scales per group
      FORMAT == kQ4Float16 || FORMAT == kQ4Float16Min || FORMAT == kQ8Float16 ? 2 : 1;
  static constexpr int kPartVectors = kVectors / kParts;
  static constexpr int64_t kCodeBytes = kFourBits ? 256 : 512;
  static constexpr int64_t kScaleBytes = kParts * kLanes * (kHalfScales ? 2 : 4);

  static constexpr int64_t kGroupBytes = kCodeBytes + kScaleBytes * (kHasMin ? 2 : 1);

  // The part of the next tile that lies as far in it as group g in this one, to be there in time.
  static inline void prefetch(const uint8_t* tile, int64_t g) {
#pragma GCC unroll 16
    for (int64_t at = 0; at < kGroupBytes; at += 64) {
      __builtin_prefetch(tile + g * kGroupBytes + at);
    }
  }

  static inline void unpack(const uint8_t* from, Codes* codes) {
    for (int j = 0; j < kVectors; ++j) {
      if (!kFourBits) {
        codes[j] = load_codes(from + 64 * j);
      } else if (j < 4) {
        const Codes pairs = load_codes(from + 64 * j);
        codes[j] = low_nibbles(pairs);
        codes[j + 4] = high_nibbles(pairs);
      }
    }
  }

  static inline Vec scale(const uint8_t* from, int part) {
    if (kHalfScales) return load_halves(from);
    return load(reinterpret_cast<const float*>(from) + part * kLanes);
  }

  // The sum of a part's activations, for its minimums.
  static inline float scaled_sum(const QuantizedRows& q, int64_t at, int part) {
    return kParts == 1 ? q.scaled_sums[at] : q.scales[at] * float(sum(q, at, part));
  }

  static inline int32_t sum(const QuantizedRows& q, int64_t at, int part) {
    if (kParts == 1) return q.sums[at];
    return part == 0 ? q.half_sums[at] : q.sums[at] - q.half_sums[at];
  }

  template <int ROWS>
  static inline void dots(const Codes* codes, const int8_t* const* x, const int32_t* sums,
                          IntVec* totals) {
    if constexpr (kFourBits) return dots_4bit<kPartVectors, kOffset, ROWS>(codes, x, sums, totals);
    return dots_8bit<kPartVectors, ROWS>(codes, x, sums, totals);
  }
};

// Stores `values`, or adds them to what is there; the first `left` of them.
inline void put_vector(float* to, Vec values, int64_t left, bool add) {
  if (left >= kLanes) {
    store(to, add ? load(to) + values : values);
    return;
  }
  for (int64_t lane = 0; lane < left; ++lane) to[lane] = add ? to[lane] + values[lane] : values[lane];
}

inline void put(const MatmulArgs& args, int64_t row, int64_t tile, Vec values) {
  put_vector(args.out + row * args.out_stride + tile * kLanes, values,
             args.tiles.num_outputs - tile * kLanes, args.add);
}

}  // namespace
}  // namespace STARSHADE_ISA
}  // namespace starshade
