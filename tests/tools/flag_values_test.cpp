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

TEST(FlagValues, ALimitIsPositiveOrNone) {
  EXPECT_EQ(*parse_limit_or_inf("--blocks", "7"), 7u);
  EXPECT_EQ(*parse_limit_or_inf("--blocks", "inf"), std::nullopt);
  for (const std::string text : {"", "0", "-1", "7 ", "infinite", "\n"}) {
    refused(parse_limit_or_inf("--blocks", text));
  }
  refused(parse_limit_or_inf("--blocks", std::string(5000, 'x')));
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
