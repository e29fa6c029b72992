#include "cache/prefix_index.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <numeric>
#include <utility>

#include "base/memory.hpp"

namespace pumice {
namespace {

uint32_t common_words(std::span<const uint32_t> a, std::span<const uint32_t> b) {
  const size_t limit = std::min(a.size(), b.size());
  size_t n = 0;
  while (n < limit && a[n] == b[n]) ++n;
  return static_cast<uint32_t>(n);
}

}  // namespace

PrefixIndex::PrefixIndex(uint32_t block_words, uint32_t expected_nodes, uint32_t n_kinds)
    : block_words_(block_words),
      n_kinds_(n_kinds),
      n_attached_(n_kinds, 0),
      table_(std::bit_ceil(std::max<size_t>(size_t{expected_nodes} * 2, 64))) {
  nodes_.reserve(expected_nodes);
  content_.reserve(size_t{expected_nodes} * block_words);
  other_entries_.reserve(size_t{expected_nodes} * (n_kinds - 1));
}

uint32_t PrefixIndex::n_attached() const {
  return std::accumulate(n_attached_.begin(), n_attached_.end(), 0u);
}

NodeId PrefixIndex::find_root(const ModelFingerprint& model, std::string_view salt) const {
  const auto it = roots_.find(RootKey{model, std::string(salt)});
  return it == roots_.end() ? kNoNode : it->second;
}

NodeId PrefixIndex::find_or_add_root(const ModelFingerprint& model, std::string_view salt,
                                     const BlockHash& hash) {
  const auto [it, added] = roots_.try_emplace(RootKey{model, std::string(salt)}, kNoNode);
  if (added) {
    it->second = add(hash, kNoNode, {});
    root_keys_.emplace(it->second, &it->first);
  }
  return it->second;
}

NodeId PrefixIndex::root_of(NodeId id) const {
  while (nodes_[id].parent != kNoNode) id = nodes_[id].parent;
  return id;
}

ModelFingerprint PrefixIndex::root_model(NodeId root) const { return root_keys_.at(root)->model; }

std::string_view PrefixIndex::root_salt(NodeId root) const { return root_keys_.at(root)->salt; }

bool PrefixIndex::same(NodeId id, NodeId parent, const uint32_t* content) const {
  if (nodes_[id].parent != parent) return false;
  const uint32_t* own = content_.data() + size_t{id} * block_words_;
  // A size known at compile time is a few vector instructions.
  if (block_words_ == 16) return std::memcmp(own, content, 64) == 0;
  return std::memcmp(own, content, size_t{block_words_} * 4) == 0;
}

NodeId PrefixIndex::candidate(const BlockHash& hash) const {
  const uint32_t wanted = tag(hash);
  for (size_t i = home(hash);; i = (i + 1) & (table_.size() - 1)) {
    if (table_[i].node == kNoNode || table_[i].tag == wanted) return table_[i].node;
  }
}

NodeId PrefixIndex::find(const BlockHash& hash, NodeId parent,
                         std::span<const uint32_t> content) const {
  const uint32_t wanted = tag(hash);
  for (size_t i = home(hash); table_[i].node != kNoNode; i = (i + 1) & (table_.size() - 1)) {
    if (table_[i].tag == wanted && same(table_[i].node, parent, content.data())) {
      return table_[i].node;
    }
  }
  return kNoNode;
}

void PrefixIndex::find_chain(NodeId root, std::span<const BlockHash> hashes,
                             std::span<const uint32_t> content, std::vector<NodeId>& chain,
                             KindMask kinds) const {
  // Three passes over a few blocks at a time, each touching what the one before asked for: the
  // table, then node and content, then the comparison. One by one, every page waits three times
  // and takes five times as long. Tried: a rolling pipeline without windows, a sixth slower, since
  // the processor overlaps less of its longer loop. The first window is short, since many look-ups
  // end at their first blocks.
  constexpr size_t kMaxWindow = 64;
  std::array<NodeId, kMaxWindow> candidates;
  NodeId parent = root;
  size_t window = 8;
  for (size_t i = 0; i < std::min(window, hashes.size()); ++i) {
    prefetch(&table_[home(hashes[i])]);
  }
  for (size_t first = 0; first < hashes.size();) {
    size_t n = std::min(window, hashes.size() - first);
    for (size_t i = 0; i < n; ++i) {
      candidates[i] = candidate(hashes[first + i]);
      if (candidates[i] == kNoNode) {
        n = i + 1;
        break;
      }
      prefetch(&nodes_[candidates[i]]);
      prefetch(content_.data() + size_t{candidates[i]} * block_words_);
    }
    for (size_t i = first + n; i < std::min(first + n + kMaxWindow, hashes.size()); ++i) {
      prefetch(&table_[home(hashes[i])]);
    }
    for (size_t i = 0; i < n; ++i) {
      if (candidates[i] == kNoNode) return;
      const uint32_t* wanted = content.data() + (first + i) * block_words_;
      NodeId found = candidates[i];
      if (!same(found, parent, wanted)) {
        found = find(hashes[first + i], parent, {wanted, block_words_});
        if (found == kNoNode) return;
      }
      if (!nodes_[found].holds(kinds)) return;
      chain.push_back(found);
      parent = found;
    }
    first += n;
    window = kMaxWindow;
  }
}

bool PrefixIndex::before(NodeId id, std::span<const uint32_t> other) const {
  const std::span<const uint32_t> own = content(id);
  return std::lexicographical_compare(own.begin(), own.end(), other.begin(), other.end());
}

PrefixIndex::ChildMatch PrefixIndex::best_child(NodeId parent, std::span<const uint32_t> wanted,
                                                KindMask kinds) const {
  const PrefixNode& here = nodes_[parent];
  if (here.n_children == 0 || wanted.empty()) return {};
  const auto match_of = [&](NodeId id) {
    return ChildMatch{id, common_words(content(id), wanted)};
  };
  if (here.n_children == 1) {
    const ChildMatch match = match_of(here.only_child);
    return match.n_words > 0 && nodes_[match.node].holds(kinds) ? match : ChildMatch{};
  }
  const std::vector<NodeId>& family = families_.at(parent);
  const auto at = std::lower_bound(family.begin(), family.end(), wanted,
                                   [&](NodeId id, const auto& value) { return before(id, value); });
  // Going away from the place, common prefixes only get shorter: the first with bytes is the best.
  ChildMatch best;
  const auto consider = [&](NodeId id) {
    const ChildMatch match = match_of(id);
    if (match.n_words <= best.n_words) return true;
    if (!nodes_[id].holds(kinds)) return false;
    best = match;
    return true;
  };
  for (auto it = at; it != family.end() && !consider(*it);) ++it;
  for (auto it = at; it != family.begin() && !consider(*--it);) {
  }
  return best;
}

NodeId PrefixIndex::child(NodeId parent, std::span<const uint32_t> wanted) const {
  const PrefixNode& here = nodes_[parent];
  const auto is_wanted = [&](NodeId id) { return std::ranges::equal(content(id), wanted); };
  if (here.n_children == 0) return kNoNode;
  if (here.n_children == 1) return is_wanted(here.only_child) ? here.only_child : kNoNode;
  const std::vector<NodeId>& family = families_.at(parent);
  const auto at = std::lower_bound(family.begin(), family.end(), wanted,
                                   [&](NodeId id, const auto& value) { return before(id, value); });
  return at != family.end() && is_wanted(*at) ? *at : kNoNode;
}

PrefixIndex::ChildMatch PrefixIndex::best_whole_child(NodeId parent,
                                                      std::span<const uint32_t> wanted,
                                                      KindMask kinds) const {
  if (nodes_[parent].n_children == 0) return {};
  for (size_t n = wanted.size(); n > 0; --n) {
    const NodeId id = child(parent, wanted.first(n));
    if (id != kNoNode && nodes_[id].holds(kinds)) return {id, static_cast<uint32_t>(n)};
  }
  return {};
}

NodeId PrefixIndex::add(const BlockHash& hash, NodeId parent, std::span<const uint32_t> words) {
  NodeId id = n_node_slots();
  if (unused_nodes_.empty()) {
    PUMICE_CHECK(id < kNoEntry / n_kinds_, "more nodes than numbers");
    nodes_.emplace_back();
    content_.resize(content_.size() + block_words_);
    if (n_kinds_ > 1) other_entries_.resize(other_entries_.size() + n_kinds_ - 1);
  } else {
    id = unused_nodes_.back();
    unused_nodes_.pop_back();
  }
  nodes_[id] = PrefixNode{.hash = hash,
                          .parent = parent,
                          .n_words = static_cast<uint32_t>(words.size()),
                          .alive = true};
  std::ranges::copy(words, content_.begin() + static_cast<ptrdiff_t>(size_t{id} * block_words_));
  ++n_alive_;
  if (parent != kNoNode) link_child(id);
  if (words.size() == block_words_) table_insert(id);
  return id;
}

void PrefixIndex::unrefer(NodeId id) {
  PUMICE_CHECK(nodes_[id].n_references > 0, "a node is released too often");
  --nodes_[id].n_references;
  end_if_unused(id);
}

/// The entry is somewhere now, or nowhere any more.
void PrefixIndex::note_places(EntryId entry) {
  if (n_kinds_ == 1) {  // an entry is its node's: no division
    PrefixNode& node = nodes_[entry];
    node.held = node.first_entry.any() ? 1 : 0;
    if (node.held == 0) end_if_unused(entry);
    return;
  }
  const NodeId id = node_of_entry(entry);
  const auto bit = static_cast<uint16_t>(1u << kind_of_entry(entry));
  uint16_t& held = nodes_[id].held;
  held = static_cast<uint16_t>(places(entry).any() ? held | bit : held & ~bit);
  if (held == 0) end_if_unused(id);
}

void PrefixIndex::attach(EntryId entry, PageId page) {
  if (page >= copies_.size()) copies_.resize(std::max<size_t>(page + 1, copies_.size() * 2));
  PUMICE_CHECK(copies_[page].entry == kNoEntry, "a block gets a second content");
  EntryPlaces& where = places_to_change(entry);
  copies_[page] = {entry, where.page};
  where.page = page;
  ++n_attached_[kind_of_entry(entry)];
  note_places(entry);
}

void PrefixIndex::detach(PageId page) {
  const EntryId entry = entry_of(page);
  PUMICE_CHECK(entry != kNoEntry, "a block without content is detached");
  PageId* link = &places_to_change(entry).page;
  while (*link != page) link = &copies_[*link].next;
  *link = copies_[page].next;
  copies_[page] = {};
  --n_attached_[kind_of_entry(entry)];
  note_places(entry);
}

void PrefixIndex::replace(PageId from, PageId to) {
  const EntryId entry = entry_of(from);
  PUMICE_CHECK(entry != kNoEntry && entry_of(to) == kNoEntry,
               "a block is replaced that holds nothing");
  if (to >= copies_.size()) copies_.resize(to + size_t{1});
  PageId* link = &places_to_change(entry).page;
  while (*link != from) link = &copies_[*link].next;
  *link = to;
  copies_[to] = std::exchange(copies_[from], {});
}

void PrefixIndex::set_host_slot(EntryId entry, uint32_t slot) {
  places_to_change(entry).host_slot = slot;
  note_places(entry);
}

void PrefixIndex::set_file_slot(EntryId entry, uint32_t slot) {
  places_to_change(entry).file_slot = slot;
  note_places(entry);
}

void PrefixIndex::end_if_unused(NodeId id) {
  while (id != kNoNode) {
    PrefixNode& here = nodes_[id];
    if (here.has_bytes() || here.n_children > 0 || here.n_references > 0) return;
    if (here.n_words == block_words_) table_erase(id);
    const NodeId parent = here.parent;
    if (parent != kNoNode) {
      unlink_child(id);
    } else {
      const auto key = root_keys_.find(id);
      roots_.erase(*key->second);
      root_keys_.erase(key);
    }
    nodes_[id] = PrefixNode{};
    unused_nodes_.push_back(id);
    --n_alive_;
    id = parent;
  }
}

void PrefixIndex::link_child(NodeId id) {
  PrefixNode& parent = nodes_[nodes_[id].parent];
  ++parent.n_children;
  if (parent.n_children == 1) {
    parent.only_child = id;
    return;
  }
  std::vector<NodeId>& family = families_[nodes_[id].parent];
  if (parent.n_children == 2) family.assign(1, parent.only_child);
  parent.only_child = kNoNode;
  const auto at =
      std::lower_bound(family.begin(), family.end(), content(id),
                       [&](NodeId other, const auto& value) { return before(other, value); });
  family.insert(at, id);
}

void PrefixIndex::unlink_child(NodeId id) {
  const NodeId parent_id = nodes_[id].parent;
  PrefixNode& parent = nodes_[parent_id];
  --parent.n_children;
  if (parent.n_children == 0) {
    parent.only_child = kNoNode;
    return;
  }
  std::vector<NodeId>& family = families_.at(parent_id);
  auto at = std::lower_bound(family.begin(), family.end(), content(id),
                             [&](NodeId other, const auto& value) { return before(other, value); });
  while (*at != id) ++at;  // equal contents stand together
  family.erase(at);
  if (parent.n_children == 1) {
    parent.only_child = family.front();
    families_.erase(parent_id);
  }
}

std::vector<NodeId> PrefixIndex::children(NodeId id) const {
  if (nodes_[id].n_children == 0) return {};
  if (nodes_[id].n_children == 1) return {nodes_[id].only_child};
  return families_.at(id);
}

void PrefixIndex::table_insert(NodeId id) {
  if ((size_t{n_in_table_} + 1) * 2 > table_.size()) table_grow();
  size_t i = home(nodes_[id].hash);
  while (table_[i].node != kNoNode) i = (i + 1) & (table_.size() - 1);
  table_[i] = {tag(nodes_[id].hash), id};
  ++n_in_table_;
}

void PrefixIndex::table_erase(NodeId id) {
  const size_t mask = table_.size() - 1;
  size_t hole = home(nodes_[id].hash);
  while (table_[hole].node != id) hole = (hole + 1) & mask;
  // Move up whatever a probe would no longer reach over the hole.
  for (size_t i = (hole + 1) & mask; table_[i].node != kNoNode; i = (i + 1) & mask) {
    const size_t wanted = home(nodes_[table_[i].node].hash);
    if (((i - wanted) & mask) < ((i - hole) & mask)) continue;
    table_[hole] = table_[i];
    hole = i;
  }
  table_[hole] = {};
  --n_in_table_;
}

void PrefixIndex::table_grow() {
  BigArray<Slot> old(table_.size() * 2);
  old.swap(table_);
  n_in_table_ = 0;
  for (const Slot& slot : old) {
    if (slot.node != kNoNode) table_insert(slot.node);
  }
}

uint64_t PrefixIndex::memory_bytes() const {
  uint64_t bytes = nodes_.capacity() * sizeof(PrefixNode) + content_.capacity() * 4 +
                   other_entries_.capacity() * sizeof(EntryPlaces) + table_.size() * sizeof(Slot) +
                   copies_.capacity() * sizeof(Copy) + unused_nodes_.capacity() * sizeof(NodeId);
  for (const auto& [id, family] : families_) bytes += 64 + family.capacity() * sizeof(NodeId);
  for (const auto& [key, id] : roots_) bytes += 128 + key.salt.size();
  return bytes;
}

Status PrefixIndex::check_integrity() const {
  const auto wrong = [](NodeId id, std::string_view what) {
    return make_error(ErrorCode::kInternal, "prefix node {}: {}", id, what);
  };
  uint32_t n_alive = 0;
  uint32_t n_full = 0;
  std::vector<uint32_t> n_children(nodes_.size(), 0);
  std::vector<uint32_t> n_attached(n_kinds_, 0);
  for (NodeId id = 0; id < nodes_.size(); ++id) {
    const PrefixNode& here = nodes_[id];
    if (!here.alive) continue;
    ++n_alive;
    if (!here.has_bytes() && here.n_children == 0 && here.n_references == 0) {
      return wrong(id, "nothing keeps it");
    }
    if (here.parent == kNoNode) {
      const auto key = root_keys_.find(id);
      if (here.n_words != 0 || key == root_keys_.end() || roots_.at(*key->second) != id) {
        return wrong(id, "it is not a known root");
      }
    } else {
      if (here.parent >= nodes_.size() || !nodes_[here.parent].alive) {
        return wrong(id, "its parent is gone");
      }
      const PrefixNode& parent = nodes_[here.parent];
      if (parent.n_words != block_words_ && parent.parent != kNoNode) {
        return wrong(id, "its parent is not a full block");
      }
      if (here.n_words == 0 || here.n_words > block_words_) return wrong(id, "its length");
      ++n_children[here.parent];
    }
    if (here.n_words == block_words_) {
      ++n_full;
      if (find(here.hash, here.parent, content(id)) != id) {
        return wrong(id, "its hash does not lead to it");
      }
    }
    for (uint32_t kind = 0; kind < n_kinds_; ++kind) {
      const EntryPlaces& where = places(entry(id, kind));
      if (where.any() != here.holds(KindMask{1} << kind)) {
        return wrong(id, "it does not know which groups' pages it has");
      }
      for (PageId page = where.page; page != kNoPage; page = copies_[page].next) {
        if (entry_of(page) != entry(id, kind)) return wrong(id, "a copy belongs to another page");
        ++n_attached[kind];
      }
    }
  }
  for (NodeId id = 0; id < nodes_.size(); ++id) {
    if (!nodes_[id].alive) continue;
    const std::vector<NodeId> family = children(id);
    if (nodes_[id].n_children != n_children[id] || family.size() != n_children[id]) {
      return wrong(id, "it counts its children wrong");
    }
    for (size_t i = 0; i < family.size(); ++i) {
      if (nodes_[family[i]].parent != id) return wrong(id, "a child has another parent");
      if (i > 0 && before(family[i], content(family[i - 1]))) {
        return wrong(id, "its children are not sorted");
      }
    }
  }
  for (PageId page = 0; page < copies_.size(); ++page) {
    if (copies_[page].entry == kNoEntry) continue;
    const NodeId id = node_of_entry(copies_[page].entry);
    if (id >= nodes_.size() || !nodes_[id].alive) {
      return make_error(ErrorCode::kInternal, "block {} holds a node that is gone", page);
    }
  }
  if (n_attached != n_attached_) {
    return make_error(ErrorCode::kInternal, "the prefix index counts its blocks wrong");
  }
  if (n_alive != n_alive_ || n_full != n_in_table_ || root_keys_.size() != roots_.size() ||
      n_alive + unused_nodes_.size() != nodes_.size()) {
    return make_error(ErrorCode::kInternal, "the prefix index counts {} nodes and holds {}",
                      n_alive_, n_alive);
  }
  return {};
}

}  // namespace pumice
