// What the cache needs to know of a prompt, and what it tells about it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cache/block_hash.hpp"
#include "cache/page_kind.hpp"

namespace pumice {

/// A prompt (or a suspended sequence) with the hashes of its full blocks. Made by KvCache.
struct HashedPrompt {
  std::vector<uint32_t> content;  ///< token ids; in a keyed cache two words a full block
  uint32_t n_tokens = 0;
  std::vector<BlockHash> hashes;  ///< of full blocks
  ModelFingerprint model;
  std::string salt;
  BlockHash root;
  uint64_t first_content_hash =
      0;  ///< of the first full block, whatever the salt; 0: there is none
};

/// Why the rest of a prompt has to be computed.
enum class MissReason : uint8_t {
  kNone,     ///< nothing was missed: all but the last token came from the cache
  kNoMatch,  ///< not seen before, as far as is known
  kEvicted,  ///< the next block was cached until its memory was needed, or lost
  kSalt,     ///< seen under another salt
  kTail,     ///< every full block matched; the rest of the last one was not cached
  kModel,    ///< seen under another model, KV type or arithmetic
  kGroup,    ///< known, but not to a kind without which no more can be used (shortened_by)
};
inline constexpr size_t kMissReasonCount = 7;

/// "none", "no match", "evicted", "salt", "tail", "model", "group".
std::string_view miss_reason_name(MissReason reason);

/// What the cache brought to a sequence.
struct CacheReport {
  uint32_t prompt_tokens = 0;
  uint32_t cached_tokens = 0;  ///< not to be computed: the sum of the next four
  uint32_t shared_tokens = 0;  ///< in pages used together with others
  uint32_t host_tokens = 0;    ///< restored from host memory
  uint32_t file_tokens = 0;    ///< restored from the prompt cache file
  uint32_t copied_tokens = 0;  ///< the head of a block, copied from another page
  MissReason miss = MissReason::kNoMatch;
  /// The kind that made the hit shorter, and how long it would be without: cached_tokens if
  /// another could not have restored more either. kNoKind: the kinds agree.
  uint32_t shortened_by = kNoKind;
  uint32_t others_tokens = 0;
};

}  // namespace pumice
