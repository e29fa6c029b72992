#include "text/utf8.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

namespace pumice {
namespace {

std::string encode_utf8(uint32_t c) {
  const auto tail = [c](int shift) { return static_cast<char>(0x80 | ((c >> shift) & 0x3F)); };
  if (c < 0x80) return {static_cast<char>(c)};
  if (c < 0x800) return {static_cast<char>(0xC0 | c >> 6), tail(0)};
  if (c < 0x10000) return {static_cast<char>(0xE0 | c >> 12), tail(6), tail(0)};
  return {static_cast<char>(0xF0 | c >> 18), tail(12), tail(6), tail(0)};
}

TEST(Utf8, EveryScalarValueIsCompleteAndEveryPrefixOfItIncomplete) {
  for (uint32_t c = 0; c <= 0x10FFFF; ++c) {
    if (c >= 0xD800 && c <= 0xDFFF) continue;
    const std::string text = encode_utf8(c);
    const Utf8Step whole = utf8_step(text + "z");
    ASSERT_EQ(whole.kind, Utf8Kind::kComplete) << c;
    ASSERT_EQ(whole.length, text.size()) << c;
    for (size_t n = 1; n < text.size(); ++n) {
      ASSERT_EQ(utf8_step(text.substr(0, n)).kind, Utf8Kind::kIncomplete) << c;
    }
  }
}

TEST(Utf8, OverlongFormsSurrogatesAndValuesAboveTheLastAreMalformed) {
  for (const char* text : {"\x80", "\xC0\x80", "\xC1\xBF", "\xE0\x9F\xBF", "\xF0\x8F\xBF\xBF",
                           "\xED\xA0\x80", "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xFF"}) {
    const Utf8Step step = utf8_step(text);
    EXPECT_EQ(step.kind, Utf8Kind::kMalformed);
    EXPECT_EQ(step.length, 1u);
  }
}

TEST(Utf8, AMalformedCharacterEndsBeforeTheByteThatSpoilsIt) {
  const Utf8Step step = utf8_step("\xF0\x9F\x98z");
  EXPECT_EQ(step.kind, Utf8Kind::kMalformed);
  EXPECT_EQ(step.length, 3u);
}

TEST(Utf8, CharactersAreWrittenAsTheyAreRead) {
  for (char32_t c : {U'a', U'\u007F', U'\u0080', U'\u07FF', U'\u0800', U'\uFFFF', U'\U00010000',
                     U'\U0010FFFF'}) {
    std::string text;
    append_utf8(c, text);
    EXPECT_EQ(utf8_step(text).kind, Utf8Kind::kComplete);
    EXPECT_EQ(utf8_step(text).length, text.size());
    EXPECT_EQ(decode_utf8(text), c);
  }
}

}  // namespace
}  // namespace pumice
