#include "answers/value_reader.hpp"

#include <gtest/gtest.h>

#include "base/json.hpp"

namespace pumice {
namespace {

TEST(ValueReader, PassesJsonThrough) {
  for (const std::string text :
       {R"({})", R"([1, -2.5e+3, "a\"\\\/\b\u00e9\ud83d\ude00", {"b" : [ ] }, null, true])",
        R"("")", "0"}) {
    EXPECT_EQ(read_value(text), text);
  }
}

TEST(ValueReader, ReadsWhatModelsWriteInstead) {
  EXPECT_EQ(read_value("{'a': True, 'b': [None, (1, 2,),], }"),
            R"({"a": true, "b": [null, [1, 2]] })");
  EXPECT_EQ(read_value("'it\\'s \"x\" \\d \\x41\n'"), R"("it's \"x\" \\d \u0041\n")");
  EXPECT_EQ(read_value("{a: .5, b_c: 1_000, d: +3, e: 5.}"),
            R"({"a": 0.5, "b_c": 1000, "d": 3, "e": 5.0})");
  EXPECT_EQ(read_value(R"("\ud83d x \ude00 \ud83d")"), R"("\ufffd x \ufffd \ufffd")");
  EXPECT_EQ(read_value(R"("\u12")"), R"("\\u12")");
}

TEST(ValueReader, RefusesWhatIsNoValue) {
  for (const char* const text : {"", "{", "[1 2]", "{\"a\"}", "abc", "01", "1e999", "[}", "{,}",
                                 "[,]", "\"a", "1 2", "{} x", "-", "--1", "{1:2,,}"}) {
    EXPECT_EQ(read_value(text), std::nullopt) << text;
  }
  EXPECT_EQ(read_value(std::string(kMaxJsonDepth + 1, '[')), std::nullopt);
}

/// Wherever it breaks off, what there is can be completed.
TEST(ValueReader, CompletesWhatBreaksOff) {
  const std::string text =
      R"({"a": [1.5, {'b' : <|"|>x<|"|>, c: "\ud83d\ude00\n\x41"}, true], "d": {}, "e": [ ,)";
  for (size_t n = 1; n <= text.size(); ++n) {
    ValueReader reader(ValueReader::Root::kObject, "<|\"|>");
    std::string out;
    for (const char c : text.substr(0, n)) reader.feed(c, out);
    reader.close(out);
    const auto json = read_json(out, out.size());
    EXPECT_TRUE(json.ok()) << text.substr(0, n) << " is " << out;
  }
}

TEST(ValueReader, GivesTheMembersOfAnObject) {
  ValueReader reader(ValueReader::Root::kMembers);
  std::string seen;
  for (const char c : std::string(R"({"name": "f", "x": 5, 'arguments' : {"a": [1, {}]} })")) {
    std::string out;
    EXPECT_NE(reader.feed(c, out), ValueReader::Step::kBad);
    if (!out.empty() && !seen.ends_with('=')) seen += out;
    if (reader.ended_member()) seen += " of " + reader.member() + ";";
  }
  EXPECT_EQ(seen, R"("f" of name;5 of x;{"a": [1, {}]} of arguments;)");
}

}  // namespace
}  // namespace pumice
