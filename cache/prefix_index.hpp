// Which content is known: a tree of blocks under roots of (model, salt), found by hash in one flat
// table and verified by content and parent.
//
// A node is one content: a full block of `block_words` words after a certain prefix, or a partial
// one, fewer words that end a sequence. Its bytes are entries, one for each kind that has any:
// of a paged kind those of its positions, of a recurrent one the state behind its last. The index
// says where each entry is: in pages (any number of copies), a slot of host memory, a slot of a file,
// or nowhere. A node lives as long as it has bytes somewhere, children, or
// references; so a node's number names its whole prefix, and comparing parents compares prefixes.
// Different contents with one hash are different nodes.
//
// Children of a node are kept sorted by content, so the child with the longest common prefix is
// next to where the content sought would be.
//
// Not thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.hpp"
#include "cache/big_array.hpp"
#include "cache/block_hash.hpp"
#include "cache/page_kind.hpp"
#include "cache/page_pool.hpp"

namespace pumice {

using NodeId = uint32_t;
inline constexpr NodeId kNoNode = UINT32_MAX;
inline constexpr uint32_t kNowhere = UINT32_MAX;
/// A node's entry of one kind: its number times the number of kinds, plus the kind's.
using EntryId = uint32_t;
inline constexpr EntryId kNoEntry = UINT32_MAX;

/// Where an entry is.
struct EntryPlaces {
  PageId page = kNoPage;  ///< newest copy on the device
  uint32_t host_slot = kNowhere;
  uint32_t file_slot = kNowhere;

  bool any() const { return page != kNoPage || host_slot != kNowhere || file_slot != kNowhere; }
};

/// One cache line: a look-up reads one node and one page's content.
struct alignas(64) PrefixNode {
  BlockHash hash;
  NodeId parent = kNoNode;
  EntryPlaces first_entry;  ///< of kind 0
  uint32_t n_words = 0;     ///< 0: a root
  uint32_t n_children = 0;
  uint32_t n_references = 0;
  NodeId only_child = kNoNode;  ///< if n_children is 1
  uint16_t held = 0;            ///< kinds whose entries are somewhere
  bool alive = false;

  bool has_bytes() const { return held != 0; }
  bool holds(KindMask kinds) const { return (held & kinds) == kinds; }
};
static_assert(sizeof(PrefixNode) == 64);

class PrefixIndex {
 public:
  /// `expected_nodes` only saves growing later.
  PrefixIndex(uint32_t block_words, uint32_t expected_nodes, uint32_t n_kinds = 1);

  const PrefixNode& node(NodeId id) const { return nodes_[id]; }
  std::span<const uint32_t> content(NodeId id) const {
    return {content_.data() + size_t{id} * block_words_, nodes_[id].n_words};
  }
  uint32_t n_nodes() const { return n_alive_; }
  /// Pages that hold an entry, of all kinds and of one.
  uint32_t n_attached() const;
  uint32_t n_attached(uint32_t kind) const { return n_attached_[kind]; }
  uint32_t n_node_slots() const { return static_cast<uint32_t>(nodes_.size()); }

  EntryId entry(NodeId id, uint32_t kind) const { return id * n_kinds_ + kind; }
  NodeId node_of_entry(EntryId entry) const { return n_kinds_ == 1 ? entry : entry / n_kinds_; }
  uint32_t kind_of_entry(EntryId entry) const { return n_kinds_ == 1 ? 0 : entry % n_kinds_; }
  const EntryPlaces& places(EntryId entry) const {
    if (n_kinds_ == 1) return nodes_[entry].first_entry;
    const uint32_t kind = kind_of_entry(entry);
    const NodeId id = node_of_entry(entry);
    return kind == 0 ? nodes_[id].first_entry : other_entries_[other_entry(id, kind)];
  }

  NodeId find_root(const ModelFingerprint& model, std::string_view salt) const;
  NodeId find_or_add_root(const ModelFingerprint& model, std::string_view salt,
                          const BlockHash& hash);
  /// Root above a node.
  NodeId root_of(NodeId id) const;
  /// Model and salt of a root.
  ModelFingerprint root_model(NodeId root) const;
  std::string_view root_salt(NodeId root) const;

  /// The full page `content` after `parent`; kNoNode if unknown. May have bytes nowhere.
  NodeId find(const BlockHash& hash, NodeId parent, std::span<const uint32_t> content) const;

