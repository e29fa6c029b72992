// What cache/ promises, written down as simply as possible: blocks are entries of a vector, names
// of content are the whole prefixes themselves, every search looks at everything. For small pools
// only. Shares no code with the product.
#pragma once

#include <algorithm>
#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace pumice::model_fuzz {

using Tokens = std::vector<uint32_t>;

/// Tokens that two sequences begin with in common.
inline size_t common_length(const Tokens& a, const Tokens& b) {
  size_t n = 0;
  while (n < a.size() && n < b.size() && a[n] == b[n]) ++n;
  return n;
}

class NaiveCache {
 public:
  struct Found {
    std::vector<size_t> full;    // a block for each full block of the prefix
    std::optional<size_t> tail;  // the block whose head continues it
    size_t tail_tokens = 0;
    size_t tokens(size_t block_tokens) const { return full.size() * block_tokens + tail_tokens; }
  };
  struct Sequence {
    Tokens tokens;  // known ones
    std::string salt;
    std::vector<size_t> blocks;
    size_t computed = 0;
    size_t cached = 0;                  // of those, found when it began
    std::optional<size_t> copied_from;  // held until the copy is done
    bool lost = false;
  };
  using Id = size_t;

  NaiveCache(size_t n_blocks, bool unlimited, size_t block_tokens)
      : unlimited_(unlimited), block_tokens_(block_tokens) {
    if (unlimited) n_blocks = 0;
    for (size_t i = 0; i < n_blocks; ++i) {
      blocks_.emplace_back();
      free_.push_back(i);
    }
  }

  bool unlimited() const { return unlimited_; }
  size_t n_blocks() const { return blocks_.size(); }
  size_t n_free() const { return free_.size(); }
  bool can_take(size_t n) const { return unlimited_ || n <= free_.size(); }
  size_t blocks_for(size_t tokens) const { return (tokens + block_tokens_ - 1) / block_tokens_; }
  const Sequence& sequence(Id id) const { return sequences_.at(id); }
  size_t n_findable() const {
    return static_cast<size_t>(std::count_if(blocks_.begin(), blocks_.end(), has_content));
  }

  /// The longest prefix of at most `limit` tokens whose content is in blocks.
  Found find(const Tokens& tokens, const std::string& salt, size_t limit, bool want_tail) const {
    Found found;
    size_t n = 0;
    while (n + block_tokens_ <= limit) {
      const auto block = holder(prefix(tokens, n + block_tokens_), salt);
      if (!block) break;
      found.full.push_back(*block);
      n += block_tokens_;
    }
    if (!want_tail) return found;
    const Tokens wanted = prefix(tokens, std::min(limit, n + block_tokens_));
    const Tokens* best = nullptr;
    for (const Block& block : blocks_) {
      if (!continues(block, tokens, n, salt)) continue;
      const size_t common = common_length(block.content, wanted);
      if (common <= n) continue;
      const bool first = best == nullptr || common - n > found.tail_tokens;
      if (!first && common - n < found.tail_tokens) continue;
      if (!first && !nearer(block.content, *best, wanted)) continue;
      best = &block.content;
      found.tail_tokens = common - n;
    }
    if (best != nullptr) found.tail = holder(*best, salt);
    return found;
  }
  Found find_for(const Tokens& prompt, const std::string& salt) const {
    return find(prompt, salt, prompt.size() - 1, true);
  }

  std::optional<Id> begin(const Tokens& tokens, const std::string& salt, size_t reserve_tokens) {
    Found found = find_for(tokens, salt);
    if (!can_take(wanted(found, reserve_tokens)) && found.tail) {
      found.tail.reset();
      found.tail_tokens = 0;
    }
    if (!can_take(wanted(found, reserve_tokens))) return std::nullopt;
    Sequence sequence{.tokens = tokens, .salt = salt};
    sequence.computed = sequence.cached = found.tokens(block_tokens_);
    for (const size_t block : found.full) refer(block);
    if (found.tail) refer(*found.tail);
    sequence.blocks = found.full;
    sequence.copied_from = found.tail;
    const size_t n = blocks_for(std::max(sequence.cached + 1, reserve_tokens));
    while (sequence.blocks.size() < n) sequence.blocks.push_back(take());
    const Id id = next_id_++;
    sequences_.emplace(id, sequence);
    return id;
  }

