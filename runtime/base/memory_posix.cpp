#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "base/memory.hpp"

namespace pumice {

uint64_t physical_memory_bytes() {
  const long n_pages = ::sysconf(_SC_PHYS_PAGES);
  const long page_bytes = ::sysconf(_SC_PAGESIZE);
  if (n_pages <= 0 || page_bytes <= 0) return 0;
  return static_cast<uint64_t>(n_pages) * static_cast<uint64_t>(page_bytes);
}

uint64_t last_level_cache_bytes() {
#ifdef _SC_LEVEL3_CACHE_SIZE
  for (const int level : {_SC_LEVEL4_CACHE_SIZE, _SC_LEVEL3_CACHE_SIZE, _SC_LEVEL2_CACHE_SIZE}) {
    const long bytes = ::sysconf(level);
    if (bytes > 0) return static_cast<uint64_t>(bytes);
  }
#endif
  return 0;
}

void use_huge_pages(void* memory, size_t n_bytes) {
#ifdef MADV_HUGEPAGE
  ::madvise(memory, n_bytes, MADV_HUGEPAGE);
#else
  (void)memory, (void)n_bytes;
#endif
}

size_t find_bytes(std::string_view bytes, std::string_view wanted) {
  if (wanted.empty()) return 0;
  const void* const found = ::memmem(bytes.data(), bytes.size(), wanted.data(), wanted.size());
  if (found == nullptr) return std::string_view::npos;
  return static_cast<size_t>(static_cast<const char*>(found) - bytes.data());
}

}  // namespace pumice
