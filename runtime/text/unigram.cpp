// SentencePiece's unigram tokenizer (tokenizer.ggml.model "t5"): a text is normalised, and of all
// ways to spell it in tokens the one whose scores have the largest sum is taken (Viterbi; Kudo,
// Subword Regularization, 2018). A character that is no token counts as ten less than the lowest
// score, and becomes byte tokens where the vocabulary has all of them, else the unknown token, once
// for neighbours.
//
// A text is cut where no token reaches across, mostly between words. Linear in the text.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>

#include "text/character_pairs.hpp"
#include "text/charsmap.hpp"
#include "text/token_trie.hpp"
#include "text/tokenizer_model.hpp"
#include "text/utf8.hpp"
#include "text/word_cache.hpp"

namespace pumice {
namespace {

// Longer tokens are an error: they bound the work per byte of text.
constexpr size_t kMaxTokenBytes = 1024;
constexpr double kUnknownPenalty = 10;
constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";  // U+FFFD

class UnigramModel final : public TokenizerModel {
 public:
  UnigramModel(const Vocabulary& vocabulary, Charsmap charsmap, TokenTrie trie, bool merge_spaces)
      : TokenizerModel(vocabulary),
        charsmap_(std::move(charsmap)),
        trie_(std::move(trie)),
        merge_spaces_(merge_spaces) {
    float lowest = 0;
    for (TokenId id = 0; id < vocabulary.size(); ++id) {
      const TokenType type = vocabulary.type(id);
      if (is_piece(type)) pairs_.add(vocabulary.text(id));
      if (type == TokenType::kNormal) lowest = std::min(lowest, vocabulary.score(id));
    }
    unknown_score_ = lowest - kUnknownPenalty;
    for (int byte = 0; byte < 256; ++byte) {
      has_bytes_ = has_bytes_ && vocabulary.byte_token(static_cast<uint8_t>(byte));
    }
  }

  void encode(std::string_view text, bool /*after_special*/,
              std::vector<TokenId>& tokens) const override {
    const std::string marked = normalize(text);
    const auto first = static_cast<std::ptrdiff_t>(tokens.size());
    WordCache cache(marked.size());
    std::vector<Step> steps;
    for (std::string_view rest = marked; !rest.empty();) {
      const std::string_view piece = rest.substr(0, pairs_.piece_bytes(rest));
      cache.append(piece, tokens, [&] { spell(piece, steps, tokens); });
      rest.remove_prefix(piece.size());
    }
    const auto both_unknown = [this](TokenId left, TokenId right) {
      return left == right && left == vocabulary_.unknown();
    };
    tokens.erase(std::unique(tokens.begin() + first, tokens.end(), both_unknown), tokens.end());
  }

 private:
  struct Step {
    double score;    // the best sum up to here
    uint32_t begin;  // of the last token
    TokenId token;
  };

  /// What this takes does not come back.
  std::string normalize(std::string_view text) const {
    std::string marked;
    marked.reserve(text.size() + text.size() / 4);
    bool in_word = false;
    bool wants_prefix = vocabulary_.add_space_prefix();
    const auto append = [&](std::string_view part) {
      for (char c : part) {
        if (c == ' ') {
          in_word = false;
          if (!merge_spaces_) marked += kSpaceMark;
          continue;
        }
        if (!in_word && (wants_prefix || merge_spaces_)) {
          marked += kSpaceMark;
          wants_prefix = false;
        }
        in_word = true;
        marked += c;
      }
    };
    while (!text.empty()) {
      if (const auto replacement = charsmap_.find(text)) {
        append(replacement->text);
        text.remove_prefix(replacement->n_replaced);
        continue;
      }
      const Utf8Step step = utf8_step(text);
      const bool complete = step.kind == Utf8Kind::kComplete;
      // Bytes have tokens only where the vocabulary says so.
      const size_t length = complete ? step.length : 1;
      append(complete || has_bytes_ ? text.substr(0, length) : kReplacementCharacter);
      text.remove_prefix(length);
    }
    return marked;
  }

