// What cache/ promises, written down as simply as possible: pages are entries of a vector, names
// of content are the whole prefixes themselves, every search looks at everything, and a length can
// be restored if each state kind, asked by its definition, says so. For small pools only. Shares
// no code with the product.
#pragma once

#include <algorithm>
#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace pumice::model_fuzz {

using Tokens = std::vector<uint32_t>;

/// Tokens that two sequences begin with in common.
inline size_t common_length(const Tokens& a, const Tokens& b) {
  size_t n = 0;
  while (n < a.size() && n < b.size() && a[n] == b[n]) ++n;
  return n;
}

struct NaiveKind {
  bool recurrent = false;
  size_t window = 0;  // 0: all
};

class NaiveCache {
 public:
  using Page = std::optional<size_t>;
  struct Found {
    size_t tokens = 0;
    std::optional<Tokens> tail;  // the content whose head continues the full blocks
    size_t full_blocks(size_t block_tokens) const { return tokens / block_tokens; }
    size_t tail_tokens(size_t block_tokens) const { return tokens % block_tokens; }
  };
  struct Sequence {
    Tokens tokens;  // known ones
    std::string salt;
    std::vector<std::vector<Page>> blocks;       // by kind; none behind a window
    std::vector<std::map<size_t, Page>> states;  // by kind and position
    std::vector<Page> spare;                     // by kind
    size_t computed = 0;
    size_t cached = 0;   // of those, found when it began
    size_t indexed = 0;  // full blocks that others can find
    size_t branch = 0;
    size_t prompt_edge = 0;
    bool lost = false;
  };
  using Id = size_t;

  NaiveCache(size_t n_pages, bool unlimited, size_t block_tokens, std::vector<NaiveKind> kinds,
             size_t rewind)
      : unlimited_(unlimited),
        block_tokens_(block_tokens),
        kinds_(std::move(kinds)),
        rewind_(rewind) {
    if (unlimited) n_pages = 0;
    for (size_t i = 0; i < n_pages; ++i) {
      blocks_.emplace_back();
      free_.push_back(i);
    }
  }

  bool unlimited() const { return unlimited_; }
  size_t n_pages() const { return blocks_.size(); }
  size_t n_free() const { return free_.size(); }
  bool can_take(size_t n) const { return unlimited_ || n <= free_.size(); }
  size_t blocks_for(size_t tokens) const { return (tokens + block_tokens_ - 1) / block_tokens_; }
  const Sequence& sequence(Id id) const { return sequences_.at(id); }
  const std::vector<NaiveKind>& kinds() const { return kinds_; }
  bool any_recurrent() const {
    return std::ranges::any_of(kinds_, [](const NaiveKind& kind) { return kind.recurrent; });
  }
  bool waits_for_copies(Id id) const {
    return std::ranges::any_of(copies_, [&](const auto& copy) { return copy.first == id; });
  }
  size_t n_copies(Id id) const {
    return static_cast<size_t>(
        std::ranges::count_if(copies_, [&](const auto& copy) { return copy.first == id; }));
  }

  /// Pages that a sequence may need at once.
  size_t pages_for(size_t tokens, size_t step_tokens) const {
    size_t n = 0;
    for (const NaiveKind& kind : kinds_) {
      if (kind.recurrent) {
        n += 2;
      } else if (kind.window == 0) {
        n += blocks_for(tokens);
      } else {
        const size_t seen = kind.window - 1 + rewind_ + step_tokens - 1;
        n += std::min(blocks_for(tokens), blocks_for(seen) + 1);
      }
    }
    return n;
  }

  /// The longest prefix, of less than all of it, that each of `asked` can restore.
  Found find(const Tokens& tokens, const std::string& salt, bool want_tail,
             const std::vector<size_t>& asked) const {
    const size_t n_known = known_blocks(tokens, salt);
    for (size_t length = tokens.size() - 1; length > 0; --length) {
      const size_t n_full = length / block_tokens_;
      if (n_full > n_known) continue;  // a window may need nothing of it, but it must be known
      Found found{length, std::nullopt};
      if (length % block_tokens_ != 0) {
        if (!want_tail) continue;
        found.tail = best_tail(tokens, salt, length, asked);
        if (!found.tail) continue;
      }
      const bool good = std::ranges::all_of(asked, [&](size_t g) {
        if (kinds_[g].recurrent) return holder(g, prefix(tokens, length), salt).has_value();
        for (size_t i = first_block(g, length); i < n_full; ++i) {
          if (!holder(g, prefix(tokens, (i + 1) * block_tokens_), salt)) return false;
        }
        return true;
      });
      if (good) return found;
    }
    return {};
  }
  Found find_for(const Tokens& prompt, const std::string& salt) const {
    return find(prompt, salt, true, all_kinds());
  }

