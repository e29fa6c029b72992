// Sequences of words, numbered: equal sequences have one number.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace pumice {

/// Numbers count from 0 in the order in which sequences came. Copyable; one thread at a time.
class WordInterner {
 public:
  struct Interned {
    uint32_t number;
    bool is_new;
  };
  /// `words` may lie in this interner. Spans that operator[] gave are no longer valid if it is new.
  Interned intern(std::span<const uint32_t> words);

  std::span<const uint32_t> operator[](uint32_t number) const {
    return {words_.data() + starts_[number], starts_[number + 1] - starts_[number]};
  }
  void clear();
  uint32_t size() const { return static_cast<uint32_t>(starts_.size() - 1); }
  size_t memory_bytes() const {
    return 4 * (words_.capacity() + starts_.capacity()) + sizeof(Slot) * slots_.capacity();
  }

 private:
  static constexpr size_t kFewestSlots = 64;
  struct Slot {
    static constexpr uint32_t kFree = 0xFFFFFFFF;
    uint32_t number = kFree;
    uint32_t hash = 0;  ///< its lower half: so few sequences are looked at that are others
  };

  void grow();

  std::vector<uint32_t> words_;
  std::vector<uint32_t> starts_ = {0};
  std::vector<Slot> slots_ = std::vector<Slot>(kFewestSlots);  // open addressing
};

}  // namespace pumice
