#include "matrix.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>

#include "half.h"
#include "matmul.h"

namespace starshade {
namespace {

constexpr std::int64_t kAlignment = 64;
// The largest matrix that any kernel index is computed for; far beyond any model's.
constexpr std::int64_t kMaxSide = std::int64_t{1} << 24;

std::int64_t aligned(std::int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

WeightFormat format_of(const BlockType& type) {
  if (type.code_bits == 0) {
    return type.ggml_type == kGgmlF32 ? kFloat : type.ggml_type == kGgmlF16 ? kHalf : kBfloat16;
  }
  const bool by_16 = type.scale_items == 16;
  if (type.code_bits == 4) {
    if (by_16) return type.has_min ? kQ4Float16Min : kQ4Float16;
    if (!type.half_scales) return kQ4FloatMin;
    return type.has_min ? kQ4HalfMin : kQ4Half;
  }
  if (by_16) return kQ8Float16;
  if (!type.half_scales) return kQ8FloatMin;
  return type.has_min ? kQ8HalfMin : kQ8Half;
}

std::int64_t scale_bytes(const BlockType& type) { return type.half_scales ? 2 : 4; }

PackedTiles plan(const BlockType& type, std::int64_t num_rows, std::int64_t num_cols) {
  PackedTiles tiles{};
  tiles.num_outputs = num_rows;
  tiles.num_inputs = num_cols;
  tiles.format = format_of(type);
  tiles.offset = type.offset;
  if (type.code_bits == 0) {
    tiles.tile_bytes = aligned(num_cols * kTileOutputs * type.block_bytes);
    return tiles;
  }
  const std::int64_t groups = num_cols / kGroup;
  const std::int64_t scales =
      aligned(groups * (kGroup / type.scale_items) * kTileOutputs * scale_bytes(type));
  tiles.scales_at = groups * kGroup * kTileOutputs * type.code_bits / 8;
  tiles.mins_at = tiles.scales_at + scales;
  tiles.tile_bytes = tiles.mins_at + (type.has_min ? scales : 0);
  return tiles;
}

// Writes one output's weights into its lane of a tile.
class LaneWriter {
 public:
  LaneWriter(const PackedTiles& tiles, const BlockType& type, std::uint8_t* tile, int lane)
      : tiles_(tiles), type_(type), tile_(tile), lane_(lane) {}

  void write(const std::uint8_t* row) {
    if (type_.code_bits == 0) return write_numbers(row);
    BlockItems items;
    const std::int64_t blocks = tiles_.num_inputs / type_.block_items;
    for (std::int64_t block = 0; block < blocks; ++block, row += type_.block_bytes) {
      if (type_.half_scales) write_halves(row, block);
      if (type_.nibbles_at > 0) {
        write_nibbles(row + type_.nibbles_at, block);
        continue;
      }
      type_.read(row, items);
      const std::int64_t groups = type_.block_items / kGroup;
      for (std::int64_t g = 0; g < groups; ++g) write_group(items, g, block * groups + g);
    }
  }

 private:
  void write_numbers(const std::uint8_t* row) {
    const std::size_t bytes = std::size_t(type_.block_bytes);
    for (std::int64_t k = 0; k < tiles_.num_inputs; ++k, row += bytes) {
      std::memcpy(tile_ + std::size_t(k * kTileOutputs + lane_) * bytes, row, bytes);
    }
  }

  // The same bytes as in the file, four inputs' worth to a vector.
  void write_nibbles(const std::uint8_t* nibbles, std::int64_t group) {
    std::uint8_t* to = tile_ + group * 256 + lane_ * 4;
    for (int j = 0; j < 4; ++j) std::memcpy(to + j * 64, nibbles + j * 4, 4);
  }

  void write_halves(const std::uint8_t* block, std::int64_t group) {
    const std::int64_t to = (group * kTileOutputs + lane_) * 2;
    std::memcpy(tile_ + tiles_.scales_at + to, block, 2);
    if (type_.has_min) std::memcpy(tile_ + tiles_.mins_at + to, block + 2, 2);
  }

  void write_group(const BlockItems& items, std::int64_t in_block, std::int64_t group) {
    const std::uint8_t* codes = items.codes + in_block * kGroup;
    if (type_.code_bits == 4) {
      std::uint8_t* to = tile_ + group * 256 + lane_ * 4;
      for (int j = 0; j < 4; ++j, to += 64) {
        for (int b = 0; b < 4; ++b) to[b] = std::uint8_t(codes[4 * j + b] | codes[16 + 4 * j + b] << 4);
      }
    } else {
      std::uint8_t* to = tile_ + group * 512 + lane_ * 4;
      for (int j = 0; j < 8; ++j, to += 64) std::memcpy(to, codes + 4 * j, 4);
    }
    if (type_.half_scales) return;
    const int per_group = kGroup / type_.scale_items;
    for (int part = 0; part < per_group; ++part) {
      const std::int64_t from = in_block * per_group + part;
      const std::int64_t to = (group * per_group + part) * kTileOutputs + lane_;
      write_scale(tiles_.scales_at, to, items.scales[from]);
      if (type_.has_min) write_scale(tiles_.mins_at, to, items.mins[from]);
    }
  }

  void write_scale(std::int64_t at, std::int64_t index, float value) {
    std::memcpy(tile_ + at + index * 4, &value, 4);
  }

  const PackedTiles& tiles_;
  const BlockType& type_;
  std::uint8_t* tile_;
  int lane_;
};

[[noreturn]] void refuse(const std::string& why) { throw std::invalid_argument(why); }

const BlockType& known_type(std::int32_t ggml_type) {
  const BlockType* type = find_block_type(ggml_type);
  if (type == nullptr) refuse("tensor type " + std::to_string(ggml_type) + " is not supported");
  return *type;
}

// Same size in the tile, same meaning of codes.
bool alike(const BlockType& a, const BlockType& b) {
  return format_of(a) == format_of(b) && a.offset == b.offset;
}

std::int64_t check(const std::vector<MatrixPart>& parts, std::int64_t num_cols) {
  if (parts.empty()) refuse("a matrix has at least one part");
  if (num_cols < 1 || num_cols > kMaxSide) refuse("the number of columns is out of range");
  const BlockType& first = known_type(parts.front().ggml_type);
  std::int64_t num_rows = 0;
  for (const MatrixPart& part : parts) {
    const BlockType& type = known_type(part.ggml_type);
    if (!alike(type, first)) refuse("parts of these types do not pack alike");
    if (num_cols % type.block_items != 0) {
      refuse(std::string(type.name) + " needs columns in multiples of " +
             std::to_string(type.block_items));
    }
    if (part.num_rows < 0 || part.num_rows > kMaxSide - num_rows) {
      refuse("the number of rows is out of range");
    }
    const std::int64_t row_bytes = num_cols / type.block_items * type.block_bytes;
    if (part.num_bytes != std::size_t(part.num_rows * row_bytes)) {
      refuse("the data has another size than the shape");
    }
    num_rows += part.num_rows;
  }
  return num_rows;
}

// Row `row` of all parts: its type and its bytes.
struct SourceRow {
  const BlockType* type;
  const std::uint8_t* data;
};

SourceRow find_row(const std::vector<MatrixPart>& parts, std::int64_t row, std::int64_t num_cols) {
  auto part = parts.begin();
  for (; row >= part->num_rows; ++part) row -= part->num_rows;
  const BlockType* type = find_block_type(part->ggml_type);
  return {type, part->data + row * (num_cols / type->block_items * type->block_bytes)};
}

float scale_at(const PackedTiles& tiles, const std::uint8_t* part, std::int64_t index) {
  const bool half = tiles.format == kQ4Half || tiles.format == kQ4HalfMin ||
                    tiles.format == kQ8Half || tiles.format == kQ8HalfMin;
  if (half) {
    std::uint16_t bits;
    std::memcpy(&bits, part + index * 2, 2);
    return float_of_half(bits);
  }
  float value;
  std::memcpy(&value, part + index * 4, 4);
  return value;
}

float number_at(const PackedTiles& tiles, const std::uint8_t* tile, std::int64_t index) {
  if (tiles.format == kFloat) {
    float value;
    std::memcpy(&value, tile + index * 4, 4);
    return value;
  }
  std::uint16_t bits;
  std::memcpy(&bits, tile + index * 2, 2);
  return tiles.format == kHalf ? float_of_half(bits) : float_of_bits(std::uint32_t{bits} << 16);
}

}  // namespace

bool Matrix::pack_alike(std::int32_t ggml_type, std::int32_t other) {
  return alike(known_type(ggml_type), known_type(other));
}

Matrix Matrix::pack(Arena& arena, ThreadPool& pool, const std::vector<MatrixPart>& parts,
                    std::int64_t num_cols) {
  const std::int64_t num_rows = check(parts, num_cols);
  const PackedTiles planned = plan(known_type(parts.front().ggml_type), num_rows, num_cols);
  const std::int64_t num_tiles = (num_rows + kTileOutputs - 1) / kTileOutputs;
  auto storage = arena.allocate(std::size_t(num_tiles * planned.tile_bytes));
  PackedTiles tiles = planned;
  tiles.data = storage.get();
  pool.run_all([&](std::size_t thread, std::size_t num_threads) {
    const TileRange range = share(num_tiles, thread, num_threads);
    const std::int64_t end = std::min(range.end * kTileOutputs, num_rows);
    for (std::int64_t row = range.first * kTileOutputs; row < end; ++row) {
      const SourceRow source = find_row(parts, row, num_cols);
      std::uint8_t* tile = storage.get() + row / kTileOutputs * tiles.tile_bytes;
      LaneWriter(tiles, *source.type, tile, int(row % kTileOutputs)).write(source.data);
    }
  });
  return Matrix(tiles, std::move(storage));
}

void Matrix::rotate(const MatmulKernels& kernels, Arena& arena, ThreadPool& pool) {
  if (!takes_int8() || kernels.rotate_tile == nullptr) return;
  rotated_.num_outputs = num_rows();
  rotated_.num_inputs = rotated_width(num_cols());
  rotated_storage_ = arena.allocate(rotated_bytes());
  rotated_.codes = reinterpret_cast<std::int8_t*>(rotated_storage_.get());
  rotated_.scales = reinterpret_cast<float*>(rotated_storage_.get() + rotated_codes());
  pool.run_all([&](std::size_t thread, std::size_t num_threads) {
    const TileRange range = share(num_tiles(), thread, num_threads);
    for (std::int64_t tile = range.first; tile < range.end; ++tile) {
      kernels.rotate_tile(tiles_, tile, rotated_);
    }
  });
}

void Matrix::widen(const MatmulKernels& kernels, Arena& arena, ThreadPool& pool) {
  if (!takes_int8() || kernels.widen_tile == nullptr) return;
  const std::int64_t tile_bytes = num_cols() * kTileOutputs * 2;
  widened_storage_ = arena.allocate(std::size_t(num_tiles() * tile_bytes));
  pool.run_all([&](std::size_t thread, std::size_t num_threads) {
    const TileRange range = share(num_tiles(), thread, num_threads);
    for (std::int64_t tile = range.first; tile < range.end; ++tile) {
      kernels.widen_tile(tiles_, tile, widened_storage_.get() + tile * tile_bytes);
    }
  });
  tiles_.widened = widened_storage_.get();
}

std::size_t Matrix::widened_bytes() const {
  return tiles_.widened == nullptr ? 0 : std::size_t(num_tiles() * num_cols() * kTileOutputs * 2);
}

void Matrix::dequantize_row(std::int64_t row, float* out) const {
  const std::uint8_t* tile = tiles_.data + row / kTileOutputs * tiles_.tile_bytes;
  const std::int64_t lane = row % kTileOutputs;
  if (!takes_int8()) {
    for (std::int64_t k = 0; k < num_cols(); ++k) {
      out[k] = number_at(tiles_, tile, k * kTileOutputs + lane);
    }
    return;
  }
  const bool four_bits = tiles_.format < kQ8Half;
  const bool by_16 = tiles_.format == kQ4Float16 || tiles_.format == kQ4Float16Min ||
                     tiles_.format == kQ8Float16;
  const bool has_min = tiles_.mins_at < tiles_.tile_bytes;
  const std::int64_t scale_items = by_16 ? 16 : kGroup;
  for (std::int64_t k = 0; k < num_cols(); ++k) {
    const std::int64_t group = k / kGroup, item = k % kGroup;
    int code;
    if (four_bits) {
      code = tile[group * 256 + item % 16 / 4 * 64 + lane * 4 + item % 4] >> item / 16 * 4 & 15;
    } else {
      code = tile[group * 512 + item / 4 * 64 + lane * 4 + item % 4];
    }
    const std::int64_t index = k / scale_items * kTileOutputs + lane;
    const float value = float(code - tiles_.offset) * scale_at(tiles_, tile + tiles_.scales_at, index);
    out[k] = has_min ? value + scale_at(tiles_, tile + tiles_.mins_at, index) : value;
  }
}

}  // namespace starshade