  struct Blame {
    std::optional<size_t> kind;
    size_t others = 0;
  };
  /// The kind without which the hit would be the longest, or that has least of its own.
  Blame blame(const Tokens& prompt, const std::string& salt) const {
    const size_t hit = find_for(prompt, salt).tokens;
    Blame blamed;
    size_t least = 0;
    size_t most = 0;
    for (size_t g = 0; g < kinds_.size(); ++g) {
      std::vector<size_t> others = all_kinds();
      std::erase(others, g);
      // Without any kind every length that is known at all would do.
      const size_t without = others.empty() ? hit : find(prompt, salt, true, others).tokens;
      const size_t alone = find(prompt, salt, true, {g}).tokens;
      most = std::max(most, alone);
      if (blamed.kind && (without < blamed.others || (without == blamed.others && alone >= least)))
        continue;
      blamed = {g, without};
      least = alone;
    }
    if (blamed.others == hit && most == hit) return {};
    return blamed;
  }

  /// Free pages if these sequences had none.
  size_t n_free_without(const std::vector<Id>& ids) const {
    size_t n = free_.size();
    for (size_t i = 0; i < blocks_.size(); ++i) {
      n += blocks_[i].owners > 0 && blocks_[i].owners == n_held(i, ids) ? 1 : 0;
    }
    return n;
  }
  /// Pages of kinds that keep all, of what a prompt finds, that others than these sequences hold.
  size_t n_shared_without(const Tokens& tokens, const std::string& salt,
                          const std::vector<Id>& ids) const {
    size_t n = 0;
    for (size_t i = 1; i <= find_for(tokens, salt).full_blocks(block_tokens_); ++i) {
      for (size_t g = 0; g < kinds_.size(); ++g) {
        if (kinds_[g].recurrent || kinds_[g].window > 0) continue;
        bool shared = false;
        for (size_t b = 0; b < blocks_.size(); ++b) {
          shared |= holds(blocks_[b], g, prefix(tokens, i * block_tokens_), salt) &&
                    blocks_[b].owners > n_held(b, ids);
        }
        n += shared ? 1 : 0;
      }
    }
    return n;
  }

  std::optional<Id> begin(const Tokens& tokens, const std::string& salt, size_t reserve_tokens) {
    Found found = find_for(tokens, salt);
    if (!can_take(wanted(tokens, salt, found, reserve_tokens)) && found.tail) {
      found = find(tokens, salt, false, all_kinds());
    }
    if (!can_take(wanted(tokens, salt, found, reserve_tokens))) return std::nullopt;
    const size_t length = found.tokens;
    const size_t n_full = length / block_tokens_;
    const size_t n_kinds = kinds_.size();
    Sequence sequence{.tokens = tokens, .salt = salt};
    sequence.computed = sequence.cached = length;
    sequence.indexed = n_full;
    sequence.branch = known_blocks(tokens, salt) * block_tokens_;
    sequence.prompt_edge = (tokens.size() - 1) / block_tokens_ * block_tokens_;
    sequence.blocks.resize(n_kinds);
    sequence.states.resize(n_kinds);
    sequence.spare.resize(n_kinds);
    const Id id = next_id_++;
    for (size_t g = 0; g < n_kinds; ++g) {
      if (kinds_[g].recurrent) {
        Page& state = sequence.states[g][length];
        if (length > 0) state = held(holder(g, prefix(tokens, length), salt));
        continue;
      }
      sequence.blocks[g].resize(first_block(g, length));
      for (size_t i = first_block(g, length); i < n_full; ++i) {
        sequence.blocks[g].push_back(
            held(holder(g, prefix(tokens, (i + 1) * block_tokens_), salt)));
      }
      if (found.tail) copies_.emplace_back(id, *held(holder(g, *found.tail, salt)));
    }
    for (size_t g = 0; g < n_kinds; ++g) {
      if (kinds_[g].recurrent) {
        sequence.spare[g] = take();
        continue;
      }
      const size_t end = begin_end(g, length, reserve_tokens);
      while (sequence.blocks[g].size() < end) sequence.blocks[g].push_back(take());
    }
    sequences_.emplace(id, sequence);
    return id;
  }

