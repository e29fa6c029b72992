// Which prefixes a server could go on from, as routers are told of them: what changed since the last
// look, in the words of KV events.
//
// A block is of use where some position at its end or behind it can be resumed: keys and values of all
// before it are there, windows see what they need, and a recurrent state was kept. Salted prompts
// are nobody's to know. Of a pure function of the cache, so what subscribers have is what it has.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "cache/kv_cache.hpp"

namespace pumice::serve {

/// Of a model: what its requests' blocks are found by.
struct KvAdapter {
  std::string name;
  ModelFingerprint fingerprint;  ///< Engine::fingerprint_of
};

struct KvEvent {
  enum class Kind : uint8_t { kStored, kRemoved, kCleared };
  Kind kind = Kind::kStored;
  std::vector<uint64_t> blocks = {};  ///< of kStored: one behind the other
  uint64_t parent = 0;                ///< of the first
  bool has_parent = false;            ///< false: it begins a sequence
  std::vector<uint32_t> tokens = {};  ///< of kStored
  uint32_t block_tokens = 0;          ///< of kStored
  bool on_device = true;              ///< else in memory of the host, or in a file
  uint32_t adapter = 0;               ///< of kStored: GenerationRequest::adapter
  std::string adapter_name = {};      ///< its name
};

/// Not thread-safe.
class KvView {
 public:
  /// `adapters`: by Program::adapters.
  explicit KvView(std::vector<KvAdapter> adapters = {}) : adapters_(std::move(adapters)) {}

  /// What changed since the last call, removals first, parents before children.
  std::vector<KvEvent> look(const KvCache& cache);
  size_t n_blocks() const { return known_.size(); }

 private:
  std::vector<KvAdapter> adapters_;
  std::unordered_map<uint64_t, bool> known_;  // by block: whether it is on the device
};

}  // namespace pumice::serve
