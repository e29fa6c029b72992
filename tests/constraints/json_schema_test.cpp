#include "constraints/json_schema.hpp"

#include <gtest/gtest.h>

#include <ctime>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "constraints/matcher.hpp"
#include "constraints/parser.hpp"
#include "tests/constraints/value_walk.hpp"
#include "tests/paths.hpp"
#include "tests/shared_data.hpp"
#include "tests/text/gguf_vocabulary.hpp"

namespace pumice {
namespace {

using test::Json;
using test::ValueWalk;

constexpr uint64_t kWalkFuel = 2'000'000'000;

std::vector<Json> read_lines(const std::filesystem::path& path) {
  std::ifstream stream(path);
  std::vector<Json> rows;
  for (std::string line; std::getline(stream, line);) rows.push_back(Json::parse(line));
  return rows;
}

bool accepts_text(Parser& parser, const std::string& text) {
  Parser::State state = parser.start();
  for (const char c : text) state = parser.next(state, static_cast<uint8_t>(c));
  return parser.accepts(state);
}

/// Rows of tests/constraints/json_schema_cases.jsonl: a schema with values that it takes and refuses, texts that are in
/// its grammar and are not, or the error that it must be.
TEST(JsonSchema, EachKeywordTakesAndRefusesWhatItShould) {
  size_t n_values = 0, n_refused = 0;
  const std::vector<Json> cases =
      read_lines(test::source_path("tests/constraints/json_schema_cases.jsonl"));
  ASSERT_GT(cases.size(), 100u);
  for (const Json& row : cases) {
    SCOPED_TRACE(row.at("about").get<std::string>());
    const Json& schema = row.at("schema");
    const auto grammar = compile_json_schema(schema.dump());
    if (row.contains("refused")) {
      ++n_refused;
      ASSERT_FALSE(grammar.ok());
      EXPECT_EQ(grammar.error().code, ErrorCode::kInvalidArgument);
      EXPECT_NE(grammar.error().message.find(row["refused"].get<std::string>()), std::string::npos)
          << grammar.error().message;
      continue;
    }
    if (!grammar.ok()) {
      ADD_FAILURE() << grammar.error().message;
      continue;
    }
    Parser parser(*grammar, kWalkFuel);
    ValueWalk walk(parser, schema);
    for (const Json& value : row.value("valid", Json::array()))
      EXPECT_TRUE(walk.accepts(value)) << value;
    for (const Json& value : row.value("invalid", Json::array()))
      EXPECT_FALSE(walk.accepts(value)) << value;
    for (const Json& text : row.value("texts", Json::array()))
      EXPECT_TRUE(accepts_text(parser, text)) << text;
    for (const Json& text : row.value("not_texts", Json::array()))
      EXPECT_FALSE(accepts_text(parser, text)) << text;
    n_values +=
        row.value("valid", Json::array()).size() + row.value("invalid", Json::array()).size();
  }
  std::printf("%zu cases: %zu values, %zu schemas refused\n", cases.size(), n_values, n_refused);
}

/// A vocabulary, and texts as its longest tokens (a tokenizer's own pieces may have a space in front).
struct TokenWalk {
  explicit TokenWalk(const std::filesystem::path& file)
      : tokenizer(test::load_tokenizer(file)), trie(VocabularyTrie::create(tokenizer).value()) {
    for (TokenId id = 0; id < trie->n_tokens(); ++id) ids.emplace(trie->text(id), id);
  }

  ::testing::AssertionResult accepts(Matcher matcher, std::string_view text) const {
    while (!text.empty()) {
      size_t length = std::min<size_t>(text.size(), 24);
      while (length > 0 && !ids.contains(text.substr(0, length))) --length;
      if (length == 0) return ::testing::AssertionFailure() << "no token for: " << text;
      const Status taken = matcher.accept(ids.at(text.substr(0, length)));
      if (!taken.ok())
        return ::testing::AssertionFailure() << taken.error().message << " before: " << text;
      text.remove_prefix(length);
    }
    const auto end = matcher.can_end();
    if (!end.ok() || !*end) return ::testing::AssertionFailure() << "it does not end";
    return ::testing::AssertionSuccess();
  }

