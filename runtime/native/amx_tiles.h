// The shapes of the eight tile registers.  For kernels only; no C++ headers (see CMakeLists.txt).
#pragma once

#include <immintrin.h>
#include <stdint.h>

namespace starshade {
namespace STARSHADE_ISA {
namespace {

constexpr int kTileRows = 16;  // of a register, at most; each of up to 64 bytes

// [Intel SDM vol. 1 sec. 18.2, TILECFG]
struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};

  void set(int tile, int num_rows, int bytes) {
    rows[tile] = uint8_t(num_rows);
    row_bytes[tile] = uint16_t(bytes);
  }
  // Zeroes the tiles; _tile_release() gives their state back.
  void load() const {
    asm volatile("" : : "r"(this) : "memory");  // GCC 12 thinks that only 8 bytes are read
    _tile_loadconfig(this);
  }
};

}  // namespace
}  // namespace STARSHADE_ISA
}  // namespace starshade