  bool reserve(Id id, size_t tokens) {
    Sequence& sequence = sequences_.at(id);
    const size_t n = blocks_for(tokens);
    if (n > sequence.blocks.size() && !can_take(n - sequence.blocks.size())) return false;
    while (sequence.blocks.size() < n) sequence.blocks.push_back(take());
    return true;
  }

  void shrink(Id id, size_t tokens) {
    Sequence& sequence = sequences_.at(id);
    const size_t n = blocks_for(std::max(tokens, sequence.computed));
    while (sequence.blocks.size() > n) {
      let_go(sequence.blocks.back());
      sequence.blocks.pop_back();
    }
  }

  void copied(Id id, bool good) {
    Sequence& sequence = sequences_.at(id);
    if (!sequence.copied_from) return;
    let_go(*sequence.copied_from);
    sequence.copied_from.reset();
    sequence.lost = !good;
  }

  void commit(Id id, size_t computed) {
    sequences_.at(id).computed = computed;
    publish(sequences_.at(id));
  }
  void append(Id id, uint32_t token) {
    sequences_.at(id).tokens.push_back(token);
    publish(sequences_.at(id));
  }

  void end(Id id) {
    Sequence& sequence = sequences_.at(id);
    if (!sequence.copied_from && !sequence.lost) keep_head_of_last(sequence);
    if (sequence.copied_from) let_go(*sequence.copied_from);
    for (const size_t block : sequence.blocks) keep_one_of(block);
    for (size_t i = sequence.blocks.size(); i-- > 0;) let_go(sequence.blocks[i]);
    sequences_.erase(id);
  }

 private:
  struct Block {
    size_t owners = 0;
    Tokens content;  // the whole prefix that ends in this block; empty: nothing to be found
    std::string salt;
    uint64_t since = 0;  // when it got it
  };

  static bool has_content(const Block& block) { return !block.content.empty(); }
  static Tokens prefix(const Tokens& tokens, size_t n) {
    return {tokens.begin(), tokens.begin() + static_cast<ptrdiff_t>(n)};
  }

  /// Does the block hold something that begins with the first `n` of `tokens`, no more than a block
  /// behind them?
  bool continues(const Block& block, const Tokens& tokens, size_t n,
                 const std::string& salt) const {
    return block.content.size() > n && block.content.size() <= n + block_tokens_ &&
           block.salt == salt &&
           std::equal(tokens.begin(), tokens.begin() + static_cast<ptrdiff_t>(n),
                      block.content.begin());
  }

  /// Of contents that agree with `wanted` equally long, the next one in their order is preferred,
  /// then the one before.
  static bool nearer(const Tokens& a, const Tokens& b, const Tokens& wanted) {
    const bool a_behind = a >= wanted;
    const bool b_behind = b >= wanted;
    if (a_behind != b_behind) return a_behind;
    return a_behind ? a < b : a > b;
  }

  /// The block that holds exactly this: one in use if there is one, the newest of those.
  std::optional<size_t> holder(const Tokens& content, const std::string& salt) const {
    std::optional<size_t> best;
    for (size_t i = 0; i < blocks_.size(); ++i) {
      const Block& block = blocks_[i];
      if (block.content.size() != content.size() || block.salt != salt || block.content != content)
        continue;
      const auto rank = [&](size_t b) {
        return std::pair(blocks_[b].owners > 0, blocks_[b].since);
      };
      if (!best || rank(i) > rank(*best)) best = i;
    }
    return best;
  }

