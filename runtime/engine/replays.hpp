// Recorded steps kept to be submitted again with other arguments.
#pragma once

#include <compare>
#include <cstdint>
#include <map>

#include "vk/recorder.hpp"

namespace pumice {

/// At most kMost of them: a new one takes the place of the one used longest ago. Not thread-safe.
class Replays {
 public:
  /// Recordings of a decode-only step differ by these; each is some hundred commands, and a server
  /// of many sequences meets any number of rows.
  static constexpr size_t kMost = 64;

  /// What a recording depends on besides the contents of its StepArgs.
  struct Key {
    uint32_t ring = 0;
    uint32_t n_rows = 0;
    uint32_t n_logit_rows = 0;
    uint32_t reduces = 0;  ///< a bit for each attention class some rows of which are split
    bool greedy_only = false;

    auto operator<=>(const Key&) const = default;
  };

  /// nullptr if there is none. Valid until it is given up: not by the next kMost - 1 additions.
  const vk::RecordedWork* find(const Key& key);
  /// There is none of that key. Steps under way may still run the one that is given up.
  const vk::RecordedWork& add(const Key& key, vk::RecordedWork work);
  void clear() { entries_.clear(); }
  size_t size() const { return entries_.size(); }

 private:
  struct Entry {
    vk::RecordedWork work;
    uint64_t last_use = 0;
  };
  std::map<Key, Entry> entries_;
  uint64_t uses_ = 0;
};

}  // namespace pumice