  size_t lacking(Id id, size_t tokens) const {
    const Sequence& sequence = sequences_.at(id);
    size_t n = 0;
    for (size_t g = 0; g < kinds_.size(); ++g) {
      if (kinds_[g].recurrent) {
        n += tokens > last_state(sequence, g) && !sequence.spare[g] ? 1 : 0;
      } else if (blocks_for(tokens) > sequence.blocks[g].size()) {
        n += blocks_for(tokens) - sequence.blocks[g].size();
      }
    }
    return n;
  }
  bool reserve(Id id, size_t tokens) {
    Sequence& sequence = sequences_.at(id);
    if (!can_take(lacking(id, tokens))) return false;
    for (size_t g = 0; g < kinds_.size(); ++g) {
      if (kinds_[g].recurrent) {
        if (tokens > last_state(sequence, g) && !sequence.spare[g]) sequence.spare[g] = take();
      } else {
        while (sequence.blocks[g].size() < blocks_for(tokens)) sequence.blocks[g].push_back(take());
      }
    }
    return true;
  }
  /// Positions for which it lacks nothing.
  size_t reserved(Id id, size_t most) const {
    size_t n = most;
    while (n > 0 && lacking(id, n) > 0) --n;
    return n;
  }

  void plan(Id id, size_t end) {
    Sequence& sequence = sequences_.at(id);
    for (size_t g = 0; g < kinds_.size(); ++g) {
      if (kinds_[g].recurrent) sequence.states[g][end] = std::exchange(sequence.spare[g], {});
    }
  }
  void unplan(Id id, size_t tokens) {
    Sequence& sequence = sequences_.at(id);
    for (size_t g = 0; g < kinds_.size(); ++g) {
      if (kinds_[g].recurrent) give_back_behind(sequence, g, std::max(tokens, sequence.computed));
    }
  }
  /// Where a chunk that begins at `position` should end, so that a state is kept.
  std::optional<size_t> next_kept(Id id, size_t position) const {
    const Sequence& sequence = sequences_.at(id);
    std::optional<size_t> next;
    if (!any_recurrent()) return next;
    for (const size_t edge : {sequence.branch, sequence.prompt_edge}) {
      if (edge > position && (!next || edge < *next)) next = edge;
    }
    return next;
  }

  void shrink(Id id, size_t tokens) {
    Sequence& sequence = sequences_.at(id);
    const size_t n = blocks_for(std::max(tokens, sequence.computed));
    for (std::vector<Page>& blocks : sequence.blocks) {
      while (blocks.size() > n) {
        let_go(*blocks.back());
        blocks.pop_back();
      }
    }
  }

  /// Its copies were made, or not.
  void copied(Id id, bool good) {
    finish_copies([&](Id owner) { return owner == id; }, good);
  }
  /// All copies were. Whose sequences are lost if not.
  std::vector<Id> copied_all(bool good) {
    std::vector<Id> owners;
    for (const auto& [id, source] : copies_) {
      if (std::ranges::find(owners, id) == owners.end()) owners.push_back(id);
    }
    finish_copies([](Id) { return true; }, good);
    return good ? std::vector<Id>{} : owners;
  }

  void commit(Id id, size_t computed) {
    Sequence& sequence = sequences_.at(id);
    sequence.computed = computed;
    publish(sequence);
    for (size_t g = 0; g < kinds_.size(); ++g) {
      if (kinds_[g].recurrent) {
        flip(sequence, g);
      } else if (kinds_[g].window > 0) {
        slide(sequence, g);
      }
    }
  }
  void append(Id id, uint32_t token) {
    sequences_.at(id).tokens.push_back(token);
    publish(sequences_.at(id));
  }

