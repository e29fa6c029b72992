// Numbers by numbers, in one piece of memory: what is looked up for every byte of a vocabulary.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace pumice {

/// Keys are anything but kFree. Copyable; one thread at a time.
class WordMap {
 public:
  static constexpr uint64_t kFree = ~uint64_t{0};

  /// Null where there is none. Until the next insert().
  const uint32_t* find(uint64_t key) const {
    const Slot& slot = slots_[place_of(key)];
    return slot.key == key ? &slot.value : nullptr;
  }
  void insert(uint64_t key, uint32_t value) {
    if (2 * (size_ + 1) > slots_.size()) grow();
    Slot& slot = slots_[place_of(key)];
    size_ += slot.key == kFree ? 1 : 0;
    slot = {key, value};
  }
  size_t memory_bytes() const { return sizeof(Slot) * slots_.capacity(); }

 private:
  static constexpr size_t kFewestSlots = 64;
  struct Slot {
    uint64_t key = kFree;
    uint32_t value = 0;
  };

  /// Where the key is or would be.
  size_t place_of(uint64_t key) const {
    const size_t last = slots_.size() - 1;
    size_t at = (key * 0x9E3779B97F4A7C15u >> 32) & last;
    while (slots_[at].key != key && slots_[at].key != kFree) at = (at + 1) & last;
    return at;
  }
  void grow() {
    std::vector<Slot> before(2 * slots_.size());
    before.swap(slots_);
    for (const Slot& slot : before) {
      if (slot.key != kFree) slots_[place_of(slot.key)] = slot;
    }
  }

  std::vector<Slot> slots_ = std::vector<Slot>(kFewestSlots);  // open addressing
  size_t size_ = 0;
};

}  // namespace pumice
