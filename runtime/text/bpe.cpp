#include "text/bpe.hpp"

#include "text/pair_merger.hpp"
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

uint64_t pair_key(TokenId left, TokenId right) { return uint64_t{left} << 32 | right; }

}  // namespace

BpeModel::BpeModel(const Vocabulary& vocabulary, PreTokenizer pre_tokenizer)
    : vocabulary_(vocabulary),
      pre_tokenizer_(std::move(pre_tokenizer)),
      byte_text_(byte_characters()) {
  for (size_t byte = 0; byte < 256; ++byte) {
    bytes_.emplace(byte_text_[byte], static_cast<char>(byte));
    byte_token_[byte] = vocabulary.find(byte_text_[byte]);
  }
}

Result<std::unique_ptr<TokenizerModel>> BpeModel::create(const VocabularyData& data,
                                                         const Vocabulary& vocabulary) {
  if (data.merges.empty()) {
    return make_error(ErrorCode::kBadFile,
                      "tokenizer.ggml.merges is missing; tokenizer model 'gpt2' needs it");
  }
  PUMICE_TRY(PreTokenizer pre_tokenizer, PreTokenizer::create(data.pre_tokenizer));
  std::unique_ptr<BpeModel> model(new BpeModel(vocabulary, std::move(pre_tokenizer)));
  PUMICE_TRY_STATUS(model->load_merges(data.merges));
  return std::unique_ptr<TokenizerModel>(std::move(model));
}

Status BpeModel::load_merges(const std::vector<std::string_view>& merges) {
  if (merges.size() > static_cast<size_t>(std::numeric_limits<int32_t>::max())) {
    return make_error(ErrorCode::kBadFile, "tokenizer.ggml.merges has {} entries, at most 2^31 - 1",
                      merges.size());
  }
  merges_.reserve(merges.size());
  std::string joined;
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const std::string_view text = merges[rank];
    const size_t space = text.find(' ', 1);  // the left half may begin with one
    if (space == text.npos || space + 1 == text.size()) {
      return make_error(ErrorCode::kBadFile,
                        "tokenizer.ggml.merges[{}] is not two tokens with a space between them",
                        rank);
    }
    const auto left = vocabulary_.find(text.substr(0, space));
    const auto right = vocabulary_.find(text.substr(space + 1));
    joined.assign(text.substr(0, space)).append(text.substr(space + 1));
    const auto merged = vocabulary_.find(joined);
    if (!left || !right || !merged || vocabulary_.type(*merged) == TokenType::kControl) continue;
    merges_.try_emplace(pair_key(*left, *right), Merge{static_cast<int32_t>(rank), *merged});
  }
  return {};
}

void BpeModel::encode(std::string_view text, bool /*after_special*/,
                      std::vector<TokenId>& tokens) const {
  using Merged = PairMerger<int32_t>::Merged;
  const auto find = [this](const MergeSymbol& left,
                           const MergeSymbol& right) -> std::optional<Merged> {
    const auto found = merges_.find(pair_key(left.token, right.token));
    if (found == merges_.end()) return std::nullopt;
    return Merged{-found->second.rank, found->second.merged};
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

void BpeModel::append_bytes(TokenId id, std::string& bytes) const {
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

}  // namespace pumice