  /// Whether positions from `tokens` on could be forgotten.
  bool rewind(Id id, size_t tokens) {
    Sequence& sequence = sequences_.at(id);
    if (tokens > sequence.computed) return false;
    const size_t n_full = tokens / block_tokens_;
    const bool copies = tokens % block_tokens_ != 0 && n_full < sequence.indexed;
    std::vector<Page> states(kinds_.size());
    size_t n_wanted = 0;
    for (size_t g = 0; g < kinds_.size(); ++g) {
      if (kinds_[g].recurrent) {
        if (tokens == 0) continue;
        if (sequence.states[g].contains(tokens)) {
          states[g] = sequence.states[g].at(tokens);
        } else if (tokens % block_tokens_ == 0 && n_full <= sequence.indexed) {
          states[g] = holder(g, prefix(sequence.tokens, tokens), sequence.salt);
        }
        if (!states[g]) return false;
        n_wanted += blocks_[*states[g]].owners == 0 ? 1 : 0;
        continue;
      }
      for (size_t i = first_block(g, tokens); i < sequence.blocks[g].size(); ++i) {
        if (!sequence.blocks[g][i]) return false;
      }
      n_wanted += copies ? 1 : 0;
    }
    if (!can_take(n_wanted)) return false;
    for (const Page& state : states) {
      if (state) refer(*state);
    }
    std::vector<Page> targets(kinds_.size());
    for (size_t g = 0; g < kinds_.size(); ++g) {
      if (copies && !kinds_[g].recurrent) targets[g] = take();
    }
    for (size_t g = 0; g < kinds_.size(); ++g) {
      if (kinds_[g].recurrent) {
        give_back_behind(sequence, g, tokens);
        if (const auto at = sequence.states[g].find(tokens); at != sequence.states[g].end()) {
          give_back(sequence, g, at->second);
        }
        sequence.states[g][tokens] = states[g];
        continue;
      }
      std::vector<Page>& blocks = sequence.blocks[g];
      const size_t n = blocks_for(tokens);
      if (targets[g]) {
        copies_.emplace_back(id, *blocks[n - 1]);
        blocks[n - 1] = targets[g];
      }
      for (size_t i = n; i < blocks.size(); ++i) keep_one_of(*blocks[i]);
      while (blocks.size() > n) {
        let_go(*blocks.back());
        blocks.pop_back();
      }
    }
    sequence.tokens.resize(std::min(sequence.tokens.size(), tokens));
    sequence.computed = tokens;
    sequence.indexed = std::min(sequence.indexed, n_full);
    return true;
  }

  /// There are no sequences.
  void forget_all() {
    for (size_t i = 0; i < blocks_.size(); ++i) forget(i);
  }

  void end(Id id) {
    Sequence& sequence = sequences_.at(id);
    if (!waits_for_copies(id) && !sequence.lost) keep_end(sequence);
    copied(id, true);
    size_t n_blocks = sequence.indexed;
    for (size_t g = 0; g < kinds_.size(); ++g) {
      for (const Page& block : sequence.blocks[g]) {
        if (block) keep_one_of(*block);
      }
      for (const auto& [position, state] : sequence.states[g]) {
        if (state) keep_one_of(*state);
      }
      n_blocks = std::max(n_blocks, sequence.blocks[g].size());
    }
    // States first, then blocks from the end on.
    for (size_t g = kinds_.size(); g-- > 0;) {
      if (sequence.spare[g]) let_go(*sequence.spare[g]);
      for (auto it = sequence.states[g].rbegin(); it != sequence.states[g].rend(); ++it) {
        if (it->second) let_go(*it->second);
      }
    }
    for (size_t i = n_blocks; i-- > 0;) {
      if (i < sequence.indexed) freshen_states(sequence, (i + 1) * block_tokens_);
      for (size_t g = kinds_.size(); g-- > 0;) {
        if (i < sequence.blocks[g].size() && sequence.blocks[g][i]) let_go(*sequence.blocks[g][i]);
      }
    }
    sequences_.erase(id);
  }

 private:
  template <typename Wanted>
  void finish_copies(Wanted wanted, bool good) {
    std::vector<std::pair<Id, size_t>> rest;
    for (const auto& [id, source] : copies_) {
      if (!wanted(id)) {
        rest.emplace_back(id, source);
        continue;
      }
      let_go(source);
      sequences_.at(id).lost = !good;
    }
    copies_ = rest;
  }

