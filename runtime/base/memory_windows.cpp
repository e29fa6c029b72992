#include <windows.h>

#include <algorithm>
#include <vector>

#include "base/memory.hpp"

namespace pumice {

uint64_t physical_memory_bytes() {
  MEMORYSTATUSEX status = {};
  status.dwLength = sizeof status;
  return ::GlobalMemoryStatusEx(&status) != 0 ? status.ullTotalPhys : 0;
}

uint64_t last_level_cache_bytes() {
  DWORD n_bytes = 0;
  ::GetLogicalProcessorInformation(nullptr, &n_bytes);
  std::vector<SYSTEM_LOGICAL_PROCESSOR_INFORMATION> all(
      n_bytes / sizeof(SYSTEM_LOGICAL_PROCESSOR_INFORMATION));
  if (all.empty() || ::GetLogicalProcessorInformation(all.data(), &n_bytes) == 0) return 0;
  uint64_t bytes = 0;
  BYTE level = 0;
  for (const SYSTEM_LOGICAL_PROCESSOR_INFORMATION& one : all) {
    if (one.Relationship != RelationCache || one.Cache.Level < level) continue;
    if (one.Cache.Level > level) bytes = 0;
    level = one.Cache.Level;
    bytes = std::max<uint64_t>(bytes, one.Cache.Size);
  }
  return bytes;
}

// They are of those who hold the privilege to lock memory, and must be asked for before there is any.
void use_huge_pages(void* /*memory*/, size_t /*n_bytes*/) {}

// Knuth, Morris and Pratt's: the C library has no memmem.
size_t find_bytes(std::string_view bytes, std::string_view wanted) {
  if (wanted.empty()) return 0;
  if (wanted.size() > bytes.size()) return std::string_view::npos;
  // Of the first i + 1 bytes of `wanted`, how many at the end are also its beginning.
  std::vector<size_t> again(wanted.size());
  for (size_t i = 1, n = 0; i < wanted.size(); ++i) {
    while (n > 0 && wanted[i] != wanted[n]) n = again[n - 1];
    if (wanted[i] == wanted[n]) ++n;
    again[i] = n;
  }
  for (size_t i = 0, n = 0; i < bytes.size(); ++i) {
    while (n > 0 && bytes[i] != wanted[n]) n = again[n - 1];
    if (bytes[i] == wanted[n]) ++n;
    if (n == wanted.size()) return i + 1 - n;
  }
  return std::string_view::npos;
}

}  // namespace pumice
