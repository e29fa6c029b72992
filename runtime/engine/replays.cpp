#include "engine/replays.hpp"

#include <algorithm>

namespace pumice {

const Replays::Recording* Replays::find(const Key& key) {
  const auto it = entries_.find(key);
  if (it == entries_.end()) return nullptr;
  it->second.last_use = ++uses_;
  return &it->second.recording;
}

void Replays::add(const Key& key, Recording recording) {
  if (entries_.size() >= kMost && !entries_.contains(key)) {
    entries_.erase(std::ranges::min_element(
        entries_, {}, [](const auto& entry) { return entry.second.last_use; }));
  }
  entries_.insert_or_assign(key, Entry{std::move(recording), ++uses_});
}

}  // namespace pumice
