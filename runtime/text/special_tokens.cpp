#include "text/special_tokens.hpp"

#include <algorithm>
#include <map>
#include <queue>

namespace pumice {
namespace {

struct Match {
  size_t begin;
  std::string_view text;
  TokenId id;
};

// Top of the queue: longest, then lowest id, then leftmost.
struct MatchOrder {
  bool operator()(const Match& a, const Match& b) const {
    if (a.text.size() != b.text.size()) return a.text.size() < b.text.size();
    if (a.id != b.id) return a.id > b.id;
    return a.begin > b.begin;
  }
};

}  // namespace

Result<SpecialTokens> SpecialTokens::create(const Vocabulary& vocabulary) {
  SpecialTokens result;
  for (TokenId id = 0; id < vocabulary.size(); ++id) {
    const TokenType type = vocabulary.type(id);
    const bool user_defined = type == TokenType::kUserDefined;
    if (!user_defined && type != TokenType::kControl && type != TokenType::kUnknown) continue;
    const std::string_view text = vocabulary.text(id);
    if (text.empty()) continue;
    if (text.size() > kMaxSpecialBytes) {
      return make_error(ErrorCode::kBadFile,
                        "tokenizer.ggml.tokens[{}] is a special token of {} bytes, at most {}", id,
                        text.size(), kMaxSpecialBytes);
    }
    result.all_.entries.push_back({text, id});
    if (user_defined) result.user_defined_.entries.push_back({text, id});
  }
  result.all_.build();
  result.user_defined_.build();
  return result;
}

void SpecialTokens::Index::build() {
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return a.text != b.text ? a.text < b.text : a.id < b.id;
  });
  const auto same_text = [](const Entry& a, const Entry& b) { return a.text == b.text; };
  entries.erase(std::unique(entries.begin(), entries.end(), same_text), entries.end());
  for (const Entry& entry : entries) ++first[static_cast<uint8_t>(entry.text[0]) + 1];
  for (size_t b = 0; b < 256; ++b) first[b + 1] += first[b];
}

const SpecialTokens::Entry* SpecialTokens::Index::longest_prefix(std::string_view text) const {
  if (text.empty()) return nullptr;
  const auto lead = static_cast<uint8_t>(text[0]);
  auto low = entries.begin() + first[lead];
  auto high = entries.begin() + first[lead + 1];
  const Entry* best = nullptr;
  // [low, high) holds the entries that share the first `depth` bytes with the text.
  for (size_t depth = 1; low != high; ++depth) {
    if (low->text.size() == depth) best = &*low++;  // the shortest sorts first
    if (depth == text.size()) break;
    const auto byte_at = [depth](const Entry& entry) {
      return static_cast<uint8_t>(entry.text[depth]);
    };
    const auto wanted = static_cast<uint8_t>(text[depth]);
    low = std::partition_point(low, high, [&](const Entry& e) { return byte_at(e) < wanted; });
    high = std::partition_point(low, high, [&](const Entry& e) { return byte_at(e) == wanted; });
  }
  return best;
}

std::vector<Fragment> SpecialTokens::split(std::string_view text, bool parse_special) const {
  const Index& index = parse_special ? all_ : user_defined_;

  // One candidate a position, so memory stays linear; a candidate that overlaps an accepted token
  // comes back as the longest one that still fits.
  std::vector<Match> candidates;
  if (!index.entries.empty()) {
    for (size_t begin = 0; begin < text.size(); ++begin) {
      const auto lead = static_cast<uint8_t>(text[begin]);
      if (index.first[lead] == index.first[lead + 1]) continue;
      const Entry* entry = index.longest_prefix(text.substr(begin));
      if (entry != nullptr) candidates.push_back({begin, entry->text, entry->id});
    }
  }
  std::priority_queue<Match, std::vector<Match>, MatchOrder> queue(MatchOrder{},
                                                                   std::move(candidates));
  std::map<size_t, Match> accepted;  // by begin
  while (!queue.empty()) {
    const Match match = queue.top();
    queue.pop();
    const auto next = accepted.upper_bound(match.begin);
    if (next != accepted.begin()) {
      const Match& previous = std::prev(next)->second;
      if (previous.begin + previous.text.size() > match.begin) continue;
    }
    const size_t limit = next == accepted.end() ? text.size() : next->first;
    if (match.begin + match.text.size() <= limit) {
      accepted.emplace(match.begin, match);
      continue;
    }
    const Entry* shorter = index.longest_prefix(text.substr(match.begin, limit - match.begin));
    if (shorter != nullptr) queue.push({match.begin, shorter->text, shorter->id});
  }

  std::vector<Fragment> fragments;
  size_t done = 0;
  for (const auto& [begin, match] : accepted) {
    if (begin > done) fragments.push_back({text.substr(done, begin - done), std::nullopt});
    fragments.push_back({match.text, match.id});
    done = begin + match.text.size();
  }
  if (done < text.size()) fragments.push_back({text.substr(done), std::nullopt});
  return fragments;
}

}  // namespace pumice
