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

uint32_t pages_per_slab(uint64_t page_bytes, uint32_t most_pages, uint64_t slab_bytes) {
  const uint64_t part = (uint64_t{most_pages} + kParts - 1) / kParts;
  const uint64_t smallest = (kSmallestSlabBytes + page_bytes - 1) / page_bytes;
  const uint64_t largest = std::max<uint64_t>(1, slab_bytes / page_bytes);
  return static_cast<uint32_t>(
      std::min({std::max(part, smallest), largest, std::max<uint64_t>(1, most_pages)}));
}

uint64_t arena_bytes(uint64_t bytes, uint64_t slab_bytes) {
  vk::ArenaSizes sizes(slab_bytes, bytes);
  if (bytes > 0) sizes.allocate(bytes);
  return sizes.allocated_bytes();
}

uint64_t slabs_bytes(uint64_t page_bytes, uint32_t per_slab, uint32_t n_pages,
                     uint64_t slab_bytes) {
  return n_pages / per_slab * arena_bytes(per_slab * page_bytes, slab_bytes) +
         arena_bytes(n_pages % per_slab * page_bytes, slab_bytes);
}

}  // namespace

Result<KvMemory> KvMemory::create(const std::shared_ptr<vk::Device>& device, uint64_t page_bytes,
                                  uint32_t most_pages, uint32_t n_pages) {
  const uint64_t slab_bytes = device->plan().slab_bytes;
  if (page_bytes > slab_bytes) {
    return make_error(ErrorCode::kDoesNotFit, "one KV page of {} bytes exceeds a slab of {} bytes",
                      page_bytes, slab_bytes);
  }
  KvMemory memory;
  memory.device_ = device;
  memory.page_bytes_ = page_bytes;
  memory.most_pages_ = most_pages;
  memory.pages_per_slab_ = pages_per_slab(page_bytes, most_pages, slab_bytes);
  PUMICE_TRY_STATUS(memory.resize(memory.whole_slabs_for(n_pages)));
  return memory;
}

uint64_t KvMemory::allocated_bytes(uint64_t page_bytes, uint32_t n_pages, uint64_t slab_bytes) {
  return slabs_bytes(page_bytes, pages_per_slab(page_bytes, n_pages, slab_bytes), n_pages,
                     slab_bytes);
}

uint32_t KvMemory::whole_slabs_within(uint64_t n_pages) const {
  if (n_pages >= most_pages_) return most_pages_;
  return static_cast<uint32_t>(n_pages / pages_per_slab_ * pages_per_slab_);
}

uint32_t KvMemory::whole_slabs_for(uint64_t n_pages) const {
  return whole_slabs_within(n_pages + pages_per_slab_ - 1);
}

uint64_t KvMemory::bytes_with(uint32_t n_pages) const {
  return slabs_bytes(page_bytes_, pages_per_slab_, n_pages, device_->plan().slab_bytes);
}

Status KvMemory::resize(uint32_t n_wanted) {
  PUMICE_CHECK(n_wanted > 0 && n_wanted == whole_slabs_within(n_wanted),
               "KV memory of parts of slabs");
  const uint32_t n_slabs = (n_wanted + pages_per_slab_ - 1) / pages_per_slab_;
  while (slabs_.size() > n_slabs) {
    slabs_.pop_back();
    arenas_.pop_back();
    n_pages_ = static_cast<uint32_t>(slabs_.size()) * pages_per_slab_;
  }
  slabs_.reserve(n_slabs);
  arenas_.reserve(n_slabs);
  while (n_pages_ < n_wanted) {
    const uint32_t n_more = std::min(pages_per_slab_, most_pages_ - n_pages_);
    const uint64_t bytes = n_more * page_bytes_;
    vk::Arena arena(device_, vk::MemoryDomain::kDevice, "KV cache", bytes);
    PUMICE_TRY(const vk::BufferRange slab, arena.allocate(bytes));
    arenas_.push_back(std::move(arena));
    slabs_.push_back(slab);
    n_pages_ += n_more;
  }
  return {};
}

}  // namespace pumice
