// How are weights kept for the kernels?  Repacked once at load, every ggml type exactly.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "arena.h"
#include "ggml_blocks.h"
#include "matmul_kernel.h"
#include "thread_pool.h"

namespace starshade {

// Rows of a weight as they lie in a model file; several stacked ones become one Matrix (q, k, v).
struct MatrixPart {
  std::int32_t ggml_type;
  const std::uint8_t* data;  // row-major blocks
  std::size_t num_bytes;
  std::int64_t num_rows;
};

// Immutable after packing; copies share the storage.
class Matrix {
 public:
  // One matrix of all parts' rows, in order.  Packed by all threads of `pool`.
  // Throws std::invalid_argument: an unknown type, sizes that do not fit the data, columns that
  // are no multiple of the type's block (load float32 then), or parts that do not pack alike.
  static Matrix pack(Arena& arena, ThreadPool& pool, const std::vector<MatrixPart>& parts,
                     std::int64_t num_cols);

  // May parts of these types be stacked in one matrix?
  static bool pack_alike(std::int32_t ggml_type, std::int32_t other);

  std::int64_t num_rows() const { return tiles_.num_outputs; }
  std::int64_t num_cols() const { return tiles_.num_inputs; }
  std::int64_t num_tiles() const { return (num_rows() + kTileOutputs - 1) / kTileOutputs; }
  // Without the rotated form.
  std::size_t num_bytes() const { return std::size_t(num_tiles() * tiles_.tile_bytes); }
  // Takes narrow activations (multiply_narrow); others only float32 ones.
  bool takes_int8() const { return is_integer(tiles_.format); }
  const PackedTiles& tiles() const { return tiles_; }

  // Adds the rotated form: a byte for each weight.  Nothing happens to plain numbers, or
  // where the kernels have no use for it.
  void rotate(const MatmulKernels& kernels, Arena& arena, ThreadPool& pool);
  // Keeps the weights as bf16 too, two bytes each, for products in bf16; likewise.
  void widen(const MatmulKernels& kernels, Arena& arena, ThreadPool& pool);
  std::size_t widened_bytes() const;
  bool takes_rotated() const { return rotated_.codes != nullptr; }
  const RotatedTiles& rotated() const { return rotated_; }
  std::size_t rotated_bytes() const { return rotated_codes() + rotated_scales() * sizeof(float); }

  // out: num_cols floats.  An embedding lookup; 0 <= row < num_rows is the caller's duty.
  void dequantize_row(std::int64_t row, float* out) const;

 private:
  Matrix(PackedTiles tiles, std::shared_ptr<std::uint8_t> storage)
      : tiles_(tiles), storage_(std::move(storage)) {}

  std::size_t rotated_codes() const {
    return std::size_t(num_tiles() * kTileOutputs * rotated_.num_inputs);
  }
  std::size_t rotated_scales() const {
    return std::size_t(num_tiles() * kTileOutputs * rotated_parts(rotated_.num_inputs));
  }

  PackedTiles tiles_;
  RotatedTiles rotated_{};
  std::shared_ptr<std::uint8_t> storage_, rotated_storage_, widened_storage_;
};

}  // namespace starshade
