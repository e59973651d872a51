// Where do packed weights live?  A few large mappings in huge pages, so that a pass over all of
// them misses few TLB entries.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>

namespace starshade {

// Thread-safe.  A piece keeps its mapping alive, also after the arena is gone.
class Arena {
 public:
  // Zeroed bytes at a 64-byte boundary.  Throws std::bad_alloc.
  std::shared_ptr<std::uint8_t> allocate(std::size_t num_bytes);

 private:
  std::mutex mutex_;
  std::shared_ptr<std::uint8_t> chunk_;
  std::size_t used_ = 0, chunk_bytes_ = 0;
};

}  // namespace starshade
