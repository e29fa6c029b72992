// Any text through every kind of tokenizer and back. The first byte chooses the tokenizer and
// whether special tokens are read; the rest is the text.
#include <array>
#include <vector>

#include "tests/fuzz/fuzz.hpp"
#include "text/detokenizer.hpp"
#include "text/utf8.hpp"

namespace pumice::fuzz {
namespace {

constexpr std::array<std::string_view, 5> kKinds = {"llama", "gpt-2", "llama-bpe", "qwen2",
                                                    "command-r"};
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

Tokenizer make(std::string_view kind) {
  const bool sentence_piece = kind == "llama";
  const Words words = sentence_piece ? sentence_piece_words() : byte_pair_words();
  VocabularyData data;
  data.model = sentence_piece ? "llama" : "gpt2";
  if (sentence_piece) {
    data.scores = words.scores;
  } else {
    data.pre_tokenizer = kind;
  }
  data.tokens.assign(words.tokens.begin(), words.tokens.end());
  data.types = words.types;
  data.merges.assign(words.merges.begin(), words.merges.end());
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

/// What the tokens of a text spell: SentencePiece cannot tell its space from ours, and puts one
/// before the text.
std::string spelled(std::string_view text, bool sentence_piece) {
  if (!sentence_piece) return std::string(text);
  std::string result(text.empty() ? "" : " ");
  while (!text.empty()) {
    const bool is_space = text.starts_with(kSpace);
    result += is_space ? ' ' : text.front();
    text.remove_prefix(is_space ? kSpace.size() : 1);
  }
  return result;
}

void check_round_trip(const Tokenizer& tokenizer, std::string_view text, bool sentence_piece) {
  const auto ids = tokenizer.encode(text, {.add_special = false});
  promise(ids.ok(), "any text has tokens");
  std::string bytes;
  for (const TokenId id : *ids) {
    promise(tokenizer.vocabulary().contains(id), "tokens exist");
    tokenizer.append_bytes(id, false, bytes);
  }
  const std::string expected = spelled(text, sentence_piece);
  promise(bytes == expected, "tokens spell the text");
  const std::string shown = detokenize(tokenizer, *ids);
  promise(is_utf8(shown), "text is UTF-8");
  if (is_utf8(text)) {
    promise(shown == expected.substr(sentence_piece && !text.empty() ? 1 : 0),
            "text comes back as it went");
  }
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
  static const std::array<Tokenizer, kKinds.size()> kTokenizers = {
      make(kKinds[0]), make(kKinds[1]), make(kKinds[2]), make(kKinds[3]), make(kKinds[4])};
  const size_t kind = choice % kKinds.size();
  if (choice >= 128) {
    check_special(kTokenizers[kind], text);
  } else {
    check_round_trip(kTokenizers[kind], text, kind == 0);
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