  Tokenizer tokenizer;
  std::shared_ptr<const VocabularyTrie> trie;
  std::map<std::string_view, TokenId> ids;
};

TEST(JsonSchema, SharedSchemasTakeTheirValidExamplesAndNoOther) {
  PUMICE_REQUIRE_SHARED(path, "jsonschema/schemas.jsonl");
  PUMICE_REQUIRE_SHARED(llama, "tokenizers/ggml-vocab-llama-spm.gguf");
  PUMICE_REQUIRE_SHARED(qwen, "tokenizers/qwen3-151k.gguf");
  const TokenWalk vocabularies[] = {
      TokenWalk(llama), TokenWalk(qwen),
      TokenWalk(test::source_path("models/pumice-stories.gguf"))};  // a small one
  size_t n_schemas = 0, n_supported = 0, n_valid = 0, n_reached = 0, n_invalid = 0;
  std::vector<double> compile_ms;
  for (const Json& row : read_lines(path)) {
    SCOPED_TRACE(row.at("id").get<std::string>());
    ++n_schemas;
    const std::string schema = row.at("schema").dump();
    const std::clock_t begin = std::clock();  // the processor's time: others use it too
    const auto grammar = compile_json_schema(schema);
    compile_ms.push_back(1e3 * static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC);
    if (!grammar.ok()) {
      std::printf("not supported: %s: %s\n", row["id"].get<std::string>().c_str(),
                  grammar.error().message.c_str());
      continue;
    }
    ++n_supported;
    Parser parser(*grammar, kWalkFuel);
    ValueWalk walk(parser, row.at("schema"));
    std::vector<std::string> texts;
    for (const Json& example : row.at("tests")) {
      std::string text;
      const bool taken = walk.accepts(example.at("data"), &text);
      const bool is_valid = example.at("valid");
      (is_valid ? n_valid : n_invalid) += 1;
      n_reached += is_valid && taken ? 1 : 0;
      EXPECT_TRUE(taken || !is_valid) << example.at("data") << "\nup to: " << text;
      EXPECT_TRUE(!taken || is_valid) << "wrongly accepted: " << text;
      if (taken && is_valid) texts.push_back(text);
    }
    for (const TokenWalk& vocabulary : vocabularies) {
      const auto constraint = Constraint::create(*grammar, vocabulary.trie);
      ASSERT_TRUE(constraint.ok()) << constraint.error().message;
      for (const std::string& text : texts)
        EXPECT_TRUE(vocabulary.accepts(Matcher(*constraint), text)) << text;
    }
  }
  std::ranges::sort(compile_ms);
  std::printf(
      "%zu schemas, %zu supported; %zu of %zu valid examples reached, none of %zu invalid; median "
      "compile %.2f ms, p99 %.2f ms\n",
      n_schemas, n_supported, n_reached, n_valid, n_invalid, compile_ms[compile_ms.size() / 2],
      compile_ms[compile_ms.size() * 99 / 100]);
  EXPECT_GE(n_supported * 100, n_schemas * 95);
}

// --- schemas that want too much ---

/// Compiles, and is done within the time that a stranger's request may take.
Result<Grammar> compile_in_time(const std::string& schema) {
  const std::clock_t begin = std::clock();
  Result<Grammar> grammar = compile_json_schema(schema);
  const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  EXPECT_LT(seconds, 20);  // without optimisation; a second or two with it
  return grammar;
}

std::string repeated(const std::string& text, size_t n) {
  std::string all;
  for (size_t i = 0; i < n; ++i) all += text;
  return all;
}

TEST(HostileSchemas, TenMegabytesAreRefused) {
  const auto grammar = compile_in_time(R"({"description": ")" + std::string(10 << 20, 'a') + "\"}");
  ASSERT_FALSE(grammar.ok());
  EXPECT_EQ(grammar.error().code, ErrorCode::kInvalidArgument);
}

TEST(HostileSchemas, DeepNestingIsRefused) {
  EXPECT_FALSE(
      compile_in_time(repeated(R"({"items":)", 100'000) + "true" + repeated("}", 100'000)).ok());
  EXPECT_FALSE(compile_in_time(repeated("[", 3'000'000)).ok());
}

TEST(HostileSchemas, AHundredThousandAlternativesEnd) {
  std::string any = R"({"anyOf": [)", one = R"({"oneOf": [)", values = R"({"enum": [)";
  for (int i = 0; i < 100'000; ++i) {
    const std::string comma = i == 0 ? "" : ",", number = std::to_string(i);
    any += comma + R"({"const":)" + number + "}";
    one += comma + R"({"const":)" + number + "}";
    values += comma + "\"v" + number + "\"";
  }
  for (const std::string& schema : {any, one, values}) {
    const auto grammar = compile_in_time(schema + "]}");
    if (!grammar.ok()) {
      EXPECT_EQ(grammar.error().code, ErrorCode::kDoesNotFit) << grammar.error().message;
    }
  }
}

TEST(HostileSchemas, AlternativesThatMultiplyEnd) {
  std::string all = R"({"allOf": [)", dependencies = R"({"dependentRequired": {)";
  for (int i = 0; i < 60; ++i) {
    const std::string comma = i == 0 ? "" : ",", number = std::to_string(i);
    all += comma + R"({"anyOf": [{"required": ["a)" + number + R"("]}, {"required": ["b)" + number +
           R"("]}]})";
    dependencies += comma + "\"a" + number + R"(": ["b"])";
  }
  for (const std::string& schema : {all + "]}", dependencies + "}}"}) {
    const auto grammar = compile_in_time(schema);
    ASSERT_FALSE(grammar.ok());
    EXPECT_EQ(grammar.error().code, ErrorCode::kDoesNotFit) << grammar.error().message;
  }
}

