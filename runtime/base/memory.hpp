// What the system and the processor know of this machine's memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace pumice {

/// Of the machine; 0 where the system does not say.
uint64_t physical_memory_bytes();
/// Of the largest cache of a processor; 0 where the system does not say.
uint64_t last_level_cache_bytes();

constexpr size_t kHugePageBytes = size_t{2} << 20;
/// Asks for huge pages. `memory` is aligned to kHugePageBytes; a system without them does nothing.
void use_huge_pages(void* memory, size_t n_bytes);

/// Asks for the cache line at `address`, which need not be ours.
inline void prefetch(const void* address) { __builtin_prefetch(address); }

/// Where `wanted` begins in `bytes`, or npos; linear in both together whatever they hold, unlike
/// std::string_view::find.
size_t find_bytes(std::string_view bytes, std::string_view wanted);

}  // namespace pumice
