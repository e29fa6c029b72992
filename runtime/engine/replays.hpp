// Recorded steps kept to be submitted again with other arguments.
#pragma once

#include <compare>
#include <cstdint>
#include <map>

#include "engine/device_state.hpp"

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
    uint32_t n_chunks = 0;
    uint32_t chunk_rows = 0;     ///< of the longest
    uint32_t split_classes = 0;  ///< Decoder::split_classes
    bool adapts = false;         ///< StepArgs::adapts
    bool greedy_only = false;
    bool log_probs = false;

    auto operator<=>(const Key&) const = default;
  };

  struct Recording {
    DeviceState::Recording work;
    double in_segments = 0;  ///< Submitter::in_segments when it was recorded
  };
  /// Whether a recording of `n_segments` that was predicted to be of the length `then`, in
  /// segments, may stay as it is now that it is predicted to be of the length `now`: not if that
  /// doubled or halved, where other cuts would help.
  static bool stays(double then, double now, size_t n_segments) {
    const bool too_long = now > 1 && now > 2 * then;
    const bool too_short = n_segments > 1 && now < then / 2;
    return !too_long && !too_short;
  }
  /// nullptr if there is none. Valid until the next addition.
  const Recording* find(const Key& key);
  /// Takes the place of the one of that key, if there is one.
  void add(const Key& key, Recording recording);
  void clear() { entries_.clear(); }
  size_t size() const { return entries_.size(); }

 private:
  struct Entry {
    Recording recording;
    uint64_t last_use = 0;
  };
  std::map<Key, Entry> entries_;
  uint64_t uses_ = 0;
};

}  // namespace pumice