  struct Block {
    size_t owners = 0;
    Tokens content;  // the whole prefix that ends in this page; empty: nothing to be found
    size_t kind = 0;
    std::string salt;
    uint64_t since = 0;  // when it got it
  };

  static bool has_content(const Block& block) { return !block.content.empty(); }
  /// How often these sequences hold a page.
  size_t n_held(size_t page, const std::vector<Id>& ids) const {
    size_t n = 0;
    for (const Id id : ids) {
      const Sequence& sequence = sequences_.at(id);
      for (size_t g = 0; g < kinds_.size(); ++g) {
        n += static_cast<size_t>(std::ranges::count(sequence.blocks[g], Page(page)));
        n += sequence.spare[g] == page ? 1 : 0;
        for (const auto& [position, state] : sequence.states[g]) n += state == page ? 1 : 0;
      }
    }
    return n;
  }
  static Tokens prefix(const Tokens& tokens, size_t n) {
    return {tokens.begin(), tokens.begin() + static_cast<ptrdiff_t>(n)};
  }
  std::vector<size_t> all_kinds() const {
    std::vector<size_t> all;
    for (size_t g = 0; g < kinds_.size(); ++g) all.push_back(g);
    return all;
  }
  static size_t last_state(const Sequence& sequence, size_t kind) {
    return sequence.states[kind].rbegin()->first;
  }

  /// The block of the first position that `position` sees.
  size_t first_block(size_t kind, size_t position) const {
    const size_t window = kinds_[kind].window;
    return window == 0 || window > position ? 0 : (position - window + 1) / block_tokens_;
  }
  size_t begin_end(size_t kind, size_t cached, size_t reserve_tokens) const {
    const bool stepwise = kinds_[kind].window > 0;
    return blocks_for(stepwise ? cached + 1 : std::max(cached + 1, reserve_tokens));
  }

  /// Does `content` begin with the first `n` of `tokens`, no more than a block behind them?
  bool continues(const Tokens& content, const Tokens& tokens, size_t n) const {
    return content.size() > n && content.size() <= n + block_tokens_ &&
           std::equal(tokens.begin(), tokens.begin() + static_cast<ptrdiff_t>(n), content.begin());
  }

  /// Of contents that agree with `wanted` equally long, the next one in their order is preferred,
  /// then the one before.
  static bool nearer(const Tokens& a, const Tokens& b, const Tokens& wanted) {
    const bool a_behind = a >= wanted;
    const bool b_behind = b >= wanted;
    if (a_behind != b_behind) return a_behind;
    return a_behind ? a < b : a > b;
  }

  bool held_by_all(const Tokens& content, const std::string& salt,
                   const std::vector<size_t>& asked) const {
    return std::ranges::all_of(asked,
                               [&](size_t g) { return holder(g, content, salt).has_value(); });
  }

  /// A content that all of `asked` hold and that agrees with the first `length` tokens; where there
  /// is a state, it ends there.
  std::optional<Tokens> best_tail(const Tokens& tokens, const std::string& salt, size_t length,
                                  const std::vector<size_t>& asked) const {
    const size_t first = length / block_tokens_ * block_tokens_;
    const bool whole = std::ranges::any_of(asked, [&](size_t g) { return kinds_[g].recurrent; });
    const Tokens wanted = prefix(tokens, std::min(tokens.size() - 1, first + block_tokens_));
    const Tokens* best = nullptr;
    for (const Block& block : blocks_) {
      if (block.salt != salt || !continues(block.content, tokens, first)) continue;
      const size_t common = common_length(block.content, wanted);
      if (common < length || (whole && block.content.size() != length)) continue;
      if (!held_by_all(block.content, salt, asked)) continue;
      const size_t best_common = best == nullptr ? 0 : common_length(*best, wanted);
      if (common < best_common) continue;
      if (common == best_common && !nearer(block.content, *best, wanted)) continue;
      best = &block.content;
    }
    return best == nullptr ? std::nullopt : std::optional<Tokens>(*best);
  }

