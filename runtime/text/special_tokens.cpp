#include "text/special_tokens.hpp"

#include <algorithm>
#include <bit>
#include <functional>
#include <numeric>
#include <queue>

namespace pumice {
namespace {

constexpr std::string_view kBlanks = " \t\n\v\f\r";

// A token that stands at `begin`, as one number: the lowest comes first.
uint64_t match_key(uint32_t rank, size_t begin) { return uint64_t{rank} << 32 | begin; }

// Which bytes of a text are part of an accepted token.
class Taken {
 public:
  explicit Taken(size_t n_bytes) : words_(n_bytes / 64 + 1) {}

  void take(size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) words_[i / 64] |= uint64_t{1} << i % 64;
  }
  /// The first taken byte of [begin, end), or `end`.
  size_t first(size_t begin, size_t end) const {
    for (size_t i = begin; i < end; i = (i / 64 + 1) * 64) {
      const uint64_t rest = words_[i / 64] >> i % 64;
      if (rest != 0) return std::min(end, i + static_cast<size_t>(std::countr_zero(rest)));
    }
    return end;
  }

 private:
  std::vector<uint64_t> words_;
};

std::string_view without_blanks_before(std::string_view text) {
  const size_t begin = text.find_first_not_of(kBlanks);
  return begin == text.npos ? std::string_view() : text.substr(begin);
}

std::string_view without_blanks_behind(std::string_view text) {
  return text.substr(0, text.find_last_not_of(kBlanks) + 1);
}

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
    const Entry entry = {text, id, vocabulary.takes_blanks_before(id),
                         vocabulary.takes_blanks_behind(id), user_defined};
    result.all_.entries.push_back(entry);
    (user_defined ? result.user_defined_ : result.control_).entries.push_back(entry);
  }
  result.all_.build();
  result.user_defined_.build();
  result.control_.build();
  return result;
}

void SpecialTokens::Index::build() {
  std::ranges::sort(entries, [](const Entry& a, const Entry& b) {
    return a.text != b.text ? a.text < b.text : a.id < b.id;
  });
  const auto same_text = [](const Entry& a, const Entry& b) { return a.text == b.text; };
  entries.erase(std::unique(entries.begin(), entries.end(), same_text), entries.end());
  by_rank.resize(entries.size());
  std::iota(by_rank.begin(), by_rank.end(), 0u);
  std::ranges::sort(by_rank, [this](uint32_t a, uint32_t b) {
    const Entry& left = entries[a];
    const Entry& right = entries[b];
    return left.text.size() != right.text.size() ? left.text.size() > right.text.size()
                                                 : left.id < right.id;
  });
  for (uint32_t rank = 0; rank < by_rank.size(); ++rank) entries[by_rank[rank]].rank = rank;
  for (const Entry& entry : entries) ++first[static_cast<uint8_t>(entry.text[0]) + 1];
  for (size_t b = 0; b < 256; ++b) first[b + 1] += first[b];
}

const SpecialTokens::Entry* SpecialTokens::Index::longest_prefix(std::string_view text,
                                                                 bool only_user_defined) const {
  if (text.empty()) return nullptr;
  const auto lead = static_cast<uint8_t>(text[0]);
  auto low = entries.begin() + first[lead];
  auto high = entries.begin() + first[lead + 1];
  const Entry* best = nullptr;
  // [low, high) holds the entries that share the first `depth` bytes with the text.
  for (size_t depth = 1; low != high; ++depth) {
    if (low->text.size() == depth) {  // the shortest sorts first
      if (low->user_defined || !only_user_defined) best = &*low;
      ++low;
    }
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

std::vector<Fragment> SpecialTokens::split(std::string_view text, bool parse_special,
                                           std::span<const size_t> literal) const {
  const Index& index = parse_special ? all_ : user_defined_;
  const auto longest_at = [&](size_t begin, size_t n) {
    const bool is_literal = std::binary_search(literal.begin(), literal.end(), begin);
    return index.longest_prefix(text.substr(begin, n), is_literal);
  };

  // One candidate a position, so memory stays linear; a candidate that overlaps an accepted token
  // comes back as the longest one that still fits.
  std::vector<uint64_t> candidates;
  if (!index.entries.empty()) {
    for (size_t begin = 0; begin < text.size(); ++begin) {
      const auto lead = static_cast<uint8_t>(text[begin]);
      if (index.first[lead] == index.first[lead + 1]) continue;
      const Entry* entry = longest_at(begin, text.npos);
      if (entry != nullptr) candidates.push_back(match_key(entry->rank, begin));
    }
  }
  std::ranges::sort(candidates);
  std::priority_queue<uint64_t, std::vector<uint64_t>, std::greater<>> shortened;
  Taken taken(text.size());
  std::vector<uint64_t> accepted;  // begin << 32 | rank
  for (size_t next = 0; next < candidates.size() || !shortened.empty();) {
    uint64_t key = 0;
    if (shortened.empty() || (next < candidates.size() && candidates[next] < shortened.top())) {
      key = candidates[next++];
    } else {
      key = shortened.top();
      shortened.pop();
    }
    const auto rank = static_cast<uint32_t>(key >> 32);
    const size_t begin = key & 0xFFFFFFFF;
    const size_t end = begin + index.at_rank(rank).text.size();
    const size_t limit = taken.first(begin, end);
    if (limit == end) {
      taken.take(begin, end);
      accepted.push_back(uint64_t{begin} << 32 | rank);
    } else if (limit > begin) {
      const Entry* shorter = longest_at(begin, limit - begin);
      if (shorter != nullptr) shortened.push(match_key(shorter->rank, begin));
    }
  }
  std::ranges::sort(accepted);
  return fragments_of(text, index, accepted);
}

std::vector<Fragment> SpecialTokens::fragments_of(std::string_view text, const Index& index,
                                                  std::span<const uint64_t> accepted) {
  std::vector<Fragment> fragments;
  size_t done = 0;
  bool takes_behind = false;
  const auto push_text = [&](size_t end, bool takes_before) {
    std::string_view between = text.substr(done, end - done);
    if (takes_behind) between = without_blanks_before(between);
    if (takes_before) between = without_blanks_behind(between);
    if (!between.empty()) fragments.push_back({between, std::nullopt});
  };
  for (uint64_t match : accepted) {
    const Entry& entry = index.at_rank(static_cast<uint32_t>(match));
    const size_t begin = match >> 32;
    push_text(begin, entry.takes_before);
    fragments.push_back({entry.text, entry.id});
    done = begin + entry.text.size();
    takes_behind = entry.takes_behind;
  }
  push_text(text.size(), false);
  return fragments;
}

}  // namespace pumice
