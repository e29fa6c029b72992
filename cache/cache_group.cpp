#include "cache/cache_group.hpp"

#include <xxhash.h>

#include <algorithm>

namespace pumice {

std::string_view group_kind_name(GroupKind kind) {
  constexpr std::string_view kNames[] = {"full", "latent", "window", "recurrent"};
  return kNames[static_cast<size_t>(kind)];
}

Status CacheGroups::check(const std::vector<CacheGroup>& groups) {
  if (groups.size() > kMaxGroups) {
    return make_error(ErrorCode::kInvalidArgument, "{} state groups, a cache has at most {}",
                      groups.size(), kMaxGroups);
  }
  for (const CacheGroup& group : groups) {
    if ((group.kind == GroupKind::kWindow) == (group.window_tokens > 0)) continue;
    return make_error(ErrorCode::kInvalidArgument, "state group {} ({}) has a window of {} tokens",
                      group.name, group_kind_name(group.kind), group.window_tokens);
  }
  return {};
}

CacheGroups::CacheGroups(const std::vector<CacheGroup>& groups, uint32_t block_tokens,
                         uint32_t rewind_tokens)
    : groups_(groups), block_tokens_(block_tokens), rewind_tokens_(rewind_tokens) {
  PUMICE_CHECK(check(groups).ok(), "state groups that are not valid");
  if (groups_.empty()) groups_.emplace_back();
  for (uint32_t i = 0; i < groups_.size(); ++i) {
    const GroupKind kind = groups_[i].kind;
    GroupMask& mask = kind == GroupKind::kWindow      ? windows_
                      : kind == GroupKind::kRecurrent ? recurrent_
                                                      : full_;
    mask |= GroupMask{1} << i;
  }
}

uint32_t CacheGroups::first_block(uint32_t group, uint32_t position) const {
  if (!is_window(group)) return 0;
  const uint32_t seen = groups_[group].window_tokens - 1;  // besides its own
  return (position > seen ? position - seen : 0) / block_tokens_;
}

uint32_t CacheGroups::first_kept_block(uint32_t group, uint32_t position) const {
  return first_block(group, position - std::min(position, rewind_tokens_));
}

uint64_t CacheGroups::pages_for(uint64_t n_tokens, uint32_t step_tokens) const {
  const auto blocks_for = [&](uint64_t n) { return (n + block_tokens_ - 1) / block_tokens_; };
  uint64_t n_pages = 0;
  for (uint32_t i = 0; i < size(); ++i) {
    if (is_recurrent(i)) {
      n_pages += 2;  // one that is read and one that is written
      continue;
    }
    const uint64_t n_all = blocks_for(n_tokens);
    if (is_window(i)) {
      const uint64_t seen = uint64_t{groups_[i].window_tokens} - 1 + rewind_tokens_;
      n_pages += std::min(n_all, blocks_for(seen + step_tokens - 1) + 1);
    } else {
      n_pages += n_all;
    }
  }
  return n_pages;
}

std::vector<CacheGroups::PrefixPage> CacheGroups::prefix_pages(uint32_t n_tokens) const {
  const auto n_blocks =
      static_cast<uint32_t>((uint64_t{n_tokens} + block_tokens_ - 1) / block_tokens_);
  std::vector<PrefixPage> pages;
  for (uint32_t block = 0; block < n_blocks; ++block) {
    for (uint32_t group = 0; group < size(); ++group) {
      const bool needed =
          is_recurrent(group) ? block + 1 == n_blocks : block >= first_block(group, n_tokens);
      if (needed) pages.push_back({block, group});
    }
  }
  return pages;
}

uint64_t CacheGroups::signature() const {
  std::vector<uint32_t> facts;
  for (const CacheGroup& group : groups_) {
    // Full and latent differ in their bytes, which are the layout's business.
    const bool full = group.kind == GroupKind::kFull || group.kind == GroupKind::kLatent;
    facts.push_back(full ? 0 : static_cast<uint32_t>(group.kind));
    facts.push_back(group.window_tokens);
  }
  return XXH3_64bits(facts.data(), facts.size() * sizeof(uint32_t));
}

}  // namespace pumice
