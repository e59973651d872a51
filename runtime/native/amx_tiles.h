// The shapes of the eight tile registers.  For kernels only; no C++ headers (see CMakeLists.txt).
#pragma once

#include <immintrin.h>
#include <stdint.h>

namespace starshade {
namespace STARSHADE_ISA {
namespace {

constexpr int kTileRows = 16;         // of a register, at most; each of up to 64 bytes
constexpr int kSide = 2 * kTileRows;  // of a square of products

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

// Tiles 0-3 are sums of a square (16 rows x 16 outputs each), 4-5 activations, 6-7 weights.
inline void configure_squares() {
  TileConfig config;
  for (int tile = 0; tile < 8; ++tile) config.set(tile, kTileRows, 64);
  config.load();
}

}  // namespace
}  // namespace STARSHADE_ISA
}  // namespace starshade
