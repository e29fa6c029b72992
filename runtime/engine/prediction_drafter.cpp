#include "engine/prediction_drafter.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "base/check.hpp"

namespace pumice {

void PredictionDrafter::draft(const std::shared_ptr<PredictionDrafter>& drafter,
                              GenerationRequest& request) {
  const auto text = std::make_shared<Text>();
  request.on_hidden = [drafter, text](uint32_t position, TokenId token,
                                      std::span<const float> row) {
    drafter->add(*text, position, token, row);
  };
  request.drafter = [drafter, text](std::span<const TokenId> tokens, uint32_t most) {
    return drafter->guess(*text, tokens, most);
  };
}

/// What comes before a row of it.
void PredictionDrafter::Text::forget_until(uint32_t index) {
  first += index;
  tokens.erase(tokens.begin(), tokens.begin() + index);
  const uint32_t n_rows = index - std::min(index, n_gone);
  rows.erase(rows.begin(), rows.begin() + static_cast<ptrdiff_t>(n_rows * width));
  n_gone -= std::min(index, n_gone);
}

void PredictionDrafter::add(Text& text, uint32_t position, TokenId token,
                            std::span<const float> row) {
  const uint64_t end = uint64_t{text.first} + text.tokens.size();
  if (position > end || position < text.first + text.n_gone || text.tokens.empty()) {
    text = {.first = position, .tokens = {}, .rows = {}, .n_gone = 0, .width = row.size()};
    text.salt = position == 0 ? "token " + std::to_string(token) : new_salt();
  }
  const uint32_t index = position - text.first;  // what is behind it is computed again
  text.tokens.resize(index);
  text.rows.resize((index - text.n_gone) * text.width);
  text.tokens.push_back(token);
  text.rows.insert(text.rows.end(), row.begin(), row.end());
  if (text.rows.size() < kMostRows * text.width) return;
  run(text, {text.tokens.begin() + 1, text.tokens.end()}, 1);
  // The last row's token is not known yet, and a block's begin may have to be computed again.
  const auto kept = static_cast<uint32_t>(std::min<size_t>(2 * kKvBlockTokens, text.tokens.size()));
  const auto n_gone = static_cast<uint32_t>(text.tokens.size()) - kept;
  text.rows.erase(text.rows.begin(),
                  text.rows.begin() + static_cast<ptrdiff_t>((n_gone - text.n_gone) * text.width));
  text.n_gone = n_gone;
}

Guess PredictionDrafter::guess(Text& text, std::span<const TokenId> tokens, uint32_t most) {
  // There is a row of each token but the last, which was chosen by the last row.
  if (text.first + text.tokens.size() + 1 != tokens.size() || text.tokens.empty()) return {};
  const auto said = tokens.subspan(text.first, text.tokens.size());
  const auto [other, ignored] =
      std::mismatch(text.tokens.rbegin(), text.tokens.rend(), said.rbegin());
  if (const auto n_other = static_cast<uint32_t>(text.tokens.rend() - other); n_other > 0) {
    text.forget_until(n_other);  // of another text, before its window was full
    text.salt = new_salt();
  }
  return run(text, {tokens.begin() + text.first + 1, tokens.end()}, most);
}

/// `next`: the tokens that rows of the text are followed by, one for each row or all but the last.
Guess PredictionDrafter::run(Text& text, std::vector<TokenId> next, uint32_t most) {
  const Engine* const engine = engine_.engine();
  if (engine == nullptr) return {};
  if (text.n_gone > 0) {
    const KvCache& cache = engine->scheduler().cache();
    if (cache.look_up(cache.hash_prompt(next, text.salt)).cached_tokens < text.n_gone) {
      next.erase(next.begin(), next.begin() + text.n_gone);
      text.forget_until(text.n_gone);
      text.salt = new_salt();
    }
  }
  if (next.empty() || next.size() + most > engine->options().context_tokens) return {};
  const auto n_known = static_cast<uint32_t>(next.size());
  std::vector<float> own;  // hidden rows of the block's, behind those of the text
  const auto give = [&text, &own, n_known](uint32_t first, std::span<float> rows) {
    for (size_t at = 0; at < rows.size(); at += text.width, ++first) {
      PUMICE_DEBUG_CHECK(first >= text.n_gone, "a row that is not kept is computed again");
      const float* const from = first < n_known
                                    ? text.rows.data() + (first - text.n_gone) * text.width
                                    : own.data() + (first - n_known) * text.width;
      std::copy_n(from, text.width, rows.data() + at);
    }
  };
  const auto keep = [&text, &own, n_known](uint32_t position, TokenId, std::span<const float> row) {
    if (position + 1 < n_known) return;
    own.resize((position + 1 - n_known) * text.width);
    own.insert(own.end(), row.begin(), row.end());
  };
  return engine_.guess({.prompt = std::move(next),
                        .max_new_tokens = most,
                        .salt = text.salt,
                        .on_hidden = keep,
                        .give = give,
                        .forgets_output = true});
}

}  // namespace pumice
