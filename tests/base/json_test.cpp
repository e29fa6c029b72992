#include "base/json.hpp"

#include <gmock/gmock.h>

#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/temporary_folder.hpp"

namespace pumice {
namespace {

using testing::HasSubstr;

constexpr size_t kAny = 64 << 20;

std::string nested(size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); }

std::string refusal(std::string_view text) {
  const Result<nlohmann::json> read = read_json(text, kAny);
  const Result<nlohmann::ordered_json> ordered = read_ordered_json(text, kAny);
  EXPECT_EQ(read.ok(), ordered.ok());
  if (read.ok()) return "";
  EXPECT_EQ(read.error().code, ErrorCode::kBadFile);
  EXPECT_EQ(read.error().message, ordered.error().message);
  return read.error().message;
}

TEST(ReadJson, GivesWhatTheLibraryGives) {
  for (const std::string text :
       {R"({"b": [1, -2, 3.5, 1e3, true, false, null, "x\u00e9\n"], "a": {"": {}, "c": []}})", "1",
        "\"\"", "[]", "{}", " [[], [[]], {\"a\": [{}]}] ", "18446744073709551615",
        "-9223372036854775808", "1e-999"}) {
    SCOPED_TRACE(text);
    const Result<nlohmann::json> read = read_json(text, kAny);
    ASSERT_TRUE(read.ok()) << read.error().message;
    EXPECT_EQ(*read, nlohmann::json::parse(text));
    EXPECT_EQ(read->type(), nlohmann::json::parse(text).type());
    EXPECT_EQ(read_ordered_json(text, kAny)->dump(), nlohmann::ordered_json::parse(text).dump());
  }
}

TEST(ReadJson, RefusesNestingWithTheByteWhereItGoesTooDeep) {
  EXPECT_EQ(refusal(nested(kMaxJsonDepth)), "");
  EXPECT_THAT(refusal(nested(kMaxJsonDepth + 1)), HasSubstr("byte 129: nested more than 128 deep"));
  EXPECT_THAT(refusal(nested(1'000'000)), HasSubstr("byte 129: nested more than 128 deep"));
  EXPECT_THAT(refusal(std::string(1'000'000, '[')), HasSubstr("nested more than 128 deep"));
  std::string objects;
  for (size_t i = 0; i < 1'000'000; ++i) objects += "{\"\":";
  EXPECT_THAT(refusal(objects), HasSubstr("byte 513: nested more than 128 deep"));
  EXPECT_EQ(refusal("\"" + std::string(1000, '[') + "\""), "");
}

TEST(ReadJson, SaysWhatIsWrongAndAtWhichByte) {
  const struct {
    std::string text, says;
  } cases[] = {
      {"", "byte 1"},
      {"{\"a\": 1", "byte 8"},
      {"[1, 2] 3", "byte 8"},
      {"[1,]", "byte 4"},
      {"nul", "byte 4: invalid literal"},
      {"NaN", "byte 1: invalid literal"},
      {"[1e999]", "a number beyond the range of doubles"},
      {"[18446744073709551616]", "byte 22: a whole number of more than 64 bits"},
      {"[-9223372036854775809]", "a whole number of more than 64 bits"},
      {"{\"a\": 1, \"b\": 2, \"a\": 3}", "byte 24: the name \"a\" appears twice"},
      {"{\"\\u0061\": 1, \"a\": 3}", "the name \"a\" appears twice"},
      {"[\"\xff\"]", "byte 3"},
      {"[\"\xed\xa0\x80\"]", "byte 4"},
      {"[\"\\ud800\"]", "byte"},
      {"[\"a\nb\"]", "byte 4"},
      {std::string("5\0", 2), "byte 2: a zero byte"},
      {std::string("[1] \0 {", 8), "byte 5: a zero byte"},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.text);
    EXPECT_THAT(refusal(c.text), HasSubstr(c.says));
    EXPECT_EQ(refusal(c.text).find_first_of("\n\x1b\xff"), std::string::npos);
  }
}

TEST(ReadJson, MoreThanTheUseAllowsIsRefused) {
  EXPECT_TRUE(read_json("[1, 2]", 6).ok());
  const Result<nlohmann::json> read = read_json("[1, 2] ", 6);
  ASSERT_FALSE(read.ok());
  EXPECT_EQ(read.error().message, "larger than 6 bytes");
}

TEST(ReadJson, ManyMembersTakeNoLongerThanAsManyItems) {
  std::string text = "{";
  for (int i = 0; i < 300'000; ++i) text += "\"" + std::to_string(i) + "\":0,";
  text.back() = '}';
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(read_ordered_json(text, kAny)->size(), 300'000u);
  EXPECT_LT(std::chrono::steady_clock::now() - start,
            std::chrono::seconds(20));  // squared it is minutes
}

TEST(ReadJsonFile, RefusesWhatIsNoRegularFileOrTooLarge) {
  const test::TemporaryFolder folder;
  const auto path = folder.path() / "a.json";
  EXPECT_FALSE(read_json_file(path, kAny).ok());
  EXPECT_FALSE(read_json_file(folder.path(), kAny).ok());
  EXPECT_FALSE(read_json_file("/dev/null", kAny).ok());
  std::ofstream(path) << "[1]";
  EXPECT_EQ(*read_json_file(path, 3), nlohmann::json::parse("[1]"));
  EXPECT_THAT(read_json_file(path, 2).error().message, HasSubstr("larger than 2 bytes"));
}

}  // namespace
}  // namespace pumice
