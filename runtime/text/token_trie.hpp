// Which tokens a text begins with, byte by byte.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>
#include <vector>

#include "text/vocabulary.hpp"

namespace pumice {

/// Immutable; safe to use from any thread.
class TokenTrie {
 public:
  struct Entry {
    std::string_view text;  ///< not empty; need not outlive the constructor
    TokenId id;
  };
  static constexpr uint32_t kRoot = 0;
  static constexpr uint32_t kNone = 0xFFFFFFFF;

  /// Of entries with one text the last counts, as in Vocabulary::find.
  explicit TokenTrie(std::vector<Entry> entries);

  /// The node behind `byte`, or kNone.
  uint32_t child(uint32_t node, uint8_t byte) const {
    if (node == kRoot) return root_children_[byte];
    const Node& parent = nodes_[node];
    if (parent.n_children == 0) return kNone;
    const uint8_t* first = bytes_.data() + parent.first_child;
    const auto* found = static_cast<const uint8_t*>(std::memchr(first, byte, parent.n_children));
    return found == nullptr ? kNone : parent.first_child + static_cast<uint32_t>(found - first);
  }

  /// The token that ends at `node`, if there is one.
  std::optional<TokenId> token(uint32_t node) const {
    const TokenId id = nodes_[node].token;
    return id == kNone ? std::nullopt : std::optional<TokenId>(id);
  }

 private:
  struct Node {
    uint32_t first_child = 0;
    uint32_t n_children = 0;
    TokenId token = kNone;
  };
  std::vector<Node> nodes_;
  std::vector<uint8_t> bytes_;  // the one that leads to each node; children lie side by side
  std::array<uint32_t, 256> root_children_;
};

}  // namespace pumice
