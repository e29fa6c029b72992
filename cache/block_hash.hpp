// Names of blocks: a chained XXH3-128 over (parent's hash, the block's content), with the model's
// fingerprint and the request's salt entering through the root. Two blocks with one hash have the
// same tokens after the same prefix under the same model and salt, up to collisions, which every
// look-up must expect (PrefixIndex compares the content).
//
// Pure functions; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace pumice {

struct Hash128 {
  uint64_t low = 0;
  uint64_t high = 0;

  bool operator==(const Hash128&) const = default;
};

using BlockHash = Hash128;
/// What cached bytes depend on besides tokens: weights, KV type and layout, arithmetic, with
/// --invariant the kernels and the device. Computed by the engine.
using ModelFingerprint = Hash128;

class BlockHasher {
 public:
  /// `hash_bits` < 64 keeps that many bits, for tests that want collisions.
  explicit BlockHasher(uint32_t hash_bits = 128) : hash_bits_(hash_bits) {}

  /// Parent of first blocks.
  BlockHash root(const ModelFingerprint& model, std::string_view salt) const;

  /// `content`: the block's token ids, or whatever else stands for them (a given key). A span of
  /// embeddings will put its identity into the content of the blocks it touches.
  BlockHash child(const BlockHash& parent, std::span<const uint32_t> content) const;

  /// The chain over `content`, cut into blocks of `block_words`; what fills no block is left out.
  /// `hashes` has room for content.size() / block_words.
  void chain(BlockHash parent, std::span<const uint32_t> content, uint32_t block_words,
             std::span<BlockHash> hashes) const;

 private:
  BlockHash truncated(BlockHash hash) const;

  uint32_t hash_bits_;
};

/// Hash of a block's content alone, whatever stands before it.
uint64_t hash_content(std::span<const uint32_t> content);

}  // namespace pumice
