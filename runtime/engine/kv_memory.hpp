// The bytes behind page numbers: KV memory, one arena per slab so that it can grow and shrink.
#pragma once

#include <memory>
#include <vector>

#include "base/result.hpp"
#include "cache/page_pool.hpp"
#include "vk/memory.hpp"

namespace pumice {

class KvMemory {
 public:
  /// Room for `n_pages` pages, or what is more to whole slabs, of `most_pages` that there may ever
  /// be. Errors: kDoesNotFit, with nothing kept.
  static Result<KvMemory> create(const std::shared_ptr<vk::Device>& device, uint64_t page_bytes,
                                 uint32_t most_pages, uint32_t n_pages);

  /// The slabs that `create` will take for all pages, on a device with such slabs.
  static uint64_t allocated_bytes(uint64_t page_bytes, uint32_t n_pages, uint64_t slab_bytes);

  uint64_t page_bytes() const { return page_bytes_; }
  uint32_t n_pages() const { return n_pages_; }
  uint32_t most_pages() const { return most_pages_; }

  /// Pages come and go by slabs. The most pages that are no more than these, and the least that
  /// are no fewer, of whole slabs.
  uint32_t whole_slabs_within(uint64_t n_pages) const;
  uint32_t whole_slabs_for(uint64_t n_pages) const;
  /// Of device memory, with so many pages of whole slabs.
  uint64_t bytes_with(uint32_t n_pages) const;

  /// Have so many pages, of whole slabs. What goes is free once the device is done with it.
  /// Errors: kDoesNotFit, with as many more as there was room for.
  Status resize(uint32_t n_pages);

  vk::BufferRange page(PageId id) const {
    return slabs_[id / pages_per_slab_].subrange(uint64_t{id % pages_per_slab_} * page_bytes_,
                                                 page_bytes_);
  }

  /// Device address of a page's first byte.
  uint64_t address(PageId id) const {
    return slabs_[id / pages_per_slab_].address() + uint64_t{id % pages_per_slab_} * page_bytes_;
  }

  /// What ops declare when they touch the cache: one range stands for all of it.
  const vk::BufferRange& range() const { return slabs_.front(); }

 private:
  std::shared_ptr<vk::Device> device_;
  uint64_t page_bytes_ = 0;
  uint32_t most_pages_ = 0;
  uint32_t n_pages_ = 0;
  uint32_t pages_per_slab_ = 1;
  std::vector<vk::Arena> arenas_;
  std::vector<vk::BufferRange> slabs_;
};

}  // namespace pumice
