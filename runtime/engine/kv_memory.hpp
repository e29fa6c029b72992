// The bytes behind block numbers: KV memory, one arena per slab so that it can grow and shrink.
#pragma once

#include <memory>
#include <vector>

#include "base/result.hpp"
#include "cache/block_pool.hpp"
#include "vk/memory.hpp"

namespace pumice {

class KvMemory {
 public:
  /// Room for `n_blocks` blocks, or what is more to whole slabs, of `most_blocks` that there may
  /// ever be. Errors: kDoesNotFit, with
  /// nothing kept.
  static Result<KvMemory> create(const std::shared_ptr<vk::Device>& device, uint64_t block_bytes,
                                 uint32_t most_blocks, uint32_t n_blocks);

  /// The slabs that `create` will take for all blocks, on a device with such slabs.
  static uint64_t allocated_bytes(uint64_t block_bytes, uint32_t n_blocks, uint64_t slab_bytes);

  uint64_t block_bytes() const { return block_bytes_; }
  uint32_t n_blocks() const { return n_blocks_; }
  uint32_t most_blocks() const { return most_blocks_; }

  /// Blocks come and go by slabs. The most blocks that are no more than these, and the least that
  /// are no fewer, of whole slabs.
  uint32_t whole_slabs_within(uint64_t n_blocks) const;
  uint32_t whole_slabs_for(uint64_t n_blocks) const;
  /// Of device memory, with so many blocks of whole slabs.
  uint64_t bytes_with(uint32_t n_blocks) const;

  /// Have so many blocks, of whole slabs. What goes is free once the device is done with it.
  /// Errors: kDoesNotFit, with as many more as there was room for.
  Status resize(uint32_t n_blocks);

  vk::BufferRange block(BlockId id) const {
    return slabs_[id / blocks_per_slab_].subrange(uint64_t{id % blocks_per_slab_} * block_bytes_,
                                                  block_bytes_);
  }

  /// Device address of a block's first byte.
  uint64_t address(BlockId id) const {
    return slabs_[id / blocks_per_slab_].address() + uint64_t{id % blocks_per_slab_} * block_bytes_;
  }

  /// What ops declare when they touch the cache: one range stands for all of it.
  const vk::BufferRange& range() const { return slabs_.front(); }

 private:
  std::shared_ptr<vk::Device> device_;
  uint64_t block_bytes_ = 0;
  uint32_t most_blocks_ = 0;
  uint32_t n_blocks_ = 0;
  uint32_t blocks_per_slab_ = 1;
  std::vector<vk::Arena> arenas_;
  std::vector<vk::BufferRange> slabs_;
};

}  // namespace pumice
