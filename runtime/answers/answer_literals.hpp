// What the machine's files share: looking for literals.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "answers/answer_machine.hpp"

namespace pumice {

inline std::string_view trimmed(std::string_view text) {
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  return text;
}

inline std::string_view literal_of(const Branch& branch) { return branch.literal; }
inline std::string_view literal_of(const std::string& literal) { return literal; }

/// Which of the literals `held_` is, or whether it is the beginning of one. None of them begins
/// another.
template <typename Literals>
AnswerMachine::Found AnswerMachine::find(const Literals& literals, size_t& index) const {
  Found found = Found::kNothing;
  for (size_t i = 0; i < literals.size(); ++i) {
    const std::string_view literal = literal_of(literals[i]);
    if (!literal.starts_with(held_)) continue;
    found = Found::kBeginning;
    if (literal.size() != held_.size()) continue;
    index = i;
    return Found::kWhole;
  }
  return found;
}

}  // namespace pumice
