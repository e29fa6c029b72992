// What is remembered to explain misses: a few of the hashes that were evicted, and a few of the
// first blocks that were seen under some root. Bounded: new entries overwrite old ones in their
// place, so an explanation may be missing ("no match"); it is wrong only when 64 bits of a hash
// collide. No answer depends on it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cache/block_hash.hpp"

namespace pumice {

class MissMemory {
 public:
  static constexpr size_t kEvicted = 65536;     ///< 512 KiB
  static constexpr size_t kFirstBlocks = 4096;  ///< 96 KiB

  void remember_evicted(const BlockHash& hash) {
    if (evicted_.empty()) evicted_.resize(kEvicted);
    evicted_[hash.low % kEvicted] = hash.low ^ hash.high;
  }
  bool was_evicted(const BlockHash& hash) const {
    return !evicted_.empty() && evicted_[hash.low % kEvicted] == (hash.low ^ hash.high);
  }

  /// A first block with this content was computed for this model and root.
  void remember_first(uint64_t content_hash, const ModelFingerprint& model, const BlockHash& root) {
    if (first_blocks_.empty()) first_blocks_.resize(kFirstBlocks);
    first_blocks_[content_hash % kFirstBlocks] = {content_hash, model.low ^ model.high,
                                                  root.low ^ root.high};
  }
  enum class Seen { kNever, kHere, kOtherSalt, kOtherModel };
  Seen seen_first(uint64_t content_hash, const ModelFingerprint& model,
                  const BlockHash& root) const {
    if (first_blocks_.empty()) return Seen::kNever;
    const FirstBlock& entry = first_blocks_[content_hash % kFirstBlocks];
    if (entry.content != content_hash) return Seen::kNever;
    if (entry.model != (model.low ^ model.high)) return Seen::kOtherModel;
    return entry.root == (root.low ^ root.high) ? Seen::kHere : Seen::kOtherSalt;
  }

 private:
  struct FirstBlock {
    uint64_t content = 0;
    uint64_t model = 0;
    uint64_t root = 0;
  };
  std::vector<uint64_t> evicted_;
  std::vector<FirstBlock> first_blocks_;
};

}  // namespace pumice
