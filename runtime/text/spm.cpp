#include "text/spm.hpp"

#include <algorithm>
#include <queue>

#include "text/utf8.hpp"

namespace pumice {
namespace {

constexpr std::string_view kSpace = "\xE2\x96\x81";  // U+2581
constexpr uint32_t kNone = ~0u;

// A run of the text, in a list linked by index. A symbol merged into its left neighbour keeps
// length 0.
struct Symbol {
  uint32_t begin;
  uint32_t length;
  uint32_t previous;
  uint32_t next;
};

struct Merge {
  float score;
  uint32_t left;
  uint32_t right;
  uint32_t length;  // of both; a different sum means that one side has grown since

  bool operator<(const Merge& other) const {
    return score != other.score ? score < other.score : left > other.left;
  }
};

std::string escape_spaces(std::string_view text, bool prefix) {
  const auto n_spaces = static_cast<size_t>(std::count(text.begin(), text.end(), ' '));
  std::string escaped;
  escaped.reserve(text.size() + kSpace.size() * (n_spaces + 1));
  if (prefix) escaped += kSpace;
  for (char c : text) {
    if (c == ' ') {
      escaped += kSpace;
    } else {
      escaped += c;
    }
  }
  return escaped;
}

// Malformed UTF-8 is cut into single bytes. (llama.cpp trusts lead bytes, so that a broken one
// before a space swallows part of the U+2581 and the space does not come back.)
std::vector<Symbol> cut_characters(std::string_view text) {
  std::vector<Symbol> symbols;
  symbols.reserve(text.size());
  for (size_t begin = 0; begin < text.size();) {
    const Utf8Step step = utf8_step(text.substr(begin));
    const size_t length = step.kind == Utf8Kind::kComplete ? step.length : 1;
    const auto index = static_cast<uint32_t>(symbols.size());
    symbols.push_back(
        {static_cast<uint32_t>(begin), static_cast<uint32_t>(length), index - 1, index + 1});
    begin += length;
  }
  if (!symbols.empty()) symbols.back().next = kNone;  // the first's previous is kNone already
  return symbols;
}

}  // namespace

Result<std::unique_ptr<TokenizerModel>> SpmModel::create(const Vocabulary& vocabulary) {
  if (!vocabulary.has_scores()) {
    return make_error(ErrorCode::kBadFile,
                      "tokenizer.ggml.scores is missing; tokenizer model 'llama' needs it");
  }
  for (uint32_t byte = 0; byte < 256 && !vocabulary.unknown(); ++byte) {
    if (!vocabulary.byte_token(static_cast<uint8_t>(byte))) {
      return make_error(ErrorCode::kBadFile,
                        "tokenizer.ggml.tokens has neither <0x{:02X}> nor an unknown token", byte);
    }
  }
  return std::unique_ptr<TokenizerModel>(new SpmModel(vocabulary));
}

std::optional<TokenId> SpmModel::find_piece(std::string_view text) const {
  const auto id = vocabulary_.find(text);
  if (!id) return std::nullopt;
  switch (vocabulary_.type(*id)) {
    case TokenType::kNormal:
    case TokenType::kUserDefined:
    case TokenType::kUnused:
      return id;
    case TokenType::kUnknown:
    case TokenType::kControl:
    case TokenType::kByte:
      return std::nullopt;
  }
  return std::nullopt;
}

void SpmModel::encode_bytes(std::string_view text, std::vector<TokenId>& tokens) const {
  for (char c : text) {
    const auto id = vocabulary_.byte_token(static_cast<uint8_t>(c));
    tokens.push_back(id ? *id : *vocabulary_.unknown());
  }
}

void SpmModel::encode(std::string_view text, bool after_special,
                      std::vector<TokenId>& tokens) const {
  const std::string escaped = escape_spaces(text, after_special && vocabulary_.add_space_prefix());
  const std::string_view view = escaped;
  std::vector<Symbol> symbols = cut_characters(view);

  std::vector<Merge> storage;
  storage.reserve(symbols.size());
  std::priority_queue<Merge> merges(std::less<Merge>{}, std::move(storage));
  const auto consider = [&](uint32_t left, uint32_t right) {
    if (left == kNone || right == kNone) return;
    const uint32_t length = symbols[left].length + symbols[right].length;
    const auto id = find_piece(view.substr(symbols[left].begin, length));
    if (id) merges.push({vocabulary_.score(*id), left, right, length});
  };
  for (uint32_t i = 1; i < symbols.size(); ++i) consider(i - 1, i);

  while (!merges.empty()) {
    const Merge merge = merges.top();
    merges.pop();
    Symbol& left = symbols[merge.left];
    Symbol& right = symbols[merge.right];
    if (left.length == 0 || right.length == 0 || left.length + right.length != merge.length) {
      continue;
    }
    left.length = merge.length;
    right.length = 0;
    left.next = right.next;
    if (right.next != kNone) symbols[right.next].previous = merge.left;
    consider(left.previous, merge.left);
    consider(merge.left, left.next);
  }

  for (uint32_t i = symbols.empty() ? kNone : 0; i != kNone; i = symbols[i].next) {
    const std::string_view piece = view.substr(symbols[i].begin, symbols[i].length);
    if (const auto id = find_piece(piece)) {
      tokens.push_back(*id);
    } else {
      encode_bytes(piece, tokens);
    }
  }
}

void SpmModel::append_bytes(TokenId id, std::string& bytes) const {
  if (vocabulary_.type(id) == TokenType::kByte) {
    bytes += static_cast<char>(vocabulary_.byte_of(id));
    return;
  }
  std::string_view text = vocabulary_.text(id);
  for (size_t at = text.find(kSpace); at != text.npos; at = text.find(kSpace)) {
    bytes += text.substr(0, at);
    bytes += ' ';
    text.remove_prefix(at + kSpace.size());
  }
  bytes += text;
}

}  // namespace pumice
