#include "models/synthetic_vocabulary.hpp"

#include "text/vocabulary.hpp"

namespace pumice {
namespace {

constexpr const char* kSpace = "\xE2\x96\x81";  // U+2581 stands for a space

/// The `index`-th string of `length` small letters, in alphabetical order.
std::string letters(uint64_t index, uint32_t length) {
  std::string text(length, 'a');
  for (uint32_t i = length; i > 0; --i, index /= 26) {
    text[i - 1] = static_cast<char>('a' + index % 26);
  }
  return text;
}

struct Builder {
  std::vector<std::string> tokens = {};
  std::vector<float> scores = {};
  std::vector<int32_t> types = {};

  void add(std::string text, TokenType type) {
    // As in files converted from SentencePiece: earlier pieces merge first.
    scores.push_back(type == TokenType::kNormal ? -static_cast<float>(tokens.size()) : 0.0f);
    types.push_back(static_cast<int32_t>(type));
    tokens.push_back(std::move(text));
  }
};

}  // namespace

void add_synthetic_vocabulary(GgufHeader& header, uint32_t n_tokens) {
  if (n_tokens < kMinSyntheticVocabulary) return;
  Builder vocabulary;
  vocabulary.add("<unk>", TokenType::kUnknown);
  vocabulary.add("<s>", TokenType::kControl);
  vocabulary.add("</s>", TokenType::kControl);
  for (uint32_t byte = 0; byte < 256; ++byte) {
    vocabulary.add(fmt::format("<0x{:02X}>", byte), TokenType::kByte);
  }
  vocabulary.add(kSpace, TokenType::kNormal);
  for (char c = '!'; c <= '~'; ++c) vocabulary.add(std::string(1, c), TokenType::kNormal);
  // Single letters are there already; with a space in front they come first.
  uint64_t count = 26;
  for (uint32_t length = 1; vocabulary.tokens.size() < n_tokens; ++length, count *= 26) {
    for (const char* space : {kSpace, ""}) {
      if (length == 1 && *space == '\0') continue;
      for (uint64_t i = 0; i < count && vocabulary.tokens.size() < n_tokens; ++i) {
        vocabulary.add(space + letters(i, length), TokenType::kNormal);
      }
    }
  }
  header.set("tokenizer.ggml.model", "llama");
  header.set("tokenizer.ggml.pre", "default");
  header.set_array("tokenizer.ggml.tokens", std::span<const std::string>(vocabulary.tokens));
  header.set_array("tokenizer.ggml.scores", std::span<const float>(vocabulary.scores));
  header.set_array("tokenizer.ggml.token_type", std::span<const int32_t>(vocabulary.types));
  header.set("tokenizer.ggml.bos_token_id", uint32_t{1});
  header.set("tokenizer.ggml.eos_token_id", uint32_t{2});
  header.set("tokenizer.ggml.unknown_token_id", uint32_t{0});
  header.set("tokenizer.ggml.add_bos_token", true);
  header.set("tokenizer.ggml.add_eos_token", false);
  header.set("tokenizer.ggml.add_space_prefix", true);
}

}  // namespace pumice
