// Whether a grammar has a JSON value: its text byte by byte through the parser, members of objects in any order that the
// grammar takes, whole numbers with or without a point.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "constraints/parser.hpp"

namespace pumice::test {

using Json = nlohmann::ordered_json;

/// The names of each object of a schema, in order: some of them are those of `properties`.
inline void collect_names(const Json& schema, std::vector<std::vector<std::string>>& lists) {
  if (schema.is_object()) {
    std::vector<std::string> names;
    for (const auto& [name, inner] : schema.items()) {
      names.push_back(name);
      collect_names(inner, lists);
    }
    lists.push_back(std::move(names));
  } else if (schema.is_array()) {
    for (const Json& inner : schema) collect_names(inner, lists);
  }
}

class ValueWalk {
 public:
  static constexpr size_t kMaxSteps = 200'000;

  /// `schema` only helps to guess the order of members.
  ValueWalk(Parser& parser, const Json& schema) : parser_(parser) { collect_names(schema, lists_); }

  /// Whether some text of `value` is in the grammar. `text`, if it is, is that text.
  bool accepts(const Json& value, std::string* text = nullptr) {
    n_steps_ = 0;
    text_.clear();
    const Parser::State end = walk(parser_.start(), value);
    if (text != nullptr) *text = text_;
    return end != Parser::kDead && parser_.accepts(end);
  }
  bool ran_out() const { return n_steps_ > kMaxSteps; }

 private:
  Parser::State feed(Parser::State state, std::string_view text) {
    text_ += text;
    n_steps_ += text.size();
    for (size_t i = 0; i < text.size() && state != Parser::kDead; ++i) {
      state = parser_.next(state, static_cast<uint8_t>(text[i]));
    }
    return n_steps_ > kMaxSteps ? Parser::kDead : state;
  }

  Parser::State walk(Parser::State state, const Json& value) {
    const size_t length = text_.size();
    if (value.is_object()) {
      std::vector<Json::object_t::value_type const*> members;
      for (const auto& member : value.get_ref<const Json::object_t&>()) members.push_back(&member);
      const std::vector<std::string>& order = likely_order(value);
      const auto place = [&](const auto* member) {
        return std::ranges::find(order, member->first) - order.begin();
      };
      std::ranges::stable_sort(members, {}, place);
      return walk_members(feed(state, "{"), members);
    }
    if (value.is_array()) {
      state = feed(state, "[");
      for (size_t i = 0; i < value.size(); ++i)
        state = walk(i == 0 ? state : feed(state, ","), value[i]);
      return feed(state, "]");
    }
    const Parser::State behind = feed(state, value.dump());
    const bool is_whole =
        value.is_number_float() && std::trunc(value.get<double>()) == value.get<double>();
    if (behind != Parser::kDead || !is_whole || std::abs(value.get<double>()) > 1e15) return behind;
    text_.resize(length);
    return feed(state, std::to_string(value.get<int64_t>()));
  }

  template <typename Members>
  Parser::State walk_members(Parser::State state, Members left) {
    if (state == Parser::kDead) return state;
    if (left.empty()) return feed(state, "}");
    const size_t length = text_.size();
    const bool is_first = text_.back() == '{';
    for (size_t i = 0; i < left.size(); ++i) {
      text_.resize(length);
      const auto* const member = left[i];
      Parser::State next = feed(state, (is_first ? "" : ",") + Json(member->first).dump() + ":");
      if (next != Parser::kDead) next = walk(next, member->second);
      if (next == Parser::kDead) continue;
      Members others = left;
      others.erase(others.begin() + static_cast<std::ptrdiff_t>(i));
      next = walk_members(next, std::move(others));
      if (next != Parser::kDead) return next;
    }
    return Parser::kDead;
  }

  /// The list that has most of the object's names.
  const std::vector<std::string>& likely_order(const Json& object) const {
    const auto n_shared = [&](const std::vector<std::string>& names) {
      return std::ranges::count_if(names,
                                   [&](const std::string& name) { return object.contains(name); });
    };
    return *std::ranges::max_element(lists_, {}, n_shared);
  }

  Parser& parser_;
  std::vector<std::vector<std::string>> lists_{{}};
  std::string text_;
  size_t n_steps_ = 0;
};

}  // namespace pumice::test
