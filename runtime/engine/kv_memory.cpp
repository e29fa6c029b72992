#include "engine/kv_memory.hpp"

#include <algorithm>
#include <utility>

#include "vk/arena_sizes.hpp"
#include "vk/device.hpp"

namespace pumice {
namespace {

// All of it can go in so many parts, unless they would be smaller than a slab can be.
constexpr uint32_t kParts = 16;
constexpr uint64_t kSmallestSlabBytes = uint64_t{64} << 10;

uint32_t blocks_per_slab(uint64_t block_bytes, uint32_t most_blocks, uint64_t slab_bytes) {
  const uint64_t part = (uint64_t{most_blocks} + kParts - 1) / kParts;
  const uint64_t smallest = (kSmallestSlabBytes + block_bytes - 1) / block_bytes;
  const uint64_t largest = std::max<uint64_t>(1, slab_bytes / block_bytes);
  return static_cast<uint32_t>(
      std::min({std::max(part, smallest), largest, std::max<uint64_t>(1, most_blocks)}));
}

uint64_t arena_bytes(uint64_t bytes, uint64_t slab_bytes) {
  vk::ArenaSizes sizes(slab_bytes, bytes);
  if (bytes > 0) sizes.allocate(bytes);
  return sizes.allocated_bytes();
}

uint64_t slabs_bytes(uint64_t block_bytes, uint32_t per_slab, uint32_t n_blocks,
                     uint64_t slab_bytes) {
  return n_blocks / per_slab * arena_bytes(per_slab * block_bytes, slab_bytes) +
         arena_bytes(n_blocks % per_slab * block_bytes, slab_bytes);
}

}  // namespace

Result<KvMemory> KvMemory::create(const std::shared_ptr<vk::Device>& device, uint64_t block_bytes,
                                  uint32_t most_blocks, uint32_t n_blocks) {
  const uint64_t slab_bytes = device->plan().slab_bytes;
  if (block_bytes > slab_bytes) {
    return make_error(ErrorCode::kDoesNotFit, "one KV block of {} bytes exceeds a slab of {} bytes",
                      block_bytes, slab_bytes);
  }
  KvMemory memory;
  memory.device_ = device;
  memory.block_bytes_ = block_bytes;
  memory.most_blocks_ = most_blocks;
  memory.blocks_per_slab_ = blocks_per_slab(block_bytes, most_blocks, slab_bytes);
  PUMICE_TRY_STATUS(memory.resize(memory.whole_slabs_for(n_blocks)));
  return memory;
}

uint64_t KvMemory::allocated_bytes(uint64_t block_bytes, uint32_t n_blocks, uint64_t slab_bytes) {
  return slabs_bytes(block_bytes, blocks_per_slab(block_bytes, n_blocks, slab_bytes), n_blocks,
                     slab_bytes);
}

uint32_t KvMemory::whole_slabs_within(uint64_t n_blocks) const {
  if (n_blocks >= most_blocks_) return most_blocks_;
  return static_cast<uint32_t>(n_blocks / blocks_per_slab_ * blocks_per_slab_);
}

uint32_t KvMemory::whole_slabs_for(uint64_t n_blocks) const {
  return whole_slabs_within(n_blocks + blocks_per_slab_ - 1);
}

uint64_t KvMemory::bytes_with(uint32_t n_blocks) const {
  return slabs_bytes(block_bytes_, blocks_per_slab_, n_blocks, device_->plan().slab_bytes);
}

Status KvMemory::resize(uint32_t n_wanted) {
  PUMICE_CHECK(n_wanted > 0 && n_wanted == whole_slabs_within(n_wanted),
               "KV memory of parts of slabs");
  const uint32_t n_slabs = (n_wanted + blocks_per_slab_ - 1) / blocks_per_slab_;
  while (slabs_.size() > n_slabs) {
    slabs_.pop_back();
    arenas_.pop_back();
    n_blocks_ = static_cast<uint32_t>(slabs_.size()) * blocks_per_slab_;
  }
  slabs_.reserve(n_slabs);
  arenas_.reserve(n_slabs);
  while (n_blocks_ < n_wanted) {
    const uint32_t n_more = std::min(blocks_per_slab_, most_blocks_ - n_blocks_);
    const uint64_t bytes = n_more * block_bytes_;
    vk::Arena arena(device_, vk::MemoryDomain::kDevice, "KV cache", bytes);
    PUMICE_TRY(const vk::BufferRange slab, arena.allocate(bytes));
    arenas_.push_back(std::move(arena));
    slabs_.push_back(slab);
    n_blocks_ += n_more;
  }
  return {};
}

}  // namespace pumice
