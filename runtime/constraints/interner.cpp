#include "constraints/interner.hpp"

#include <algorithm>

namespace pumice {
namespace {

uint32_t hash_of(std::span<const uint32_t> words) {
  uint64_t hash = words.size() * 0x9E3779B97F4A7C15u;
  for (const uint32_t word : words) {
    hash = (hash ^ word) * 0xD6E8FEB86659FD93u;
    hash ^= hash >> 32;
  }
  return static_cast<uint32_t>(hash);
}

}  // namespace

WordInterner::Interned WordInterner::intern(std::span<const uint32_t> words) {
  if (2 * (size() + 1) > slots_.size()) grow();
  const size_t last = slots_.size() - 1;
  const uint32_t hash = hash_of(words);
  size_t at = hash & last;
  for (; slots_[at].number != Slot::kFree; at = (at + 1) & last) {
    const Slot& slot = slots_[at];
    if (slot.hash == hash && std::ranges::equal((*this)[slot.number], words)) {
      return {slot.number, false};
    }
  }
  const uint32_t number = size();
  // Appended by index: `words` may lie in words_.
  const size_t begin = words_.size();
  const bool own = words.data() >= words_.data() && words.data() < words_.data() + begin;
  const size_t from = own ? static_cast<size_t>(words.data() - words_.data()) : 0;
  words_.resize(begin + words.size());
  const uint32_t* source = own ? words_.data() + from : words.data();
  std::copy_n(source, words.size(), words_.data() + begin);
  starts_.push_back(static_cast<uint32_t>(words_.size()));
  slots_[at] = {number, hash};
  return {number, true};
}

void WordInterner::clear() {
  words_.clear();
  starts_.assign(1, 0);
  slots_.assign(kFewestSlots, {});
}

void WordInterner::grow() {
  std::vector<Slot> slots(2 * slots_.size());
  const size_t last = slots.size() - 1;
  for (const Slot& slot : slots_) {
    if (slot.number == Slot::kFree) continue;
    size_t at = slot.hash & last;
    while (slots[at].number != Slot::kFree) at = (at + 1) & last;
    slots[at] = slot;
  }
  slots_ = std::move(slots);
}

}  // namespace pumice
