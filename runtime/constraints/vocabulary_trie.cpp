#include "constraints/vocabulary_trie.hpp"

#include <algorithm>
#include <array>
#include <optional>

#include "constraints/lexer.hpp"
#include "text/utf8.hpp"

namespace pumice {
namespace {

/// Characters of the tokens of each slice; the last has what is longer. Strings with a greatest length have a few left
/// at their end, so that the short ones are many.
constexpr std::array<uint32_t, 8> kSliceCharacters = {2,  4,  6,  8,
                                                      12, 20, 40, VocabularyTrie::kMaxDepth};

/// How many plain characters `text` is, or nothing if it is anything else.
std::optional<uint32_t> plain_characters(std::string_view text) {
  uint32_t n = 0;
  for (; !text.empty(); ++n) {
    const Utf8Step step = utf8_step(text);
    if (step.kind != Utf8Kind::kComplete ||
        !is_plain_character(decode_utf8(text.substr(0, step.length))))
      return {};
    text.remove_prefix(step.length);
  }
  return n;
}

/// Nodes in depth-first order of `ids`, which are sorted by their texts, all different and not empty.
std::vector<VocabularyTrie::Node> make_trie(const VocabularyTrie& vocabulary,
                                            std::span<const TokenId> ids) {
  std::vector<VocabularyTrie::Node> nodes;
  std::vector<size_t> path;  // of nodes, to the text before
  const auto leave = [&](size_t depth) {
    for (; path.size() > depth; path.pop_back())
      nodes[path.back()].skip = (nodes.size() - path.back()) & 0xFFFFFF;
  };
  std::string_view before;
  for (const TokenId id : ids) {
    const std::string_view text = vocabulary.text(id);
    const auto parting = std::ranges::mismatch(before, text);
    leave(static_cast<size_t>(parting.in1 - before.begin()));
    for (size_t i = path.size(); i < text.size(); ++i) {
      path.push_back(nodes.size());
      nodes.push_back({.token = VocabularyTrie::kNoToken,
                       .skip = 0,
                       .depth = (i + 1) & 0xFF,
                       .byte = static_cast<uint8_t>(text[i])});
    }
    nodes.back().token = id & 0xFFFFFF;
    before = text;
  }
  leave(0);
  return nodes;
}

}  // namespace

Result<std::shared_ptr<const VocabularyTrie>> VocabularyTrie::create(const Tokenizer& tokenizer) {
  const Vocabulary& vocabulary = tokenizer.vocabulary();
  if (vocabulary.size() >= kNoToken) {
    return make_error(ErrorCode::kDoesNotFit,
                      "constraints take at most {} tokens, and the vocabulary has {}", kNoToken - 1,
                      vocabulary.size());
  }
  std::shared_ptr<VocabularyTrie> made(new VocabularyTrie(tokenizer));
  made->starts_ = {0};
  made->with_text_.resize((vocabulary.size() + 31) / 32);
  std::vector<TokenId> ids;
  for (TokenId id = 0; id < vocabulary.size(); ++id) {
    if (vocabulary.ends_generation(id)) {
      made->end_tokens_.push_back(id);
    } else {
      tokenizer.append_bytes(id, false, made->pool_);
    }
    made->starts_.push_back(static_cast<uint32_t>(made->pool_.size()));
    if (made->starts_[id] == made->starts_[id + 1]) continue;
    set_bit(made->with_text_, id);
    ids.push_back(id);
  }
  if (made->pool_.size() >= kNoToken) {
    return make_error(ErrorCode::kDoesNotFit,
                      "the texts of the vocabulary's tokens are longer than constraints can take");
  }
  std::ranges::sort(ids, [&](TokenId a, TokenId b) {
    const int order = made->text(a).compare(made->text(b));
    return order < 0 || (order == 0 && a < b);
  });

  std::vector<TokenId> rest;
  std::array<std::vector<TokenId>, kSliceCharacters.size()> sliced;
  for (size_t i = 0; i < ids.size(); ++i) {
    const std::string_view text = made->text(ids[i]);
    if (i > 0 && text == made->text(ids[i - 1])) {
      made->twins_.push_back({ids[i - 1], ids[i]});
    } else if (text.size() > kMaxDepth) {
      made->long_tokens_.push_back(ids[i]);
    } else if (const std::optional<uint32_t> n = plain_characters(text)) {
      const auto slice = std::ranges::lower_bound(kSliceCharacters, *n);
      sliced[static_cast<size_t>(slice - kSliceCharacters.begin())].push_back(ids[i]);
    } else {
      rest.push_back(ids[i]);
    }
  }
  made->rest_ = make_trie(*made, rest);
  TokenMask mask(made->mask_words());
  for (size_t i = 0; i < sliced.size(); ++i) {
    if (sliced[i].empty()) continue;
    for (const TokenId id : sliced[i]) set_bit(mask, id);
    made->slices_.push_back({kSliceCharacters[i], make_trie(*made, sliced[i]), mask});
  }
  return std::shared_ptr<const VocabularyTrie>(std::move(made));
}

}  // namespace pumice