TEST(HostileSchemas, ReferencesInARingOrALongChainEnd) {
  std::string chain = R"({"$ref": "#/$defs/d0", "$defs": {)";
  for (int i = 0; i < 20'000; ++i) {
    chain += fmt::format(R"("d{}": {{"allOf": [{{"$ref": "#/$defs/d{}"}}]}},)", i, i + 1);
  }
  const auto long_chain = compile_in_time(chain + R"("d20000": {"type": "null"}}})");
  ASSERT_FALSE(long_chain.ok());
  EXPECT_EQ(long_chain.error().code, ErrorCode::kDoesNotFit) << long_chain.error().message;
  const auto ring = compile_in_time(
      R"({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}})");
  ASSERT_FALSE(ring.ok());
  EXPECT_EQ(ring.error().code, ErrorCode::kInvalidArgument);
}

TEST(HostileSchemas, EveryPieceOfASchemaIsReadOrRefused) {
  const std::string schema =
      R"({"type":"object","properties":{"a":{"oneOf":[{"type":"string","pattern":"^a+$"},{"multipleOf":3}]},"b":{"$ref":"#"}},"minProperties":1})";
  for (size_t i = 0; i < schema.size(); ++i) {
    for (const char c : {'"', '0', '{', 'x'}) {
      std::string broken = schema;
      broken[i] = c;
      const auto grammar = compile_json_schema(broken);
      EXPECT_TRUE(grammar.ok() || !grammar.error().message.empty());
    }
  }
}

TEST(JsonSchema, AnyObject) {
  const auto grammar = any_json_object();
  ASSERT_TRUE(grammar.ok()) << grammar.error().message;
  Parser parser(*grammar, kWalkFuel);
  EXPECT_TRUE(accepts_text(parser, R"({"a": [1, {"b": null}], "c": "d\n"})"));
  EXPECT_FALSE(accepts_text(parser, "[]"));
  EXPECT_FALSE(accepts_text(parser, "{\"a\": 1"));
}

}  // namespace
}  // namespace pumice
