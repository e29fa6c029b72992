#include "constraints/interner.hpp"

#include <algorithm>

namespace pumice {
namespace {

uint64_t hash_of(std::span<const uint32_t> words) {
  uint64_t hash = words.size() * 0x9E3779B97F4A7C15u;
  for (const uint32_t word : words) {
    hash = (hash ^ word) * 0xD6E8FEB86659FD93u;
    hash ^= hash >> 32;
  }
  return hash;
}

}  // namespace

WordInterner::Interned WordInterner::intern(std::span<const uint32_t> words) {
  if (2 * (size() + 1) > slots_.size()) grow();
  const size_t last = slots_.size() - 1;
  size_t slot = hash_of(words) & last;
  for (; slots_[slot] != kFree; slot = (slot + 1) & last) {
    if (std::ranges::equal((*this)[slots_[slot]], words)) return {slots_[slot], false};
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
  slots_[slot] = number;
  return {number, true};
}

void WordInterner::clear() {
  words_.clear();
  starts_.assign(1, 0);
  slots_.assign(kFewestSlots, kFree);
}

void WordInterner::grow() {
  std::vector<uint32_t> slots(2 * slots_.size(), kFree);
  const size_t last = slots.size() - 1;
  for (uint32_t number = 0; number < size(); ++number) {
    size_t slot = hash_of((*this)[number]) & last;
    while (slots[slot] != kFree) slot = (slot + 1) & last;
    slots[slot] = number;
  }
  slots_ = std::move(slots);
}

}  // namespace pumice