  /// The page that holds exactly this: one in use if there is one, the newest of those.
  Page holder(size_t kind, const Tokens& content, const std::string& salt) const {
    Page best;
    for (size_t i = 0; i < blocks_.size(); ++i) {
      if (!holds(blocks_[i], kind, content, salt)) continue;
      const auto rank = [&](size_t b) {
        return std::pair(blocks_[b].owners > 0, blocks_[b].since);
      };
      if (!best || rank(i) > rank(*best)) best = i;
    }
    return best;
  }
  static bool holds(const Block& block, size_t kind, const Tokens& content,
                    const std::string& salt) {
    return block.content.size() == content.size() && block.kind == kind && block.salt == salt &&
           block.content == content;
  }

  /// Full blocks of a prompt that begin any content, or a running sequence.
  size_t known_blocks(const Tokens& tokens, const std::string& salt) const {
    size_t most = 0;
    const auto consider = [&](const Tokens& other, size_t n, const std::string& other_salt) {
      if (other_salt == salt) most = std::max(most, std::min(common_length(other, tokens), n));
    };
    for (const Block& block : blocks_) consider(block.content, block.content.size(), block.salt);
    for (const auto& [id, other] : sequences_) {
      consider(other.tokens, other.indexed * block_tokens_, other.salt);
    }
    return std::min(most, tokens.size() - 1) / block_tokens_;
  }

