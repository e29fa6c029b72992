// Byte-level byte-pair tokenizer (tokenizer.ggml.model "gpt2"): a pre-tokenizer cuts words, bytes
// are written as the 256 printable characters that GPT-2 chose for them, and in each word the
// adjacent pair that comes first in the list of merges is merged, the leftmost of equals, until
// none remains.
#include <array>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <utility>

#include "text/merge_table.hpp"
#include "text/pre_tokenizer.hpp"
#include "text/tokenizer_model.hpp"
#include "text/utf8.hpp"
#include "text/word_cache.hpp"

namespace pumice {
namespace {

// GPT-2 writes printable bytes of Latin-1 as themselves and the others as U+0100 and following.
std::array<std::string, 256> byte_characters() {
  std::array<std::string, 256> characters;
  uint32_t next = 0x100;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    const bool printable =
        (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
    const uint32_t c = printable ? byte : next++;
    if (c >= 0x80) characters[byte].push_back(static_cast<char>(0xC0 | c >> 6));
    characters[byte].push_back(static_cast<char>(c < 0x80 ? c : 0x80 | (c & 0x3F)));
  }
  return characters;
}

class BpeModel final : public TokenizerModel {
 public:
  BpeModel(const Vocabulary& vocabulary, PreTokenizer pre_tokenizer, MergeTable merges)
      : TokenizerModel(vocabulary),
        pre_tokenizer_(std::move(pre_tokenizer)),
        byte_text_(byte_characters()),
        merges_(std::move(merges)) {
    for (size_t byte = 0; byte < 256; ++byte) {
      bytes_.emplace(byte_text_[byte], static_cast<char>(byte));
      byte_token_[byte] = vocabulary.find(byte_text_[byte]);
    }
  }

  /// A byte that no token stands for becomes the unknown token, or nothing if there is none.
  void encode(std::string_view text, bool /*after_special*/,
              std::vector<TokenId>& tokens) const override {
    const auto find = [this](const MergeSymbol& left, const MergeSymbol& right) {
      return merges_.find(left.token, right.token);
    };
    PairMerger<int32_t> merger;
    std::string written;
    WordCache cache(text.size());
    for (std::string_view word : pre_tokenizer_.split(text)) {
      cache.append(word, tokens, [&] {
        if (pre_tokenizer_.whole_words()) {
          written.clear();
          for (char c : word) written += byte_text_[static_cast<uint8_t>(c)];
          const auto whole = vocabulary_.find(written);
          if (whole && vocabulary_.type(*whole) == TokenType::kNormal) {
            tokens.push_back(*whole);
            return;
          }
        }
        merger.clear();
        for (uint32_t i = 0; i < word.size(); ++i) {
          auto token = byte_token_[static_cast<uint8_t>(word[i])];
          if (!token) token = vocabulary_.unknown();
          if (token) merger.add(i, 1, *token);
        }
        merger.merge(find);
        merger.for_each([&](const MergeSymbol& symbol) { tokens.push_back(symbol.token); });
      });
    }
  }

  void append_bytes(TokenId id, std::string& bytes) const override {
    std::string_view text = vocabulary_.text(id);
    while (!text.empty()) {
      const size_t length = utf8_step(text).length;
      const auto byte = bytes_.find(text.substr(0, length));
      if (byte != bytes_.end()) {
        bytes += byte->second;
      } else {
        bytes += text.substr(0, length);
      }
      text.remove_prefix(length);
    }
  }

 private:
  PreTokenizer pre_tokenizer_;
  std::array<std::string, 256> byte_text_;            // the character that stands for a byte
  std::unordered_map<std::string_view, char> bytes_;  // and back
  std::array<std::optional<TokenId>, 256> byte_token_;
  MergeTable merges_;
};

}  // namespace

MadeTokenizerModel make_bpe(const VocabularyData& data, const Vocabulary& vocabulary) {
  PUMICE_TRY(PreTokenizer pre_tokenizer, PreTokenizer::create(data.pre_tokenizer));
  PUMICE_TRY(MergeTable merges, MergeTable::create(vocabulary, data.merges));
  return std::unique_ptr<TokenizerModel>(
      new BpeModel(vocabulary, std::move(pre_tokenizer), std::move(merges)));
}

}  // namespace pumice
