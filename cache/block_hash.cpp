#include "cache/block_hash.hpp"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <array>
#include <cstring>

namespace pumice {
namespace {

Hash128 from_xxh(XXH128_hash_t hash) { return {hash.low64, hash.high64}; }

}  // namespace

BlockHash BlockHasher::truncated(BlockHash hash) const {
  if (hash_bits_ >= 64) return hash;
  return {hash.low & ((uint64_t{1} << hash_bits_) - 1), 0};
}

BlockHash BlockHasher::root(const ModelFingerprint& model, std::string_view salt) const {
  const XXH128_hash_t salted = XXH3_128bits_withSeed(salt.data(), salt.size(), model.high);
  const std::array<uint64_t, 4> parts = {salted.low64, salted.high64, model.low, model.high};
  return truncated(from_xxh(XXH3_128bits(parts.data(), sizeof(parts))));
}

BlockHash BlockHasher::child(const BlockHash& parent, std::span<const uint32_t> content) const {
  // XXH3 is fast on one contiguous input: 80 bytes for 16 tokens. Long blocks are hashed in place
  // first, instead of being copied.
  constexpr size_t kInlineWords = 64;
  std::array<uint32_t, 4 + kInlineWords> input;
  std::memcpy(input.data(), &parent, sizeof(parent));
  if (content.size() <= kInlineWords) {
    std::memcpy(input.data() + 4, content.data(), content.size_bytes());
    return truncated(from_xxh(XXH3_128bits(input.data(), sizeof(parent) + content.size_bytes())));
  }
  const Hash128 inner = from_xxh(XXH3_128bits(content.data(), content.size_bytes()));
  std::memcpy(input.data() + 4, &inner, sizeof(inner));
  return truncated(from_xxh(XXH3_128bits(input.data(), sizeof(parent) + sizeof(inner))));
}

void BlockHasher::chain(BlockHash parent, std::span<const uint32_t> content, uint32_t block_words,
                        std::span<BlockHash> hashes) const {
  const size_t n_blocks = content.size() / block_words;
  for (size_t i = 0; i < n_blocks; ++i) {
    parent = child(parent, content.subspan(i * block_words, block_words));
    hashes[i] = parent;
  }
}

uint64_t hash_content(std::span<const uint32_t> content) {
  return XXH3_64bits(content.data(), content.size_bytes());
}

}  // namespace pumice