  /// Free pages that will be free no more.
  size_t wanted(const Tokens& tokens, const std::string& salt, const Found& found,
                size_t reserve_tokens) const {
    const auto costs = [&](Page page) { return blocks_[*page].owners == 0 ? 1u : 0u; };
    size_t n = 0;
    for (size_t g = 0; g < kinds_.size(); ++g) {
      if (kinds_[g].recurrent) {
        ++n;
        if (found.tokens > 0) n += costs(holder(g, prefix(tokens, found.tokens), salt));
        continue;
      }
      const size_t n_full = found.full_blocks(block_tokens_);
      for (size_t i = first_block(g, found.tokens); i < n_full; ++i) {
        n += costs(holder(g, prefix(tokens, (i + 1) * block_tokens_), salt));
      }
      n += begin_end(g, found.tokens, reserve_tokens) - n_full;
      if (found.tail) n += costs(holder(g, *found.tail, salt));
    }
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
  Page held(Page page) {
    refer(*page);
    return page;
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
  void hold(size_t block, size_t kind, const Tokens& content, const std::string& salt) {
    blocks_[block].content = content;
    blocks_[block].kind = kind;
    blocks_[block].salt = salt;
    blocks_[block].since = ++clock_;
  }

  void publish(Sequence& sequence) {
    const size_t n = std::min(sequence.tokens.size(), sequence.computed) / block_tokens_;
    for (; sequence.indexed < n; ++sequence.indexed) {
      const size_t i = sequence.indexed;
      for (size_t g = 0; g < kinds_.size(); ++g) {
        if (kinds_[g].recurrent) continue;
        hold(*sequence.blocks[g][i], g, prefix(sequence.tokens, (i + 1) * block_tokens_),
             sequence.salt);
      }
    }
  }

  // ---- windows and states

  void slide(Sequence& sequence, size_t kind) {
    std::vector<Page>& blocks = sequence.blocks[kind];
    const size_t oldest = sequence.computed - std::min(sequence.computed, rewind_);
    const size_t n = first_block(kind, oldest);
    for (size_t i = 0; i < n; ++i) {
      if (blocks[i]) keep_one_of(*blocks[i]);
    }
    for (size_t i = n; i-- > 0;) {
      if (blocks[i]) let_go(*blocks[i]);
      blocks[i].reset();
    }
  }

  void give_back(Sequence& sequence, size_t kind, Page page) {
    if (!page) return;
    if (!sequence.spare[kind] && !has_content(blocks_[*page]) && blocks_[*page].owners == 1) {
      sequence.spare[kind] = page;
      return;
    }
    keep_one_of(*page);
    let_go(*page);
  }
  void give_back_behind(Sequence& sequence, size_t kind, size_t position) {
    std::map<size_t, Page>& states = sequence.states[kind];
    while (states.rbegin()->first > position) {
      const Page page = states.rbegin()->second;
      states.erase(std::prev(states.end()));
      give_back(sequence, kind, page);
      if (states.empty()) return;
    }
  }

  void keep_states(Sequence& sequence) {
    for (size_t g = 0; g < kinds_.size(); ++g) {
      if (!kinds_[g].recurrent) continue;
      const Page page = sequence.states[g].at(sequence.computed);
      if (!page || has_content(blocks_[*page])) continue;
      hold(*page, g, prefix(sequence.tokens, sequence.computed), sequence.salt);
    }
  }

  void flip(Sequence& sequence, size_t kind) {
    const size_t now = sequence.computed;
    const bool published = now > 0 && now == sequence.indexed * block_tokens_;
    if (published && (now == sequence.branch || now == sequence.prompt_edge)) keep_states(sequence);
    std::map<size_t, Page>& states = sequence.states[kind];
    const auto n_before = [&] { return std::distance(states.begin(), states.find(now)); };
    while (n_before() > (rewind_ > 0 ? 1 : 0)) {
      give_back(sequence, kind, states.begin()->second);
      states.erase(states.begin());
    }
  }

  /// The states of a prefix that ends here were as useful as its blocks.
  void freshen_states(const Sequence& sequence, size_t length) {
    for (size_t g = kinds_.size(); g-- > 0;) {
      if (!kinds_[g].recurrent) continue;
      const Tokens content = prefix(sequence.tokens, length);
      std::vector<size_t> waiting;
      for (size_t i = 0; i < blocks_.size(); ++i) {
        if (holds(blocks_[i], g, content, sequence.salt) && blocks_[i].owners == 0) {
          waiting.push_back(i);
        }
      }
      newest_first(waiting);
      for (const size_t i : waiting) {
        free_.remove(i);
        free_.push_back(i);
      }
    }
  }

  // ---- the end of a sequence

  void keep_end(Sequence& sequence) {
    const size_t end = std::min(sequence.tokens.size(), sequence.computed);
    const size_t first = end - end % block_tokens_;
    const bool has_states = any_recurrent() && end > 0 && end == sequence.computed;
    if (first < end && !keep_head_of_last(sequence, first, prefix(sequence.tokens, end))) return;
    if (has_states) keep_states(sequence);
  }

  /// False: all of it was there already.
  bool keep_head_of_last(const Sequence& sequence, size_t first, const Tokens& own) {
    if (!any_recurrent()) {
      // What continues the same full blocks in all kinds and agrees longest.
      const Tokens* best = nullptr;
      size_t best_common = first;
      for (const Block& block : blocks_) {
        if (block.salt != sequence.salt || !continues(block.content, own, first)) continue;
        if (!held_by_all(block.content, sequence.salt, all_kinds())) continue;
        const size_t common = common_length(block.content, own);
        if (common <= first || common < best_common) continue;
        if (common == best_common && !nearer(block.content, *best, own)) continue;
        best = &block.content;
        best_common = common;
      }
      if (best_common == own.size()) return false;
      if (best != nullptr && best->size() == best_common) {
        const Tokens shorter = *best;
        for (size_t g = 0; g < kinds_.size(); ++g) forget(*holder(g, shorter, sequence.salt));
      }
    }
    for (size_t g = 0; g < kinds_.size(); ++g) {
      if (kinds_[g].recurrent || holder(g, own, sequence.salt)) continue;
      hold(*sequence.blocks[g][own.size() / block_tokens_], g, own, sequence.salt);
    }
    return true;
  }

  void newest_first(std::vector<size_t>& blocks) const {
    std::ranges::sort(blocks,
                      [&](size_t a, size_t b) { return blocks_[a].since > blocks_[b].since; });
  }

  /// Of several pages with one content, one is enough: one that others use, else this.
  void keep_one_of(size_t block) {
    if (!has_content(blocks_[block]) || blocks_[block].owners > 1) return;
    std::vector<size_t> others;
    for (size_t i = 0; i < blocks_.size(); ++i) {
      const Block& own = blocks_[block];
      if (i != block && holds(blocks_[i], own.kind, own.content, own.salt)) others.push_back(i);
    }
    newest_first(others);
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
  std::vector<NaiveKind> kinds_;
  size_t rewind_;
  std::vector<Block> blocks_;
  std::list<size_t> free_;  // given up from the front
  std::map<Id, Sequence> sequences_;
  std::vector<std::pair<Id, size_t>> copies_;  // with the sources they hold, in order
  Id next_id_ = 0;
  uint64_t clock_ = 0;
};

}  // namespace pumice::model_fuzz
