// Many rows of int8 activations by AMX tiles: sixteen rows x sixteen outputs x one group at a time.
// For kernels only; no C++ headers (see CMakeLists.txt).  [Intel SDM vol. 1 ch. 18, AMX]
//
// The dot products of a group are exact integers, and they are scaled and summed as int8_tile does
// it, in group order: a row's result is the same bits whether it comes in a panel or alone.  The
// tile unit is a few groups ahead of the vector units, which scale what it stored.
#pragma once

#include "amx_tiles.h"
#include "tile_access.h"

namespace starshade {
namespace STARSHADE_ISA {
namespace {

constexpr int kPanelRows = kTileRows;
constexpr int64_t kAhead = 3;  // groups that the tile unit is ahead
constexpr int64_t kRing = 4;   // groups of products that are kept, more than kAhead; a power of two
// Below, unpacking and starting the tiles costs more than they save.
constexpr int64_t kFewestPanelRows = 16;
constexpr int64_t kMostPanelInputs = 8192;  // a tile of weights is staged on the stack
constexpr int64_t kMostParts = kMostPanelInputs / kGroup * 2;
constexpr int64_t kBlockPanels = 8;  // panels whose scales are at hand while all tiles pass

// One tile of weights as the tile unit and the scaling take it, for all panels of a block.
struct alignas(64) StagedTile {
  int8_t codes[kMostPanelInputs * kLanes];  // offsets subtracted; four inputs x 16 outputs a line
  float scales[kMostParts * kLanes];        // by group and part
  float mins[kMostParts * kLanes];
};

// Up to sixteen rows; scales and sums with the rows side by side.
struct alignas(64) Panel {
  float scales[kMostParts / 2 * kPanelRows];   // by group
  float scaled_sums[kMostParts * kPanelRows];  // by group and part
  int64_t first_row;
  int num_rows;
};

template <class F>
void stage(const PackedTiles& tiles, int64_t tile, StagedTile& staged) {
  const uint8_t* data = tiles.data + tile * tiles.tile_bytes;
  for (int64_t g = 0; g < tiles.num_inputs / kGroup; ++g) {
    Codes codes[kVectors];
    F::prefetch(data + tiles.tile_bytes, g);
    F::unpack(data + g * F::kCodeBytes, codes);
    for (int j = 0; j < kVectors; ++j) {
      const Codes without = codes[j] - uint8_t(F::kOffset);
      memcpy(staged.codes + (g * kVectors + j) * 64, &without, 64);
    }
    for (int part = 0; part < F::kParts; ++part) {
      const int64_t to = (g * F::kParts + part) * kLanes;
      store(staged.scales + to, F::scale(data + tiles.scales_at + g * F::kScaleBytes, part));
      if (!F::kHasMin) continue;
      store(staged.mins + to, F::scale(data + tiles.mins_at + g * F::kScaleBytes, part));
    }
  }
}

template <class F>
void gather(const QuantizedRows& q, int64_t first_row, int num_rows, Panel& panel) {
  const int64_t groups = q.num_inputs / kGroup;
  panel.first_row = first_row;
  panel.num_rows = num_rows;
  for (int64_t g = 0; g < groups; ++g) {
    for (int row = 0; row < kPanelRows; ++row) {
      const bool is_there = row < num_rows;
      const int64_t at = (first_row + row) * groups + g;
      panel.scales[g * kPanelRows + row] = is_there ? q.scales[at] : 0;
      for (int part = 0; F::kHasMin && part < F::kParts; ++part) {
        panel.scaled_sums[(g * F::kParts + part) * kPanelRows + row] =
            is_there ? F::scaled_sum(q, at, part) : 0;
      }
    }
  }
}

// Tiles 0-3 are sums, 4-5 activations, 6-7 weights.
template <class F>
inline void configure(int num_rows) {
  constexpr int kInputs = kGroup / F::kParts;
  TileConfig config;
  for (int tile = 0; tile < 8; ++tile) {
    if (tile < 4) config.set(tile, num_rows, 64);
    else if (tile < 6) config.set(tile, num_rows, kInputs);
    else config.set(tile, kInputs / 4, 64);
  }
  config.load();
}

// Activations x weights of one group or half group, to `to`: rows of sixteen outputs.
template <int TURN>
inline void multiply_tiles(const int8_t* x, int64_t stride, const int8_t* weights, int32_t* to) {
  // Tile numbers are part of the instructions; each pair of turns may overlap.
  if (TURN == 0) {
    _tile_loadd(6, weights, 64);
    _tile_loadd(4, x, size_t(stride));
    _tile_zero(0);
    _tile_dpbssd(0, 4, 6);
    _tile_stored(0, to, kLanes * 4);
  } else {
    _tile_loadd(7, weights, 64);
    _tile_loadd(5, x, size_t(stride));
    _tile_zero(1);
    _tile_dpbssd(1, 5, 7);
    _tile_stored(1, to, kLanes * 4);
  }
}

// Sixteen outputs of ROWS >= panel.num_rows rows.
template <class F, int ROWS>
inline void panel_tile(const MatmulArgs& args, int64_t tile, const StagedTile& staged,
                       const Panel& panel, int32_t (*ring)[kPanelRows * kLanes]) {
  constexpr int kPartInputs = kGroup / F::kParts;
  const int64_t num_inputs = args.quantized.num_inputs, parts = num_inputs / kPartInputs;
  const int8_t* x = args.quantized.codes + panel.first_row * num_inputs;
  const auto multiply = [&](int64_t part) {
    const int8_t *from = x + part * kPartInputs, *by = staged.codes + part * kPartInputs * kLanes;
    if (part % 2 == 0) return multiply_tiles<0>(from, num_inputs, by, ring[part % kRing]);
    multiply_tiles<1>(from, num_inputs, by, ring[part % kRing]);
  };
  for (int64_t part = 0; part < kAhead && part < parts; ++part) multiply(part);
  for (int row = 0; row < panel.num_rows; ++row) {  // else the stores at the end wait for memory
    __builtin_prefetch(args.out + (panel.first_row + row) * args.out_stride + tile * kLanes, 1);
  }
  Vec sums[ROWS] = {};
  for (int64_t part = 0; part < parts; ++part) {
    if (part + kAhead < parts) multiply(part + kAhead);
    const Vec scale = load(staged.scales + part * kLanes);
    const float* row_scales = panel.scales + part / F::kParts * kPanelRows;
    const int32_t* products = ring[part % kRing];
#pragma GCC unroll 16
    for (int row = 0; row < ROWS; ++row) {
      const IntVec ints = (IntVec)_mm512_load_si512(products + row * kLanes);
      sums[row] += to_floats(ints) * (scale * row_scales[row]);
    }
  }
  if (F::kHasMin) {
    Vec mins[ROWS] = {};
    for (int64_t part = 0; part < parts; ++part) {
      const Vec min = load(staged.mins + part * kLanes);
#pragma GCC unroll 16
      for (int row = 0; row < ROWS; ++row) {
        mins[row] += min * panel.scaled_sums[part * kPanelRows + row];
      }
    }
#pragma GCC unroll 16
    for (int row = 0; row < ROWS; ++row) sums[row] += mins[row];
  }
#pragma GCC unroll 16
  for (int row = 0; row < ROWS; ++row) {
    if (row < panel.num_rows) put(args, panel.first_row + row, tile, sums[row]);
  }
}

// Outputs of the tiles for all rows, in panels of nearly equal height.
template <class F>
void panel_tiles(const MatmulArgs& args) {
  StagedTile staged;
  Panel panels[kBlockPanels];
  alignas(64) int32_t ring[kRing][kPanelRows * kLanes] = {};
  const int64_t num_panels = (args.num_rows + kPanelRows - 1) / kPanelRows;
  int configured = 0;
  for (int64_t first = 0; first < num_panels; first += kBlockPanels) {
    const int64_t left = num_panels - first, count = left < kBlockPanels ? left : kBlockPanels;
    for (int64_t index = 0; index < count; ++index) {
      const int64_t row = args.num_rows * (first + index) / num_panels;
      const int64_t end = args.num_rows * (first + index + 1) / num_panels;
      gather<F>(args.quantized, row, int(end - row), panels[index]);
    }
    for (int64_t tile = args.first_tile; tile < args.end_tile; ++tile) {
      stage<F>(args.tiles, tile, staged);
      for (int64_t index = 0; index < count; ++index) {
        const Panel& panel = panels[index];
        if (panel.num_rows != configured) configure<F>(configured = panel.num_rows);
        if (panel.num_rows > 8) {
          panel_tile<F, kPanelRows>(args, tile, staged, panel, ring);
        } else {
          panel_tile<F, 8>(args, tile, staged, panel, ring);
        }
      }
    }
  }
  _tile_release();
}

}  // namespace
}  // namespace STARSHADE_ISA
}  // namespace starshade
