#include "answers/tools.hpp"

#include <gtest/gtest.h>

namespace pumice {
namespace {

TEST(Tools, AreReadWithOrWithoutTheirWrapper) {
  const Tools tools =
      Tools::parse(
          R"([{"type": "function", "function": {"name": "a"}}, {"name": "b", "description": "x"}])")
          .value();
  EXPECT_EQ(tools.names(), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(tools.json()[1].dump(),
            R"({"type":"function","function":{"name":"b","description":"x","parameters":)"
            R"({"type":"object","properties":{}}}})");
  EXPECT_TRUE(tools.contains("a"));
  EXPECT_FALSE(tools.contains("c"));
}

TEST(Tools, WhatIsWrongIsNamed) {
  const auto error = [](std::string_view json) { return Tools::parse(json).error().message; };
  EXPECT_EQ(error("{}"), "tools are a JSON array of functions");
  EXPECT_EQ(error("[1]"), "tool 1: it is not a JSON object");
  EXPECT_EQ(error(R"([{"name": "a"}, {"type": "function"}])"), "tool 2: it has no \"name\"");
  EXPECT_EQ(error(R"([{"name": "a"}, {"name": "a"}])"), "tool 2: a second 'a'");
  EXPECT_EQ(error(R"([{"type": "web_search", "function": {}}])"),
            "tool 1: its \"type\" is not \"function\"");
  EXPECT_EQ(error(R"([{"name": "a b"}])"),
            "tool 1: its name 'a b' is not of letters, digits, '_', '-' and '.' only, 128 at most");
  EXPECT_EQ(error(R"([{"name": "a", "parameters": []}])"),
            "tool 1: the \"parameters\" of 'a' are not a JSON object");
}

TEST(Tools, KnowWhatAParameterMayBe) {
  const Tools tools =
      Tools::parse(R"([{"name": "f", "parameters": {"type": "object", "properties": {
    "a": {"type": "string"}, "b": {"type": ["string", "null"]}, "c": {"enum": ["x", 1]},
    "d": {"anyOf": [{"type": "integer"}, {"type": "array"}]}, "e": {}, "h": {"$ref": "#/$defs/a~1b"},
    "i": {"allOf": [{"type": ["string", "null"]}, {"enum": ["x", 1]}]}, "j": {"anyOf": [{"type": "string"}, {}]},
    "k": {"$ref": "#/properties/k"}}, "$defs": {"a/b": {"type": "string"}}}}])")
          .value();
  EXPECT_EQ(tools.types_of("f", "a"), kStringType);
  EXPECT_EQ(tools.types_of("f", "b"), kStringType | kNullType);
  EXPECT_EQ(tools.types_of("f", "c"), kStringType | kNumberType);
  EXPECT_EQ(tools.types_of("f", "d"), kNumberType | kArrayType);
  EXPECT_EQ(tools.types_of("f", "e"), 0);
  EXPECT_EQ(tools.types_of("f", "h"), kStringType);
  EXPECT_EQ(tools.types_of("f", "i"), kStringType);
  EXPECT_EQ(tools.types_of("f", "j"), 0);
  EXPECT_EQ(tools.types_of("f", "k"), 0);
  // Rings that branch end in bounded time.
  std::string ways = R"({"$ref": "#/properties/a"})";
  for (int i = 0; i < 100; ++i) ways += R"(, {"$ref": "#/properties/a"})";
  const std::string ring =
      R"([{"name": "f", "parameters": {"properties": {"a": {"anyOf": [)" + ways + "]}}}}]";
  EXPECT_EQ(Tools::parse(ring).value().types_of("f", "a"), 0);
  EXPECT_EQ(tools.types_of("f", "z"), 0);
  EXPECT_EQ(tools.types_of("g", "a"), 0);
}

}  // namespace
}  // namespace pumice
