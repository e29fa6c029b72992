#include "engine/kv_memory.hpp"

#include <algorithm>

#include "vk/arena_sizes.hpp"
#include "vk/device.hpp"

namespace pumice {

Result<KvMemory> KvMemory::create(const std::shared_ptr<vk::Device>& device, uint64_t block_bytes,
                                  uint32_t n_blocks) {
  const uint64_t per_slab = device->plan().slab_bytes / block_bytes;
  if (per_slab == 0) {
    return make_error(ErrorCode::kDoesNotFit, "one KV block of {} bytes exceeds a slab of {} bytes",
                      block_bytes, device->plan().slab_bytes);
  }
  KvMemory memory;
  memory.block_bytes_ = block_bytes;
  memory.n_blocks_ = n_blocks;
  memory.blocks_per_slab_ = static_cast<uint32_t>(std::min<uint64_t>(per_slab, n_blocks));
  for (uint32_t first = 0; first < n_blocks; first += memory.blocks_per_slab_) {
    const uint64_t bytes = std::min(memory.blocks_per_slab_, n_blocks - first) * block_bytes;
    vk::Arena& arena =
        memory.arenas_.emplace_back(device, vk::MemoryDomain::kDevice, "KV cache", bytes);
    PUMICE_TRY(memory.slabs_.emplace_back(), arena.allocate(bytes));
  }
  return memory;
}

uint64_t KvMemory::allocated_bytes(uint64_t block_bytes, uint32_t n_blocks, uint64_t slab_bytes) {
  const uint64_t per_slab = std::max<uint64_t>(1, slab_bytes / block_bytes);
  const auto arena_bytes = [&](uint64_t n) {
    vk::ArenaSizes sizes(slab_bytes, n * block_bytes);
    sizes.allocate(n * block_bytes);
    return sizes.allocated_bytes();
  };
  const uint64_t rest = n_blocks % per_slab;
  return n_blocks / per_slab * arena_bytes(per_slab) + (rest > 0 ? arena_bytes(rest) : 0);
}

}  // namespace pumice