  /// The longest run of full blocks after `root` that have bytes of all `kinds`. Appends their
  /// nodes to `chain`. `content` holds the blocks that `hashes` name.
  void find_chain(NodeId root, std::span<const BlockHash> hashes, std::span<const uint32_t> content,
                  std::vector<NodeId>& chain, KindMask kinds = 1) const;

  struct ChildMatch {
    NodeId node = kNoNode;
    uint32_t n_words = 0;
  };
  /// The child of `parent` with bytes of all `kinds` that shares the longest prefix with
  /// `content`.
  ChildMatch best_child(NodeId parent, std::span<const uint32_t> content, KindMask kinds = 1) const;
  /// The child that is the longest prefix of `content`, `content` itself included, among those with
  /// bytes of all `kinds`.
  ChildMatch best_whole_child(NodeId parent, std::span<const uint32_t> content,
                              KindMask kinds) const;
  /// The child that is exactly `content`; kNoNode if there is none.
  NodeId child(NodeId parent, std::span<const uint32_t> content) const;

  /// Make a node without bytes; the caller refers to it or gives it bytes before anything else.
  /// A partial one (fewer than block_words words) has no hash.
  NodeId add(const BlockHash& hash, NodeId parent, std::span<const uint32_t> content);

  void refer(NodeId id) { ++nodes_[id].n_references; }
  /// May end the node, and ancestors that only it kept.
  void unrefer(NodeId id);

  /// A page of the device holds the entry's bytes. One page holds one entry at most.
  void attach(EntryId entry, PageId page);
  /// It no longer does. May end the node.
  void detach(PageId page);
  /// Another page, without content, holds them now in this one's place.
  void replace(PageId from, PageId to);
  EntryId entry_of(PageId page) const {
    return page < copies_.size() ? copies_[page].entry : kNoEntry;
  }
  /// Another page with the same content, kNoPage after the last.
  PageId next_copy(PageId page) const { return copies_[page].next; }
  /// kNowhere: no longer there. May end the node.
  void set_host_slot(EntryId entry, uint32_t slot);
  void set_file_slot(EntryId entry, uint32_t slot);

  /// Children in the order of their content.
  std::vector<NodeId> children(NodeId id) const;

  uint64_t memory_bytes() const;
  /// Errors: kInternal naming what is wrong.
  Status check_integrity() const;

 private:
  struct Slot {
    uint32_t tag = 0;
    NodeId node = kNoNode;
  };
  struct Copy {
    EntryId entry = kNoEntry;
    PageId next = kNoPage;  // another copy of the same entry
  };
  struct RootKey {
    ModelFingerprint model;
    std::string salt;
    bool operator==(const RootKey&) const = default;
  };
  struct RootKeyHash {
    size_t operator()(const RootKey& key) const {
      return std::hash<std::string_view>()(key.salt) ^ key.model.low;
    }
  };

  size_t home(const BlockHash& hash) const { return hash.low & (table_.size() - 1); }
  static uint32_t tag(const BlockHash& hash) { return static_cast<uint32_t>(hash.low >> 32); }
  size_t other_entry(NodeId id, uint32_t kind) const {
    return size_t{id} * (n_kinds_ - 1) + kind - 1;
  }
  EntryPlaces& places_to_change(EntryId entry) { return const_cast<EntryPlaces&>(places(entry)); }
  void note_places(EntryId entry);
  bool same(NodeId id, NodeId parent, const uint32_t* content) const;
  /// First node in the table that may have this hash.
  NodeId candidate(const BlockHash& hash) const;
  void table_insert(NodeId id);
  void table_erase(NodeId id);
  void table_grow();
  void link_child(NodeId id);
  void unlink_child(NodeId id);
  bool before(NodeId id, std::span<const uint32_t> content) const;
  void end_if_unused(NodeId id);

  uint32_t block_words_;
  uint32_t n_alive_ = 0;
  uint32_t n_kinds_;
  std::vector<uint32_t> n_attached_;  // by kind
  BigArray<PrefixNode> nodes_;
  BigArray<EntryPlaces> other_entries_;  // [node][n_kinds_ - 1]: of kinds 1 and on
  BigArray<uint32_t> content_;           // [node][block_words_]
  std::vector<NodeId> unused_nodes_;
  BigArray<Slot> table_;  // open addressing, linear probing, at most half full
  uint32_t n_in_table_ = 0;
  std::unordered_map<NodeId, std::vector<NodeId>> families_;  // of two children and more
  std::vector<Copy> copies_;                                  // by page
  std::unordered_map<RootKey, NodeId, RootKeyHash> roots_;
  std::unordered_map<NodeId, const RootKey*> root_keys_;
};

}  // namespace pumice
