// WordPiece (tokenizer.ggml.model "bert"): a text is cleaned and cut into words as BERT does it,
// and each word into the longest tokens that fit, from its beginning on. Tokens that begin a word
// begin with U+2581 in GGUF files; a word that does not come out, or of more than 100 characters,
// is the unknown token.
//
// Cleaning drops controls and malformed UTF-8, accents (but for cased models) and case. Blanks
// separate words; punctuation and Chinese characters are words each.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include "text/token_trie.hpp"
#include "text/tokenizer_model.hpp"
#include "text/unicode.hpp"
#include "text/utf8.hpp"

namespace pumice {
namespace {

constexpr size_t kMaxWordCharacters = 100;

// BERT's list, with the slip of the tokenizer that models are used with (0x2B920 for 0x2B820).
bool is_chinese(char32_t c) {
  return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) ||
         (c >= 0x20000 && c <= 0x2A6DF) || (c >= 0x2A700 && c <= 0x2B73F) ||
         (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
         (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

bool is_dropped(char32_t c) {
  if (c < 0x80) return (c < 0x20 && c != '\t' && c != '\n' && c != '\r') || c == 0x7F;
  return c == 0xFFFD || is_control(c);
}

bool is_word_alone(char32_t c) {
  if (c < 0x80) {
    return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') ||
           (c >= '{' && c <= '~');
  }
  return is_punctuation(c);
}

class WordPieceModel final : public TokenizerModel {
 public:
  WordPieceModel(const Vocabulary& vocabulary, TokenTrie trie, bool lower_case, bool strip_accents)
      : TokenizerModel(vocabulary),
        trie_(std::move(trie)),
        lower_case_(lower_case),
        strip_accents_(strip_accents) {}

  /// Linear in the text.
  void encode(std::string_view text, bool /*after_special*/,
              std::vector<TokenId>& tokens) const override {
    std::u32string word;
    std::u32string characters;
    std::string marked;
    const auto end_word = [&] {
      if (!word.empty()) encode_word(word, marked, tokens);
      word.clear();
    };
    while (!text.empty()) {
      const Utf8Step step = utf8_step(text);
      const std::string_view bytes = text.substr(0, step.length);
      text.remove_prefix(step.length);
      if (step.kind != Utf8Kind::kComplete) continue;
      const char32_t c = decode_utf8(bytes);
      if (is_dropped(c)) continue;
      if (is_white_space(c)) {
        end_word();
        continue;
      }
      characters.clear();
      normalize(c, characters);
      const bool chinese = is_chinese(c);
      for (char32_t character : characters) {
        const bool alone = chinese || is_word_alone(character);
        if (alone) end_word();
        // Of a longer word only its length matters.
        if (word.size() <= kMaxWordCharacters) word += character;
        if (alone) end_word();
      }
    }
    end_word();
  }

  /// Words begin with a space; what cleaning took does not come back.
  void append_bytes(TokenId id, std::string& bytes) const override {
    append_with_spaces(vocabulary_.text(id), bytes);
  }

 private:
  void normalize(char32_t c, std::u32string& characters) const {
    const size_t begin = characters.size();
    if (strip_accents_ && c >= 0x80) {
      append_base(c, characters);
    } else {
      characters += c;
    }
    if (!lower_case_) return;
    for (size_t i = begin; i < characters.size(); ++i) characters[i] = to_lower(characters[i]);
  }

  void encode_word(const std::u32string& word, std::string& marked,
                   std::vector<TokenId>& tokens) const {
    const size_t n_before = tokens.size();
    marked = kSpaceMark;
    for (char32_t character : word) append_utf8(character, marked);
    size_t begin = word.size() > kMaxWordCharacters ? marked.npos : 0;
    while (begin < marked.size()) {
      size_t end = marked.npos;
      std::optional<TokenId> longest;
      uint32_t node = TokenTrie::kRoot;
      for (size_t i = begin; i < marked.size(); ++i) {
        node = trie_.child(node, static_cast<uint8_t>(marked[i]));
        if (node == TokenTrie::kNone) break;
        if (const auto token = trie_.token(node)) {
          longest = token;
          end = i + 1;
        }
      }
      if (longest) tokens.push_back(*longest);
      begin = end;
    }
    if (begin != marked.size()) {
      tokens.resize(n_before);
      tokens.push_back(*vocabulary_.unknown());
    }
  }

  TokenTrie trie_;
  bool lower_case_;
  bool strip_accents_;
};

}  // namespace

MadeTokenizerModel make_word_piece(const VocabularyData& data, const Vocabulary& vocabulary) {
  if (!vocabulary.unknown()) {
    return make_error(
        ErrorCode::kBadFile,
        "tokenizer.ggml.unknown_token_id is missing; tokenizer model 'bert' needs it");
  }
  std::vector<TokenTrie::Entry> entries;
  for (TokenId id = 0; id < vocabulary.size(); ++id) {
    const TokenType type = vocabulary.type(id);
    const bool special = type == TokenType::kControl || type == TokenType::kUnknown;
    if (!special && !vocabulary.text(id).empty()) entries.push_back({vocabulary.text(id), id});
  }
  const bool lower_case = data.lower_case.value_or(true);
  return std::unique_ptr<TokenizerModel>(
      new WordPieceModel(vocabulary, TokenTrie(std::move(entries)), lower_case,
                         data.strip_accents.value_or(lower_case)));
}

}  // namespace pumice
