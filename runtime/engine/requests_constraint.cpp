// Requests: what the output of a request is held to.
#include <algorithm>
#include <utility>

#include "engine/requests.hpp"

namespace pumice {

Status Requests::check_constraint(const GenerationRequest& request) const {
  if (request.constraint == nullptr) return {};
  if (limits_.greedy_only) {
    return make_error(ErrorCode::kInvalidArgument,
                      "this engine was made for greedy requests without constraints only");
  }
  const uint32_t n_tokens = request.constraint->vocabulary().n_tokens();
  if (n_tokens <= limits_.n_vocab) return {};
  return make_error(ErrorCode::kInvalidArgument,
                    "a constraint of a vocabulary of {} tokens, and the model has {}", n_tokens,
                    limits_.n_vocab);
}

/// What was output before this request is part of the constrained text.
Status Requests::begin_constraint(Active& active) {
  if (active.request.constraint == nullptr) return {};
  active.matcher.emplace(active.request.constraint);
  for (const TokenId token : active.told) PUMICE_TRY_STATUS(active.matcher->accept(token));
  return {};
}

/// Why it is the last one: after a token that did not end the request otherwise. Its mask allowed it: only fuel can fail.
EndReason Requests::constrain(Active& active, TokenId token) {
  if (!active.matcher) return EndReason::kNone;
  active.failure = active.matcher->accept(token);
  if (!active.failure.ok()) return EndReason::kError;
  const Result<bool> complete = active.matcher->is_complete();
  if (!complete.ok()) active.failure = complete.error();
  if (!complete.ok()) return EndReason::kError;
  return *complete ? EndReason::kComplete : EndReason::kNone;
}

/// What must come next, as far as that is sure: likely in the tokens that the tokenizer would take.
std::vector<TokenId> Requests::forced_tokens(Active& active, uint32_t most) {
  std::vector<TokenId> forced;
  if (!active.matcher) return forced;
  while (forced.size() < most) {
    const Result<std::optional<TokenId>> next = active.matcher->forced();
    if (!next.ok() || !*next || !active.matcher->accept(**next).ok()) break;
    forced.push_back(**next);
  }
  active.matcher->rollback(forced.size());
  return forced;
}

/// Of those that follow a draft's first tokens, how many may, one behind the other.
size_t Requests::n_allowed(Active& active, std::span<const TokenId> draft) {
  if (!active.matcher) return draft.size();
  size_t n = 0;
  while (n < draft.size() && active.matcher->accept(draft[n]).ok()) ++n;
  active.matcher->rollback(n);
  return n;
}

bool Requests::wants_masks(const StepInput& step) {
  for (size_t i = 0; i < step.chunks.size(); ++i) {
    if (step.chunks[i].sampling.has_mask && step.plan.chunks[i].n_samples > 0) return true;
  }
  return false;
}

/// Tokens that end the request and are no text may come where the text may end.
Status Requests::mask_of(Active& active, TokenMask& mask) {
  PUMICE_TRY_STATUS(active.matcher->mask(mask));
  const std::vector<TokenId>& end_tokens = active.request.end_tokens;
  if (!end_tokens.empty()) {
    PUMICE_TRY(const bool can_end, active.matcher->can_end());
    if (can_end) {
      for (const TokenId token : end_tokens) {
        if (token < 32 * mask.size()) set_bit(mask, token);
      }
    }
  }
  if (std::ranges::any_of(mask, [](uint32_t word) { return word != 0; })) return {};
  return make_error(ErrorCode::kInvalidArgument,
                    "the constraint cannot be met: no token of the vocabulary may follow");
}

/// Of the row behind its last token and of each row of the draft behind that.
Status Requests::mask_rows(Active& active, size_t chunk, std::span<const TokenId> draft,
                           const TakeMask& take) {
  TokenMask mask(active.request.constraint->vocabulary().mask_words());
  uint32_t row = 0;
  Status status = mask_of(active, mask);
  while (status.ok()) {
    take(chunk, row, mask);
    // What the row cannot choose is not followed, nor what ends the request.
    if (row == draft.size() || !active.matcher->accept(draft[row]).ok()) break;
    ++row;
    const Result<bool> complete = active.matcher->is_complete();
    if (complete.ok() && *complete) break;
    status = complete.ok() ? mask_of(active, mask) : complete.error();
  }
  active.matcher->rollback(row);
  return status;
}

void Requests::make_masks(const StepInput& step, double now_s, const TakeMask& take) {
  for (size_t i = 0; i < step.chunks.size(); ++i) {
    const StepChunk& chunk = step.plan.chunks[i];
    const bool wanted = step.chunks[i].sampling.has_mask && chunk.n_samples > 0;
    if (!wanted || !scheduler_.counts(step.plan.id, i)) continue;
    Active& active = requests_.at(chunk.request);
    const auto draft = std::span(step.chunks[i].tokens).last(chunk.n_draft());
    active.failure = mask_rows(active, i, draft, take);
    if (active.failure.ok()) continue;
    tell({.request = chunk.request,
          .computed_tokens = scheduler_.request(chunk.request).computed_tokens},
         EndReason::kError, now_s);
  }
}

}  // namespace pumice