  /// Free blocks that will be free no more.
  size_t wanted(const Found& found, size_t reserve_tokens) const {
    size_t n = blocks_for(std::max(found.tokens(block_tokens_) + 1, reserve_tokens));
    for (const size_t block : found.full) n -= blocks_[block].owners > 0 ? 1 : 0;
    if (found.tail && blocks_[*found.tail].owners == 0) ++n;
    return n;
  }

  size_t take() {
    if (unlimited_ && (free_.empty() || has_content(blocks_[free_.front()]))) {
      blocks_.emplace_back();
      free_.push_front(blocks_.size() - 1);
    }
    const size_t block = free_.front();
    free_.pop_front();
    blocks_[block] = Block{.owners = 1};
    return block;
  }
  void refer(size_t block) {
    if (blocks_[block].owners++ == 0) free_.remove(block);
  }
  void let_go(size_t block) {
    if (--blocks_[block].owners == 0) line_up(block);
  }
  /// Used last is given up last; what holds nothing is taken first.
  void line_up(size_t block) {
    if (has_content(blocks_[block])) {
      free_.push_back(block);
    } else {
      free_.push_front(block);
    }
  }
  void forget(size_t block) {
    blocks_[block].content.clear();
    if (blocks_[block].owners > 0) return;
    free_.remove(block);
    line_up(block);
  }
  void hold(size_t block, const Tokens& content, const std::string& salt) {
    blocks_[block].content = content;
    blocks_[block].salt = salt;
    blocks_[block].since = ++clock_;
  }

  void publish(Sequence& sequence) {
    const size_t n = std::min(sequence.tokens.size(), sequence.computed) / block_tokens_;
    for (size_t i = 0; i < n; ++i) {
      if (has_content(blocks_[sequence.blocks[i]])) continue;
      hold(sequence.blocks[i], prefix(sequence.tokens, (i + 1) * block_tokens_), sequence.salt);
    }
  }

  void keep_head_of_last(const Sequence& sequence) {
    const size_t end = std::min(sequence.tokens.size(), sequence.computed);
    const size_t first = end - end % block_tokens_;
    if (first == end) return;
    const Tokens own = prefix(sequence.tokens, end);
    // What continues the same full blocks and agrees longest.
    const Tokens* best = nullptr;
    size_t best_common = first;
    for (const Block& block : blocks_) {
      if (!continues(block, own, first, sequence.salt)) continue;
      const size_t common = common_length(block.content, own);
      if (common <= first || common < best_common) continue;
      if (common == best_common && !nearer(block.content, *best, own)) continue;
      best = &block.content;
      best_common = common;
    }
    if (best_common == end) return;  // there already
    if (best != nullptr && best->size() == best_common) forget(*holder(*best, sequence.salt));
    hold(sequence.blocks[end / block_tokens_], own, sequence.salt);
  }

  /// Of several blocks with one content, one is enough: one that others use, else this.
  void keep_one_of(size_t block) {
    if (!has_content(blocks_[block]) || blocks_[block].owners > 1) return;
    std::vector<size_t> others;
    for (size_t i = 0; i < blocks_.size(); ++i) {
      if (i != block && blocks_[i].content == blocks_[block].content &&
          blocks_[i].salt == blocks_[block].salt) {
        others.push_back(i);
      }
    }
    std::ranges::sort(others,
                      [&](size_t a, size_t b) { return blocks_[a].since > blocks_[b].since; });
    for (const size_t other : others) {
      if (blocks_[other].owners > 0) {
        forget(block);
        return;
      }
      forget(other);
    }
  }

  bool unlimited_;
  size_t block_tokens_;
  std::vector<Block> blocks_;
  std::list<size_t> free_;  // given up from the front
  std::map<Id, Sequence> sequences_;
  Id next_id_ = 0;
  uint64_t clock_ = 0;
};

}  // namespace pumice::model_fuzz
