// Any text through every kind of tokenizer and back. The first byte chooses the tokenizer and
// whether special tokens are read; the rest is the text.
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/fuzz/fuzz.hpp"
#include "text/detokenizer.hpp"
#include "text/pre_tokenizer_recipes.hpp"
#include "text/utf8.hpp"

namespace pumice::fuzz {
namespace {

struct Kind {
  std::string_view model;
  std::string_view pre_tokenizer;
};

std::vector<Kind> all_kinds() {
  std::vector<Kind> kinds = {{"llama", ""}, {"gemma4", ""}, {"t5", ""}, {"bert", ""}};
  for (const PreTokenizerRecipe& recipe : pre_tokenizer_recipes()) {
    if (!recipe.of_characters) kinds.push_back({"gpt2", recipe.name});
  }
  promise(kinds.size() <= 128, "seven bits choose a kind");
  return kinds;
}

constexpr std::string_view kSpace = "\xE2\x96\x81";  // SentencePiece's, U+2581

struct Words {
  std::vector<std::string> tokens;
  std::vector<int32_t> types;
  std::vector<float> scores;
  std::vector<std::string> merges;

  void add(std::string text, TokenType type = TokenType::kNormal) {
    tokens.push_back(std::move(text));
    types.push_back(static_cast<int32_t>(type));
    scores.push_back(-static_cast<float>(tokens.size()));
  }
};

std::string utf8(uint32_t c) {
  if (c < 0x80) return {static_cast<char>(c)};
  return {static_cast<char>(0xC0 | c >> 6), static_cast<char>(0x80 | (c & 0x3F))};
}

Words sentence_piece_words() {
  Words words;
  words.add("<unk>", TokenType::kUnknown);
  words.add("<s>", TokenType::kControl);
  words.add("</s>", TokenType::kControl);
  for (int byte = 0; byte < 256; ++byte) {
    words.add(fmt::format("<0x{:02X}>", byte), TokenType::kByte);
  }
  for (const char* text : {"e", "h", "he", "the", "aa", "aaaa", "aaaaaaaa", "\xC3\xA9"}) {
    words.add(text);
    words.add(std::string(kSpace) + text);
  }
  words.add(std::string(kSpace));
  words.add(std::string(kSpace) + std::string(kSpace));
  return words;
}

Words byte_pair_words() {
  Words words;
  for (uint32_t c = 0x21; c <= 0x143; ++c) {
    const bool printable = c <= 0x7E || (c >= 0xA1 && c <= 0xAC) || (c >= 0xAE && c <= 0xFF);
    if (printable || c >= 0x100) words.add(utf8(c));
  }
  words.add("<|end|>", TokenType::kControl);
  words.merges = {"a a", "aa aa", "t h", "th e", "\xC4\xA0 the", "\xC3\x83 \xC2\xA9", "1 2"};
  for (std::string merge : words.merges) {
    merge.erase(merge.find(' '), 1);
    words.add(std::move(merge));
  }
  return words;
}

Tokenizer make(const Kind& kind) {
  Words words = kind.model == "gpt2" ? byte_pair_words() : sentence_piece_words();
  if (kind.model == "gemma4") words.merges = {"h e", "a a", "aa aa", "\xE2\x96\x81 he"};
  VocabularyData data;
  data.model = kind.model;
  data.pre_tokenizer = kind.pre_tokenizer;
  data.scores = words.scores;
  data.tokens.assign(words.tokens.begin(), words.tokens.end());
  data.types = words.types;
  data.merges.assign(words.merges.begin(), words.merges.end());
  data.unknown_id = 0;
  data.bos_id = 1;
  data.eos_id = 2;
  data.separator_id = 2;
  if (kind.model == "llama" || kind.model == "t5") data.add_space_prefix = true;
  Result<Tokenizer> tokenizer = Tokenizer::create(data);
  promise(tokenizer.ok(), tokenizer.ok() ? "" : tokenizer.error().message);
  return std::move(tokenizer).value();
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const Utf8Step step = utf8_step(text);
    if (step.kind != Utf8Kind::kComplete) return false;
    text.remove_prefix(step.length);
  }
  return true;
}

/// What the tokens of a text spell: all but byte pairs cannot tell U+2581 from a space, and
/// SentencePiece puts one before the text, or before its first word.
std::string spelled(std::string_view text, std::string_view model) {
  if (model == "gpt2") return std::string(text);
  const bool prefix =
      model == "llama" ? !text.empty() : model == "t5" && text.find_first_not_of(' ') != text.npos;
  std::string result(prefix ? " " : "");
  while (!text.empty()) {
    const bool is_space = text.starts_with(kSpace);
    result += is_space ? ' ' : text.front();
    text.remove_prefix(is_space ? kSpace.size() : 1);
  }
  return result;
}

void check_round_trip(const Tokenizer& tokenizer, std::string_view text, std::string_view model) {
  const auto ids = tokenizer.encode(text, {.add_special = false});
  promise(ids.ok(), "any text has tokens");
  std::string bytes;
  for (const TokenId id : *ids) {
    promise(tokenizer.vocabulary().contains(id), "tokens exist");
    tokenizer.append_bytes(id, false, bytes);
  }
  const std::string shown = detokenize(tokenizer, *ids);
  promise(is_utf8(shown), "text is UTF-8");
  if (model == "bert") return;  // keeps words, not texts
  const std::string expected = spelled(text, model);
  promise(bytes == expected, "tokens spell the text");
  if (!is_utf8(text)) return;
  const bool strips = tokenizer.vocabulary().add_space_prefix() && expected.starts_with(' ');
  promise(shown == expected.substr(strips ? 1 : 0), "text comes back as it went");
}

void check_special(const Tokenizer& tokenizer, std::string_view text) {
  const auto ids = tokenizer.encode(text, {.add_special = true, .parse_special = true});
  promise(ids.ok(), "any text has tokens");
  Detokenizer stream(tokenizer, {.show_control = true});
  for (const TokenId id : *ids) {
    promise(tokenizer.vocabulary().contains(id), "tokens exist");
    promise(is_utf8(stream.feed(id)), "pieces of a stream are UTF-8");
  }
  promise(is_utf8(stream.flush()), "the end of a stream is UTF-8");
}

void run(uint8_t choice, std::string_view text) {
  static const std::vector<Kind> kKinds = all_kinds();
  static std::map<size_t, Tokenizer> tokenizers;
  const size_t kind = (choice & 0x7F) % kKinds.size();
  if (!tokenizers.contains(kind)) tokenizers.emplace(kind, make(kKinds[kind]));
  const Tokenizer& tokenizer = tokenizers.at(kind);
  if (choice >= 128) {
    check_special(tokenizer, text);
  } else {
    check_round_trip(tokenizer, text, kKinds[kind].model);
  }
}

}  // namespace
}  // namespace pumice::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size > 0) {
    pumice::fuzz::run(data[0], {reinterpret_cast<const char*>(data) + 1, size - 1});
  }
  return 0;
}
