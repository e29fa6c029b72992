#include "sampling/philox.hpp"

#include <gtest/gtest.h>

namespace pumice {
namespace {

// Random123's own known answers (tests/kat_vectors, "philox4x32 10").
TEST(Philox, GivesThePublishedAnswers) {
  EXPECT_EQ(philox4x32_10({0, 0, 0, 0}, {0, 0}),
            (PhiloxCounter{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  const uint32_t ones = 0xffffffff;
  EXPECT_EQ(philox4x32_10({ones, ones, ones, ones}, {ones, ones}),
            (PhiloxCounter{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(
      philox4x32_10({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
      (PhiloxCounter{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, SeedAndIndexFillTheWordsAsDocumented) {
  EXPECT_EQ(random_word(0, 0), 0x6627e8d5u);
  const uint64_t seed = 0x299f31d0a4093822;
  const uint64_t index = 0x85a308d3243f6a88;
  EXPECT_EQ(random_word(seed, index),
            philox4x32_10({0x243f6a88, 0x85a308d3, 0, 0}, {0xa4093822, 0x299f31d0})[0]);
}

}  // namespace
}  // namespace pumice