  void find_tokens(std::string_view text, std::vector<Step>& steps) const {
    constexpr double kNever = -std::numeric_limits<double>::infinity();
    const TokenId unknown = *vocabulary_.unknown();
    steps.assign(text.size() + 1, {kNever, 0, unknown});
    steps[0].score = 0;
    for (size_t begin = 0; begin < text.size(); begin += character_bytes(text.substr(begin))) {
      const size_t end_of_character = begin + character_bytes(text.substr(begin));
      const double score = steps[begin].score;
      const auto offer = [&](size_t end, TokenId token, double sum) {
        if (sum > steps[end].score) steps[end] = {sum, static_cast<uint32_t>(begin), token};
      };
      bool has_token = false;
      uint32_t node = TokenTrie::kRoot;
      for (size_t end = begin + 1; end <= text.size(); ++end) {
        node = trie_.child(node, static_cast<uint8_t>(text[end - 1]));
        if (node == TokenTrie::kNone) break;
        const auto token = trie_.token(node);
        if (!token) continue;
        has_token = has_token || end == end_of_character;
        const bool user_defined = vocabulary_.type(*token) == TokenType::kUserDefined;
        offer(end, *token, score + (user_defined ? 0.0 : double{vocabulary_.score(*token)}));
      }
      if (!has_token) offer(end_of_character, unknown, score + unknown_score_);
    }
  }

  void spell(std::string_view text, std::vector<Step>& steps, std::vector<TokenId>& tokens) const {
    find_tokens(text, steps);
    // From the end back, so the last token comes first.
    const auto first = static_cast<std::ptrdiff_t>(tokens.size());
    for (size_t end = text.size(); end > 0; end = steps[end].begin) {
      if (steps[end].token == *vocabulary_.unknown()) {
        append_unknown(text.substr(steps[end].begin, end - steps[end].begin), tokens);
      } else {
        tokens.push_back(steps[end].token);
      }
    }
    std::reverse(tokens.begin() + first, tokens.end());
  }

  // Backwards, as `spell` goes.
  void append_unknown(std::string_view text, std::vector<TokenId>& tokens) const {
    if (!has_bytes_) {
      tokens.push_back(*vocabulary_.unknown());
      return;
    }
    for (auto c = text.rbegin(); c != text.rend(); ++c) {
      tokens.push_back(*vocabulary_.byte_token(static_cast<uint8_t>(*c)));
    }
  }

  Charsmap charsmap_;
  TokenTrie trie_;
  CharacterPairs pairs_;
  double unknown_score_ = 0;
  bool merge_spaces_;
  bool has_bytes_ = true;
};

}  // namespace

MadeTokenizerModel make_unigram(const VocabularyData& data, const Vocabulary& vocabulary) {
  if (!vocabulary.has_scores() || !vocabulary.unknown()) {
    return make_error(ErrorCode::kBadFile,
                      "tokenizer.ggml.{} is missing; tokenizer model 't5' needs it",
                      vocabulary.has_scores() ? "unknown_token_id" : "scores");
  }
  std::vector<TokenTrie::Entry> entries;
  for (TokenId id = 0; id < vocabulary.size(); ++id) {
    const std::string_view text = vocabulary.text(id);
    if (!is_piece(vocabulary.type(id)) || text.empty()) continue;
    if (text.size() > kMaxTokenBytes) {
      return make_error(ErrorCode::kBadFile, "tokenizer.ggml.tokens[{}] has {} bytes, at most {}",
                        id, text.size(), kMaxTokenBytes);
    }
    entries.push_back({text, id});
  }
  PUMICE_TRY(Charsmap charsmap, Charsmap::create(data.charsmap));
  return std::unique_ptr<TokenizerModel>(new UnigramModel(vocabulary, std::move(charsmap),
                                                          TokenTrie(std::move(entries)),
                                                          data.merge_spaces.value_or(false)));
}

}  // namespace pumice
