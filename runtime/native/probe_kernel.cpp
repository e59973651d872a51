// Loops that keep one unit of the core busy and nothing else, compiled once per instruction set.
#include "probe_kernel.h"

#if defined(__AVX2__)
#include <immintrin.h>
#endif
#if defined(__AMX_INT8__)
#include "amx_tiles.h"
#endif

namespace starshade {
namespace STARSHADE_ISA {
namespace {

#if defined(__AVX512F__)
constexpr int kRegisterBytes = 64;
#elif defined(__AVX2__)
constexpr int kRegisterBytes = 32;
#else
constexpr int kRegisterBytes = 16;
#endif
// Independent sums that hide an instruction's latency, 4 or 5 cycles in two units; 16 registers.
constexpr int kSums = 10;

typedef float Floats __attribute__((vector_size(kRegisterBytes)));
typedef int32_t Ints __attribute__((vector_size(kRegisterBytes)));
typedef uint64_t Words __attribute__((vector_size(kRegisterBytes)));

// The compiler must take `value` from memory again: what it holds is not known.
template <class T>
inline void forget(T& value) {
  asm volatile("" : : "r"(&value) : "memory");
}

// Runs `step` on each of the sums; all are needed, and none is known to equal another.
template <class T, class Step>
inline void repeat(int64_t rounds, Step step) {
  T a = {}, b = {}, start = {}, sums[kSums];
#pragma GCC unroll 10  // else the sums stay in memory
  for (int i = 0; i < kSums; ++i) {
    forget(start);
    sums[i] = start;
  }
  for (int64_t round = 0; round < rounds; ++round) {
    forget(a);
    forget(b);
#pragma GCC unroll 10
    for (int i = 0; i < kSums; ++i) sums[i] = step(sums[i], a, b);
  }
  T total = sums[0];
#pragma GCC unroll 10
  for (int i = 1; i < kSums; ++i) total += sums[i];
  forget(total);
}

uint64_t read(const uint8_t* from, int64_t bytes) {
  constexpr int kSteps = kProbeBytes / kRegisterBytes;
  Words sums[4] = {};
  for (int64_t at = 0; at < bytes; at += kProbeBytes) {
#pragma GCC unroll 16
    for (int i = 0; i < kSteps; ++i) {
      sums[i % 4] += *reinterpret_cast<const Words*>(from + at + i * kRegisterBytes);
    }
  }
  const Words total = (sums[0] + sums[1]) + (sums[2] + sums[3]);
  uint64_t sum = 0;
  for (int lane = 0; lane < kRegisterBytes / 8; ++lane) sum += total[lane];
  return sum;
}

#if defined(__AMX_INT8__)
// Four sums hide the latency of one.
int64_t multiply_int8(int64_t rounds) {
  TileConfig config;
  for (int tile = 0; tile < 8; ++tile) config.set(tile, kTileRows, 64);
  config.load();
  for (int64_t round = 0; round < rounds; ++round) {
    _tile_dpbssd(0, 4, 6);
    _tile_dpbssd(1, 4, 7);
    _tile_dpbssd(2, 5, 6);
    _tile_dpbssd(3, 5, 7);
  }
  _tile_release();
  return rounds * 4 * (2 * kTileRows * kTileRows * 64);
}
#else
#if defined(__AVX512VNNI__)
constexpr int64_t kInt8Products = kRegisterBytes;
inline Ints int8_step(Ints sum, Ints a, Ints b) {
  return (Ints)_mm512_dpbusd_epi32((__m512i)sum, (__m512i)a, (__m512i)b);
}
#elif defined(__AVX512BW__)
constexpr int64_t kInt8Products = kRegisterBytes;
inline Ints int8_step(Ints sum, Ints a, Ints b) {
  // The sum is in what is multiplied, or one product would do for all.
  const __m512i pairs = _mm512_maddubs_epi16((__m512i)(sum ^ a), (__m512i)b);
  return (Ints)_mm512_madd_epi16(pairs, _mm512_set1_epi16(1));
}
#elif defined(__AVX2__)
constexpr int64_t kInt8Products = kRegisterBytes;
inline Ints int8_step(Ints sum, Ints a, Ints b) {
  const __m256i pairs = _mm256_maddubs_epi16((__m256i)(sum ^ a), (__m256i)b);
  return (Ints)_mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
}
#else
constexpr int64_t kInt8Products = kRegisterBytes / 4;  // nothing here multiplies bytes
inline Ints int8_step(Ints sum, Ints a, Ints b) { return sum * a + b; }
#endif

int64_t multiply_int8(int64_t rounds) {
  repeat<Ints>(rounds, int8_step);
  return 2 * kInt8Products * kSums * rounds;
}
#endif

int64_t multiply_f32(int64_t rounds) {
  repeat<Floats>(rounds, [](Floats sum, Floats a, Floats b) { return sum * a + b; });
  return 2 * kRegisterBytes / 4 * kSums * rounds;
}

}  // namespace

extern const ProbeKernels probe_kernels;
const ProbeKernels probe_kernels = {read, multiply_int8, multiply_f32};

}  // namespace STARSHADE_ISA
}  // namespace starshade
