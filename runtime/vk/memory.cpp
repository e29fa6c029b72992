#include "vk/memory.hpp"

#include <algorithm>
#include <optional>

#include "vk/arena_sizes.hpp"
#include "vk/device.hpp"

namespace pumice::vk {

void MemoryLedger::add(const std::string& purpose, uint64_t bytes, bool budgeted) {
  const std::lock_guard lock(mutex_);
  Entry& entry = entries_[purpose];
  entry.current_bytes += bytes;
  if (budgeted) budgeted_bytes_ += bytes;
  entry.peak_bytes = std::max(entry.peak_bytes, entry.current_bytes);
}

MemoryLedger::Entry& MemoryLedger::entry(const std::string& purpose) {
  const std::lock_guard lock(mutex_);
  return entries_[purpose];
}

void MemoryLedger::remove(const std::string& purpose, uint64_t bytes, bool budgeted) {
  remove(entry(purpose), bytes, budgeted);
}

void MemoryLedger::remove(Entry& entry, uint64_t bytes, bool budgeted) noexcept {
  const std::lock_guard lock(mutex_);
  if (entry.current_bytes < bytes || (budgeted && budgeted_bytes_ < bytes)) ++n_excesses_;
  entry.current_bytes -= std::min(entry.current_bytes, bytes);
  if (budgeted) budgeted_bytes_ -= std::min(budgeted_bytes_, bytes);
}

Status MemoryLedger::check_integrity() const {
  const std::lock_guard lock(mutex_);
  if (n_excesses_ == 0) return {};
  return make_error(ErrorCode::kInternal, "more memory was freed than allocated, {} times",
                    n_excesses_);
}

uint64_t MemoryLedger::budgeted_bytes() const {
  const std::lock_guard lock(mutex_);
  return budgeted_bytes_;
}

uint64_t MemoryLedger::total_bytes() const {
  const std::lock_guard lock(mutex_);
  uint64_t total = 0;
  for (const auto& [purpose, entry] : entries_) total += entry.current_bytes;
  return total;
}

std::map<std::string, MemoryLedger::Entry> MemoryLedger::entries() const {
  const std::lock_guard lock(mutex_);
  return entries_;
}

BufferRange BufferRange::subrange(uint64_t first, uint64_t count) const {
  PUMICE_CHECK(first <= size_bytes && count <= size_bytes - first, "subrange outside its range");
  return {slab, offset + first, count};
}

Arena::Arena(std::shared_ptr<Device> device, MemoryDomain domain, std::string purpose,
             uint64_t expected_bytes)
    : device_(std::move(device)),
      domain_(domain),
      purpose_(std::move(purpose)),
      expected_bytes_(expected_bytes) {}

Arena::~Arena() { release(); }

Arena& Arena::operator=(Arena&& other) noexcept {
  if (this != &other) {
    release();
    device_ = std::move(other.device_);
    domain_ = other.domain_;
    purpose_ = std::move(other.purpose_);
    expected_bytes_ = other.expected_bytes_;
    allocated_bytes_ = other.allocated_bytes_;
    used_in_last_ = other.used_in_last_;
    slabs_ = std::move(other.slabs_);
  }
  return *this;
}

void Arena::release() {
  if (slabs_.empty()) return;
  MemoryLedger::Entry* const entry = &device_->ledger().entry(purpose_);
  const bool budgeted = device_->plan().is_budgeted(domain_);
  for (auto& slab : slabs_) {
    device_->retire([device = device_.get(), entry, budgeted, slab = *slab] {
      device->ledger().remove(*entry, slab.size_bytes, budgeted);
      device->free_slab(slab);
    });
  }
  slabs_.clear();
}

Result<BufferRange> Arena::allocate(uint64_t size_bytes, uint64_t alignment) {
  const uint64_t limit = device_->plan().slab_bytes;
  if (size_bytes > limit) {
    return make_error(ErrorCode::kDoesNotFit,
                      "{}: one allocation of {} bytes exceeds this device's slab of {} bytes",
                      purpose_, size_bytes, limit);
  }
  std::optional<uint64_t> offset;
  if (!slabs_.empty()) {
    offset = place_in_slab(slabs_.back()->size_bytes, used_in_last_, size_bytes, alignment);
  }
  if (!offset) {
    PUMICE_TRY_STATUS(add_slab(size_bytes));
    offset = 0;
  }
  used_in_last_ = *offset + size_bytes;
  return BufferRange{slabs_.back().get(), *offset, size_bytes};
}

Status Arena::add_slab(uint64_t minimum_bytes) {
  return add_slab_of(next_slab_bytes(minimum_bytes, expected_bytes_, allocated_bytes_,
                                     device_->plan().slab_bytes));
}

Status Arena::add_slab_of(uint64_t size) {
  // What needs memory of the host comes before the slab, which nobody would free.
  auto slab = std::make_unique<Slab>();
  slabs_.reserve(slabs_.size() + 1);
  device_->ledger().add(purpose_, 0);
  PUMICE_TRY(*slab, device_->allocate_slab(domain_, size, purpose_));
  slabs_.push_back(std::move(slab));
  device_->ledger().add(purpose_, size, device_->plan().is_budgeted(domain_));
  allocated_bytes_ += size;
  return {};
}

std::vector<BufferRange> Arena::slabs() const {
  std::vector<BufferRange> ranges;
  for (const auto& slab : slabs_) ranges.push_back({slab.get(), 0, slab->size_bytes});
  return ranges;
}

Result<Arena> Arena::same_slabs(MemoryDomain domain, std::string purpose) const {
  Arena other(device_, domain, std::move(purpose));
  for (const auto& slab : slabs_) PUMICE_TRY_STATUS(other.add_slab_of(slab->size_bytes));
  other.used_in_last_ = used_in_last_;
  return other;
}

}  // namespace pumice::vk
