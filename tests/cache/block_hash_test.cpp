#include "cache/block_hash.hpp"

#include <gtest/gtest.h>

#include <numeric>
#include <set>
#include <vector>

namespace pumice {
namespace {

std::vector<uint32_t> numbers(uint32_t n) {
  std::vector<uint32_t> tokens(n);
  std::iota(tokens.begin(), tokens.end(), 5u);
  return tokens;
}

TEST(BlockHash, DependsOnTokensParentModelAndSalt) {
  const BlockHasher hasher;
  const std::vector<uint32_t> tokens = numbers(16);
  std::vector<uint32_t> other = tokens;
  other[15] ^= 1;
  const BlockHash root = hasher.root({1, 2}, "salt");
  const std::vector<BlockHash> all = {
      hasher.child(root, tokens),
      hasher.child(root, other),
      hasher.child(hasher.child(root, tokens), tokens),
      hasher.child(hasher.root({1, 2}, ""), tokens),
      hasher.child(hasher.root({1, 2}, "salts"), tokens),
      hasher.child(hasher.root({2, 1}, "salt"), tokens),
      hasher.child(hasher.root({1, 3}, "salt"), tokens),
  };
  std::set<std::pair<uint64_t, uint64_t>> different;
  for (const BlockHash& hash : all) different.emplace(hash.low, hash.high);
  EXPECT_EQ(different.size(), all.size());
  EXPECT_EQ(all[0], BlockHasher().child(BlockHasher().root({1, 2}, "salt"), tokens));
}

TEST(BlockHash, AChainIsBlockAfterBlockAndLeavesOutWhatFillsNone) {
  const BlockHasher hasher;
  for (const uint32_t block_words : {1u, 16u, 64u, 65u, 512u}) {
    const std::vector<uint32_t> tokens = numbers(3 * block_words + block_words / 2);
    const size_t n_blocks = tokens.size() / block_words;
    std::vector<BlockHash> hashes(n_blocks);
    hasher.chain({}, tokens, block_words, hashes);
    BlockHash parent;
    for (size_t i = 0; i < n_blocks; ++i) {
      parent = hasher.child(parent, {tokens.data() + i * block_words, block_words});
      EXPECT_EQ(hashes[i], parent);
    }
  }
}

TEST(BlockHash, FewBitsCollide) {
  const BlockHasher hasher(8);
  std::set<uint64_t> different;
  for (uint32_t i = 0; i < 2000; ++i) {
    const BlockHash hash = hasher.child({}, std::vector<uint32_t>{i});
    EXPECT_LT(hash.low, 256u);
    EXPECT_EQ(hash.high, 0u);
    different.insert(hash.low);
  }
  EXPECT_EQ(different.size(), 256u);
}

}  // namespace
}  // namespace pumice
