// What flags hold that is more than a number.
#include "tools/flag_values.hpp"

#include <gtest/gtest.h>

namespace pumice::tools {
namespace {

using Numbers = std::vector<uint32_t>;

template <typename T>
std::string refused(const Result<T>& result) {
  EXPECT_FALSE(result.ok());
  if (result.ok()) return "";
  EXPECT_EQ(result.error().code, ErrorCode::kInvalidArgument);
  EXPECT_LT(result.error().message.size(), 300u);
  for (const char c : result.error().message) EXPECT_GE(static_cast<unsigned char>(c), ' ');
  return result.error().message;
}

TEST(FlagValues, FractionsAreFiniteAndInTheirRange) {
  for (const char* text : {"0", "1", "0.5", "+1", "1e-3", "1.", ".25"}) {
    EXPECT_EQ(number_problem(text, 0, 1), "") << text;
  }
  for (const char* text : {"nan", "NaN", "-nan", "inf", "-inf", "infinity", "1e999", "-1e999",
                           "1.5", "-0.1", "", " 1", "1 ", "1x", "0x1", "++1", "1,5", "\x1b"}) {
    EXPECT_NE(number_problem(text, 0, 1), "") << text;
  }
  EXPECT_EQ(number_in(0, 3600)("nan"), "'nan' is not a number from 0 to 3600");
}

TEST(FlagValues, ListsAreNumbersBetweenCommas) {
  EXPECT_EQ(*parse_numbers("--tokens", "1,2,3"), (Numbers{1, 2, 3}));
  EXPECT_EQ(*parse_numbers("--tokens", "4294967295"), Numbers{UINT32_MAX});
  for (const char* text :
       {"", ",", "1,", ",1", "1,,2", "1, 2", "-1", "4294967296", "1\n", "\x1b"}) {
    const std::string error = refused(parse_numbers("--tokens", text));
    EXPECT_EQ(error.rfind("--tokens", 0), 0u) << error;
  }
  refused(parse_numbers("--tokens", std::string(5000, '9')));
}

TEST(FlagValues, ListsMayHaveRanges) {
  EXPECT_EQ(*parse_numbers("-p", "1-4"), (Numbers{1, 2, 3, 4}));
  EXPECT_EQ(*parse_numbers("-p", "512-2048+512,7"), (Numbers{512, 1024, 1536, 2048, 7}));
  EXPECT_EQ(*parse_numbers("-p", "1-10*2"), (Numbers{1, 2, 4, 8}));
  EXPECT_EQ(*parse_numbers("-p", "0-20+10"), (Numbers{0, 10, 20}));
  EXPECT_EQ(*parse_numbers("-p", "4294967290-4294967295+4"), (Numbers{4294967290u, 4294967294u}));
  EXPECT_EQ(parse_numbers("-p", "1-1000")->size(), 1000u);
  for (const char* text : {"4-1", "1-", "-4", "1-4+", "1-4+0", "1-4*1", "0-4*2", "1-4-1", "1+1",
                           "1*2", "1-4+-1", "1-2000", "0-4294967295"}) {
    refused(parse_numbers("-p", text));
  }
}

TEST(FlagValues, PairsAreTwoNumbers) {
  EXPECT_EQ(*parse_pair("-pg", "512,128"), (std::pair<uint32_t, uint32_t>(512, 128)));
  for (const char* text : {"", "512", "512,", ",128", "1,2,3", "a,b", "1;2"}) {
    refused(parse_pair("-pg", text));
  }
}

TEST(FlagValues, ALimitIsPositiveOrNone) {
  EXPECT_EQ(*parse_limit_or_inf("--blocks", "7"), 7u);
  EXPECT_EQ(*parse_limit_or_inf("--blocks", "inf"), std::nullopt);
  for (const std::string text : {"", "0", "-1", "7 ", "infinite", "\n"}) {
    refused(parse_limit_or_inf("--blocks", text));
  }
  refused(parse_limit_or_inf("--blocks", std::string(5000, 'x')));
}

TEST(FlagValues, TokensToPredictAreANumberOrHaveNoEnd) {
  for (const char* text : {"-1", "-2", "1", "100"}) EXPECT_EQ(n_predict_problem(text, 1, 100), "");
  EXPECT_EQ(n_predict_problem("0", 0, 100), "");
  for (const char* text : {"0", "-3", "101", "", "1.5", "x", "99999999999999999999", "\x1b"}) {
    EXPECT_NE(n_predict_problem(text, 1, 100), "") << text;
  }
}

TEST(FlagValues, EscapesStandForCharactersAndOtherBackslashesForThemselves) {
  EXPECT_EQ(unescaped("a\\nb\\t\\r\\\\n\\'\\\"\\x41\\x0a"), "a\nb\t\r\\n'\"A\n");
  for (const char* text : {"", "plain", "\\", "a\\", "\\q", "\\x", "\\x4", "\\xg0", "\\x+1"}) {
    EXPECT_EQ(unescaped(text), text);
  }
}

TEST(FlagValues, GoodputIsMilliseconds) {
  const Goodput goodput = *parse_goodput("ttft:500 tpot:0.5");
  EXPECT_DOUBLE_EQ(goodput.ttft_s, 0.5);
  EXPECT_DOUBLE_EQ(goodput.tpot_s, 0.0005);
  EXPECT_EQ(parse_goodput("")->ttft_s, 0);
  for (const std::string text :
       {"fast", "500", "ttft:", "ttft:-1", "ttft:nan", "tpot", ":5", "\n"}) {
    refused(parse_goodput(text));
  }
  refused(parse_goodput("ttft:" + std::string(5000, 'x')));
}

}  // namespace
}  // namespace pumice::tools
