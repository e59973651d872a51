#include "kv_pool.h"

#include <sys/mman.h>

#include <new>
#include <stdexcept>

#include "kv_kernel.h"

namespace starshade {
namespace {

constexpr std::int64_t kMaxLayers = 1024, kMaxKvHeads = 1024, kMaxBlockSize = 256;
constexpr std::int64_t kMaxBlocks = std::int64_t{1} << 31;
constexpr std::int64_t kMaxBytes = std::int64_t{1} << 46;  // what a process can map

bool in_range(std::int64_t value, std::int64_t limit) { return value >= 1 && value <= limit; }

std::size_t checked_bytes(const KvLayout& layout, std::int64_t num_blocks) {
  if (!in_range(layout.num_layers, kMaxLayers) || !in_range(layout.num_kv_heads, kMaxKvHeads) ||
      !in_range(layout.block_size, kMaxBlockSize) || !in_range(num_blocks, kMaxBlocks)) {
    throw std::invalid_argument("a size of the KV pool is out of range");
  }
  if (!in_range(layout.head_dim, kKvMaxHeadDim) || layout.head_dim % kKvHeadDimStep != 0) {
    throw std::invalid_argument("head_dim must be a multiple of 16, at most 512");
  }
  if (num_blocks > kMaxBytes / layout.block_bytes()) {
    throw std::invalid_argument("the KV pool is larger than memory can be");
  }
  return std::size_t(num_blocks * layout.block_bytes());
}

}  // namespace

KvPool::KvPool(const KvLayout& layout, std::int64_t num_blocks)
    : layout_(layout), num_blocks_(num_blocks), num_bytes_(checked_bytes(layout, num_blocks)) {
  void* data = mmap(nullptr, num_bytes_, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) throw std::bad_alloc();
#ifdef MADV_HUGEPAGE
  madvise(data, num_bytes_, MADV_HUGEPAGE);  // a wish: small pages do as well
#endif
  data_ = static_cast<std::uint8_t*>(data);
}

KvPool::~KvPool() { munmap(data_, num_bytes_); }

}  // namespace starshade
