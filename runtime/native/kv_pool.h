// Where do the keys and values of all sequences live?  One mapping that costs memory as it is used.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kv_layout.h"

namespace starshade {

class KvPool {
 public:
  // Throws std::invalid_argument: sizes out of range or beyond what can be addressed;
  // std::bad_alloc: the system refuses the mapping.
  KvPool(const KvLayout& layout, std::int64_t num_blocks);
  ~KvPool();
  KvPool(const KvPool&) = delete;
  KvPool& operator=(const KvPool&) = delete;

  const KvLayout& layout() const { return layout_; }
  std::int64_t num_blocks() const { return num_blocks_; }
  // All layers and heads of a block; block_bytes() bytes.
  std::uint8_t* block(std::int64_t block) { return data_ + block * layout_.block_bytes(); }
  // Block 0 of a layer: what the kernels count from.
  std::uint8_t* layer(std::int64_t layer) { return data_ + layer * layout_.layer_bytes(); }
  std::uint8_t* head(std::int64_t block, std::int64_t layer, std::int64_t kv_head) {
    return this->block(block) + layer * layout_.layer_bytes() + kv_head * layout_.head_bytes();
  }

 private:
  KvLayout layout_;
  std::int64_t num_blocks_;
  std::size_t num_bytes_;
  std::uint8_t* data_;
};

}  // namespace starshade
