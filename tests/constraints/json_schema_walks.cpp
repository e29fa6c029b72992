// Random walks by the mask: json_schema_walks SCHEMAS.jsonl VOCABULARY.gguf WALKS SEED prints a line {"row": …, "text": …}
// for each walk that came to an end. json_schema_walks_test.py holds the texts against another program's validator.
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "constraints/json_schema.hpp"
#include "constraints/matcher.hpp"
#include "tests/text/gguf_vocabulary.hpp"

namespace pumice {
namespace {

/// After so many tokens a walk takes what closes strings, lists and objects where it may.
constexpr size_t kLong = 60;
constexpr size_t kTooLong = 600;

/// Tokens of the kinds that bring a text to its end, the better ones first.
std::vector<TokenId> closing_tokens(const VocabularyTrie& trie) {
  std::vector<TokenId> ids;
  for (const std::string_view text : {"}", "]", "\"", ":", ",", "null", "0", "1", "{", "["}) {
    for (TokenId id = 0; id < trie.n_tokens(); ++id) {
      if (trie.text(id) == text) ids.push_back(id);
    }
  }
  return ids;
}

Result<std::string> walk(Matcher matcher, std::mt19937& random,
                         const std::vector<TokenId>& closing) {
  const VocabularyTrie& trie = matcher.constraint().vocabulary();
  TokenMask mask(trie.mask_words());
  std::string text;
  for (size_t step = 0; step < kTooLong; ++step) {
    PUMICE_TRY_STATUS(matcher.mask(mask));
    std::vector<TokenId> ids;
    for (size_t word = 0; word < mask.size(); ++word) {
      for (uint32_t bits = mask[word]; bits != 0; bits &= bits - 1) {
        ids.push_back(
            static_cast<TokenId>(32 * word + static_cast<size_t>(std::countr_zero(bits))));
      }
    }
    if (ids.empty()) return make_error(ErrorCode::kInternal, "nothing may follow: {}", text);
    TokenId token = ids[random() % ids.size()];
    if (step > kLong || random() % 2 == 0) {
      for (const TokenId id : closing) {
        if (has_bit(mask, id) && (step > kLong || random() % 4 != 0)) {
          token = id;
          break;
        }
      }
    }
    PUMICE_TRY(const bool may_end, matcher.can_end());
    if (may_end && (step > kLong || random() % 3 == 0 || ids.size() == 1)) return text;
    if (trie.text(token).empty()) continue;  // an end token: not yet
    PUMICE_TRY_STATUS(matcher.accept(token));
    text += trie.text(token);
  }
  return std::string();
}

int run(const char* schemas, const char* vocabulary, int n_walks, uint32_t seed) {
  const Tokenizer tokenizer = test::load_tokenizer(vocabulary);
  const auto trie = VocabularyTrie::create(tokenizer).value();
  const std::vector<TokenId> closing = closing_tokens(*trie);
  std::ifstream stream(schemas);
  std::mt19937 random(seed);
  size_t row = 0;
  for (std::string line; std::getline(stream, line); ++row) {
    const auto schema = nlohmann::ordered_json::parse(line).at("schema");
    const auto grammar = compile_json_schema(schema.dump());
    if (!grammar.ok()) continue;
    const auto constraint = Constraint::create(*grammar, trie);
    if (!constraint.ok()) continue;
    for (int i = 0; i < n_walks; ++i) {
      const Result<std::string> text = walk(Matcher(*constraint), random, closing);
      if (!text.ok()) {
        std::fprintf(stderr, "row %zu: %s\n", row, text.error().message.c_str());
        return 1;
      }
      if (!text->empty())
        std::printf("%s\n", nlohmann::json{{"row", row}, {"text", *text}}.dump().c_str());
    }
  }
  return 0;
}

}  // namespace
}  // namespace pumice

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  return pumice::run(argv[1], argv[2], std::atoi(argv[3]),
                     static_cast<uint32_t>(std::atoi(argv[4])));
}
