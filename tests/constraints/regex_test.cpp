#include "constraints/regex.hpp"

#include <gtest/gtest.h>

#include <string>

namespace pumice {
namespace {

bool matches(std::string_view pattern, std::string_view text,
             RegexAnchors anchors = RegexAnchors::kWhole) {
  ExpressionSet set;
  const Result<Expression> parsed = parse_regex(set, pattern, anchors);
  EXPECT_TRUE(parsed.ok()) << (parsed.ok() ? "" : parsed.error().message);
  return parsed.ok() && set.matches(*parsed, text);
}

bool found(std::string_view pattern, std::string_view text) {
  return matches(pattern, text, RegexAnchors::kSearch);
}

std::string error_of(std::string_view pattern) {
  ExpressionSet set;
  const Result<Expression> parsed = parse_regex(set, pattern);
  return parsed.ok() ? "" : parsed.error().message;
}

TEST(Regex, MatchesTheWholeText) {
  EXPECT_TRUE(matches("a(b|c)*d?", "abcb"));
  EXPECT_FALSE(matches("a(b|c)*d?", "abce"));
  EXPECT_TRUE(matches("^ab$", "ab"));
  EXPECT_TRUE(matches("", ""));
  EXPECT_TRUE(matches("a{2,3}", "aaa"));
  EXPECT_FALSE(matches("a{2,3}", "aaaa"));
  EXPECT_TRUE(matches("a{2,}?b+?c*?", "aaab"));
  EXPECT_TRUE(matches("{a}", "{a}"));  // braces that are no quantifier
  EXPECT_TRUE(matches("(?<year>\\d{4})-(?:\\d\\d)", "2026-11"));
}

TEST(Regex, ClassesAndEscapes) {
  EXPECT_TRUE(matches("[a-cx\\]-]+", "abx]-"));
  EXPECT_FALSE(matches("[^a-c]", "b"));
  EXPECT_TRUE(matches("[^a-c]", "\xE4\xB8\x96"));
  EXPECT_TRUE(matches("[\\w.+-]+@[\\d-]+", "a_B.9+-@1-2"));
  EXPECT_TRUE(matches("\\S\\s\\D\\W", "a x-"));
  EXPECT_TRUE(
      matches("\\x41\\u00e9\\u{1F600}\\uD83D\\uDE00", "A\xC3\xA9\xF0\x9F\x98\x80\xF0\x9F\x98\x80"));
  EXPECT_TRUE(matches(".", "\xF0\x9F\x98\x80"));
  EXPECT_FALSE(matches(".", "\n"));
  EXPECT_FALSE(matches(".", "\xC3"));
  EXPECT_TRUE(matches("\\/\\.\\$\\{", "/.${"));
  EXPECT_TRUE(matches("[\\b\\0]", "\b"));
  EXPECT_TRUE(matches("\\p{Lu}\\p{L}+\\P{L}[\\p{Greek}]", "\xC3\x89t\xC3\xA9 \xCE\xB1"));
}

TEST(Regex, IsFoundAnywhereUnlessAnchored) {
  EXPECT_TRUE(found("b", "abc"));
  EXPECT_FALSE(found("^b", "abc"));
  EXPECT_TRUE(found("^a", "abc"));
  EXPECT_TRUE(found("c$", "abc"));
  EXPECT_FALSE(found("b$", "abc"));
  EXPECT_TRUE(found("^a|z$", "abc"));
  EXPECT_TRUE(found("^a|z$", "xyz"));
  EXPECT_FALSE(found("^a|z$", "bzb"));
  EXPECT_TRUE(found("^(a|^b)?c", "bcx"));
  EXPECT_TRUE(found("(^|,)a(,|$)", "x,a"));
  EXPECT_FALSE(found("(^|,)a(,|$)", "xa"));
  EXPECT_TRUE(found("^$", ""));
  EXPECT_FALSE(found("^$", "a"));
  EXPECT_FALSE(found("a^b", "ab"));
  EXPECT_FALSE(found("a",
                     "\xFF"
                     "a"));  // no UTF-8
}

TEST(Regex, WhatItDoesNotKnowIsNamedWithItsPlace) {
  const std::pair<const char*, const char*> cases[] = {
      {"a(?=b)", "look-ahead is not regular and not supported (at byte 1)"},
      {"a(?!b)", "look-ahead"},
      {"(?<=a)b", "look-behind"},
      {"(a)\\1", "back-references are not regular and not supported (at byte 3)"},
      {"\\k<a>", "back-references"},
      {"a\\b", "the word boundary \\b is not supported (at byte 1)"},
      {"\\B", "\\B"},
      {"a++", "possessive"},
      {"(?>a)", "atomic"},
      {"(?i)a", "flags"},
      {"a**", "a quantifier of a quantifier"},
      {"*a", "a quantifier of nothing"},
      {"(a", "a ( that is not closed (at byte 0)"},
      {"a)", "a ) that closes nothing (at byte 1)"},
      {"[a", "a [ that is not closed"},
      {"[]", "an empty class"},
      {"[b-a]", "ends before it begins"},
      {"[[:alpha:]]", "POSIX classes"},
      {"\\q", "an escape that is not known"},
      {"\\", "a \\ at the end"},
      {"\\u12", "too few hexadecimal digits"},
      {"\\uD800", "beyond Unicode"},
      {"\\p{Nonsense}", "a Unicode property that is not known"},
      {"a{3,2}", "least number is above"},
      {"(^a)*", "^ and $ cannot be repeated"},
      {"\xC3", "not UTF-8"},
  };
  for (const auto& [pattern, what] : cases) {
    EXPECT_NE(error_of(pattern).find(what), std::string::npos)
        << pattern << ": " << error_of(pattern);
  }
}

TEST(Regex, HostileOnesEndInBoundedTime) {
  const std::string many(100'000, '|');
  EXPECT_EQ(error_of(std::string("a") + many), "");
  EXPECT_NE(error_of(std::string(100'000, '(')), "");
  EXPECT_TRUE(matches("(a*)*b", std::string(1000, 'a') + "b"));
  EXPECT_TRUE(matches("((a{0,1000}){0,1000}){0,1000}", std::string(1000, 'a')));
  std::string nested = "a";
  for (int i = 0; i < 150; ++i) nested = "(" + nested + "|b){1,2}";
  ExpressionSet set(1'000'000);
  const Result<Expression> parsed = parse_regex(set, nested);
  if (parsed.ok()) {
    EXPECT_NO_THROW(set.nullable(*parsed));
  } else {
    EXPECT_EQ(parsed.error().code, ErrorCode::kDoesNotFit);
  }
}

}  // namespace
}  // namespace pumice
