#include "cache/page_kind.hpp"

#include <xxhash.h>

#include <algorithm>

namespace pumice {

std::string_view state_form_name(StateForm form) {
  constexpr std::string_view kNames[] = {"full", "latent", "window", "recurrent"};
  return kNames[static_cast<size_t>(form)];
}

Status PageKinds::check(const std::vector<PageKind>& kinds) {
  if (kinds.size() > kMaxKinds) {
    return make_error(ErrorCode::kInvalidArgument, "{} state groups, a cache has at most {}",
                      kinds.size(), kMaxKinds);
  }
  for (const PageKind& kind : kinds) {
    if ((kind.form == StateForm::kWindow) == (kind.window_tokens > 0)) continue;
    return make_error(ErrorCode::kInvalidArgument, "state group {} ({}) has a window of {} tokens",
                      kind.name, state_form_name(kind.form), kind.window_tokens);
  }
  return {};
}

PageKinds::PageKinds(const std::vector<PageKind>& kinds, uint32_t block_tokens,
                     uint32_t rewind_tokens)
    : kinds_(kinds), block_tokens_(block_tokens), rewind_tokens_(rewind_tokens) {
  PUMICE_CHECK(check(kinds).ok(), "state groups that are not valid");
  if (kinds_.empty()) kinds_.emplace_back();
  for (uint32_t i = 0; i < kinds_.size(); ++i) {
    const StateForm form = kinds_[i].form;
    KindMask& mask = form == StateForm::kWindow      ? windows_
                     : form == StateForm::kRecurrent ? recurrent_
                                                     : full_;
    mask |= KindMask{1} << i;
  }
}

uint32_t PageKinds::first_block(uint32_t kind, uint32_t position) const {
  if (!is_window(kind)) return 0;
  const uint32_t seen = kinds_[kind].window_tokens - 1;  // besides its own
  return (position > seen ? position - seen : 0) / block_tokens_;
}

uint32_t PageKinds::first_kept_block(uint32_t kind, uint32_t position) const {
  return first_block(kind, position - std::min(position, rewind_tokens_));
}

uint64_t PageKinds::pages_for(uint64_t n_tokens, uint32_t step_tokens) const {
  const auto blocks_for = [&](uint64_t n) { return (n + block_tokens_ - 1) / block_tokens_; };
  uint64_t n_pages = 0;
  for (uint32_t i = 0; i < size(); ++i) {
    if (is_recurrent(i)) {
      n_pages += 2;  // one that is read and one that is written
      continue;
    }
    const uint64_t n_all = blocks_for(n_tokens);
    if (is_window(i)) {
      const uint64_t seen = uint64_t{kinds_[i].window_tokens} - 1 + rewind_tokens_;
      n_pages += std::min(n_all, blocks_for(seen + step_tokens - 1) + 1);
    } else {
      n_pages += n_all;
    }
  }
  return n_pages;
}

std::vector<PageKinds::PrefixEntry> PageKinds::prefix_entries(uint32_t n_tokens) const {
  const auto n_blocks =
      static_cast<uint32_t>((uint64_t{n_tokens} + block_tokens_ - 1) / block_tokens_);
  std::vector<PrefixEntry> pages;
  for (uint32_t block = 0; block < n_blocks; ++block) {
    for (uint32_t kind = 0; kind < size(); ++kind) {
      const bool needed =
          is_recurrent(kind) ? block + 1 == n_blocks : block >= first_block(kind, n_tokens);
      if (needed) pages.push_back({block, kind});
    }
  }
  return pages;
}

uint64_t PageKinds::signature() const {
  std::vector<uint32_t> facts;
  for (const PageKind& kind : kinds_) {
    // Full and latent differ in their bytes, which are the layout's business.
    const bool full = kind.form == StateForm::kFull || kind.form == StateForm::kLatent;
    facts.push_back(full ? 0 : static_cast<uint32_t>(kind.form));
    facts.push_back(kind.window_tokens);
  }
  return XXH3_64bits(facts.data(), facts.size() * sizeof(uint32_t));
}

}  // namespace pumice
