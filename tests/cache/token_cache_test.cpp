#include "cache/token_cache.hpp"

#include <gtest/gtest.h>

namespace pumice {
namespace {

TEST(TokenCache, ARepeatedPromptOfTheSameModelIsAHit) {
  TokenCache cache(1 << 20);
  EXPECT_EQ(cache.find("a", "hello"), nullptr);
  cache.put("a", "hello", std::vector<uint32_t>{1, 2, 3});
  ASSERT_NE(cache.find("a", "hello"), nullptr);
  EXPECT_EQ(*cache.find("a", "hello"), (std::vector<uint32_t>{1, 2, 3}));
  EXPECT_EQ(cache.find("b", "hello"), nullptr);
  EXPECT_EQ(cache.find("ah", "ello"), nullptr);
  EXPECT_EQ(cache.find("a", "hello "), nullptr);
  EXPECT_EQ(cache.stats().hits, 2u);
  EXPECT_EQ(cache.stats().misses, 4u);
}

TEST(TokenCache, StaysWithinItsBytesAndForgetsTheLeastRecentlyUsed) {
  TokenCache cache(3000);
  const std::vector<uint32_t> tokens(100, 7);
  for (const char* text : {"one", "two", "three", "four"}) cache.put("m", text, tokens);
  EXPECT_NE(cache.find("m", "one"), nullptr);  // used: it outlives two
  cache.put("m", "five", tokens);
  cache.put("m", "six", tokens);
  EXPECT_LE(cache.stats().bytes, 3000u);
  EXPECT_NE(cache.find("m", "one"), nullptr);
  EXPECT_EQ(cache.find("m", "two"), nullptr);
  EXPECT_NE(cache.find("m", "six"), nullptr);
  EXPECT_GT(cache.stats().evicted, 0u);
  cache.put("m", "huge", std::vector<uint32_t>(1000));
  EXPECT_EQ(cache.find("m", "huge"), nullptr);
  EXPECT_NE(cache.find("m", "six"), nullptr);
}

TEST(TokenCache, OfNoBytesKeepsNothing) {
  TokenCache cache(0);
  cache.put("m", "text", std::vector<uint32_t>{1});
  EXPECT_EQ(cache.find("m", "text"), nullptr);
  EXPECT_EQ(cache.stats().entries, 0u);
}

}  // namespace
}  // namespace pumice
