// Arrays whose first element begins a cache line: a tile or vector then never straddles two.
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>
#include <vector>

namespace starshade {

template <class T>
struct LineAllocator {
  using value_type = T;
  static constexpr std::align_val_t kLine{64};

  LineAllocator() = default;
  template <class U>
  LineAllocator(const LineAllocator<U>&) {}

  T* allocate(std::size_t count) {
    if (count > SIZE_MAX / sizeof(T)) throw std::bad_array_new_length();
    return static_cast<T*>(::operator new(count * sizeof(T), kLine));
  }
  void deallocate(T* at, std::size_t) { ::operator delete(at, kLine); }

  friend bool operator==(const LineAllocator&, const LineAllocator&) { return true; }
  friend bool operator!=(const LineAllocator&, const LineAllocator&) { return false; }
};

template <class T>
using LineVector = std::vector<T, LineAllocator<T>>;

}  // namespace starshade
