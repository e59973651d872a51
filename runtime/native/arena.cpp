#include "arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <new>

namespace starshade {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;
constexpr std::size_t kChunkBytes = 16 * kHugePage;
constexpr std::size_t kAlignment = 64;

std::size_t round_up(std::size_t bytes, std::size_t to) { return (bytes + to - 1) / to * to; }

// Mapped with room to start at a huge page; pages nobody touches cost nothing.
std::shared_ptr<std::uint8_t> map(std::size_t bytes) {
  const std::size_t mapped = bytes + kHugePage;
  void* at = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) throw std::bad_alloc();
#ifdef MADV_HUGEPAGE
  madvise(at, mapped, MADV_HUGEPAGE);  // advice: a kernel without huge pages may refuse
#endif
  const auto address = reinterpret_cast<std::uintptr_t>(at);
  const std::shared_ptr<std::uint8_t> mapping(static_cast<std::uint8_t*>(at),
                                              [mapped](std::uint8_t* p) { munmap(p, mapped); });
  return {mapping, mapping.get() + (round_up(address, kHugePage) - address)};
}

}  // namespace

std::shared_ptr<std::uint8_t> Arena::allocate(std::size_t num_bytes) {
  if (num_bytes > SIZE_MAX / 2) throw std::bad_alloc();
  const std::size_t bytes = std::max(round_up(num_bytes, kAlignment), kAlignment);
  const std::lock_guard<std::mutex> lock(mutex_);
  if (chunk_ == nullptr || bytes > chunk_bytes_ - used_) {
    const std::size_t chunk_bytes = round_up(std::max(bytes, kChunkBytes), kHugePage);
    chunk_ = map(chunk_bytes);
    chunk_bytes_ = chunk_bytes;
    used_ = 0;
  }
  std::shared_ptr<std::uint8_t> piece(chunk_, chunk_.get() + used_);
  used_ += bytes;
  return piece;
}

}  // namespace starshade
