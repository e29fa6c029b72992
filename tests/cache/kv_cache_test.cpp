#include "cache/kv_cache.hpp"

#include <gtest/gtest.h>

#include "tests/cache/fake_device.hpp"

namespace pumice {
namespace {

TEST(KvCache, Works) {
  KvCache cache({.n_blocks = 10, .block_tokens = 4});
  auto p = cache.hash_prompt(counting(18));
  auto a = cache.begin(p, 18);
  ASSERT_TRUE(a.ok());
  cache.commit(*a, 18);
  ASSERT_TRUE(cache.check_integrity().ok()) << cache.check_integrity().error().message;
  auto q = cache.hash_prompt(counting(18));
  EXPECT_EQ(cache.look_up(q).cached_tokens, 16u);
  cache.release(*a);
  EXPECT_EQ(cache.look_up(q).cached_tokens, 17u);
}

}  // namespace
}  // namespace pumice
