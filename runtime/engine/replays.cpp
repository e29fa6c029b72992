#include "engine/replays.hpp"

#include <algorithm>

namespace pumice {

const vk::RecordedWork* Replays::find(const Key& key) {
  const auto it = entries_.find(key);
  if (it == entries_.end()) return nullptr;
  it->second.last_use = ++uses_;
  return &it->second.work;
}

const vk::RecordedWork& Replays::add(const Key& key, vk::RecordedWork work) {
  if (entries_.size() >= kMost) {
    entries_.erase(std::ranges::min_element(
        entries_, {}, [](const auto& entry) { return entry.second.last_use; }));
  }
  return entries_.emplace(key, Entry{std::move(work), ++uses_}).first->second.work;
}

}  // namespace pumice
