#include "text/token_trie.hpp"

#include <algorithm>
#include <cstddef>

namespace pumice {

TokenTrie::TokenTrie(std::vector<Entry> entries) {
  std::ranges::stable_sort(entries, [](const Entry& a, const Entry& b) { return a.text < b.text; });
  // Nodes are made level by level: those of one parent follow each other.
  struct Range {
    size_t begin;
    size_t end;
    size_t depth;
  };
  std::vector<Range> ranges = {{0, entries.size(), 0}};
  nodes_.emplace_back();
  bytes_.push_back(0);
  for (uint32_t node = 0; node < nodes_.size(); ++node) {
    auto [begin, end, depth] = ranges[node];
    for (; begin < end && entries[begin].text.size() == depth; ++begin) {
      if (depth > 0) nodes_[node].token = entries[begin].id;
    }
    nodes_[node].first_child = static_cast<uint32_t>(nodes_.size());
    while (begin < end) {
      const char byte = entries[begin].text[depth];
      size_t next = begin + 1;
      while (next < end && entries[next].text[depth] == byte) ++next;
      ranges.push_back({begin, next, depth + 1});
      nodes_.emplace_back();
      bytes_.push_back(static_cast<uint8_t>(byte));
      begin = next;
    }
    nodes_[node].n_children = static_cast<uint32_t>(nodes_.size()) - nodes_[node].first_child;
  }
  root_children_.fill(kNone);
  for (uint32_t i = 0; i < nodes_[kRoot].n_children; ++i) {
    const uint32_t node = nodes_[kRoot].first_child + i;
    root_children_[bytes_[node]] = node;
  }
}

}  // namespace pumice
