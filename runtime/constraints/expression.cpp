#include "constraints/expression.hpp"

#include <algorithm>
#include <optional>
#include <string>
#include <tuple>

#include "text/utf8.hpp"

namespace pumice {
namespace {

constexpr uint32_t kReserved = 0xFFFF0000;  // kinds of the three expressions without operands

ByteSet byte_range(uint8_t first, uint8_t last) {
  ByteSet set;
  for (uint32_t byte = first; byte <= last; ++byte) set.set(byte);
  return set;
}

/// n of `a` and `b` times, or kUnbounded if either is (or the sum no longer fits).
uint32_t add_counts(uint32_t a, uint32_t b) {
  return static_cast<uint32_t>(std::min<uint64_t>(uint64_t{a} + b, kUnbounded));
}

/// n of `a` times n of `b`, as add_counts.
uint32_t multiply_counts(uint32_t a, uint32_t b) {
  return static_cast<uint32_t>(std::min<uint64_t>(uint64_t{a} * b, kUnbounded));
}

ByteWords operator|(ByteWords a, const ByteWords& b) {
  for (size_t i = 0; i < a.size(); ++i) a[i] |= b[i];
  return a;
}

ByteWords operator&(ByteWords a, const ByteWords& b) {
  for (size_t i = 0; i < a.size(); ++i) a[i] &= b[i];
  return a;
}

constexpr ByteWords kAllBytes = {~0u, ~0u, ~0u, ~0u, ~0u, ~0u, ~0u, ~0u};

uint32_t one_less(uint32_t count) { return count == kUnbounded ? kUnbounded : count - 1; }

}  // namespace

ExpressionSet::ExpressionSet(uint64_t fuel) : fuel_(fuel) {
  for (uint32_t i = 0; i < 3; ++i) {
    nodes_.intern({{kReserved + i}});
    facts_.push_back({.nullable = i > 0,
                      .matches_something = i > 0,
                      .depth = 0,
                      .max_bytes = i == index(kEverything) ? kUnbounded : 0,
                      .first = i == index(kEverything) ? kAllBytes : ByteWords{}});
  }
}

ExpressionSet::Facts ExpressionSet::facts_of(std::span<const uint32_t> words) const {
  const auto facts = [&](size_t i) -> const Facts& { return facts_[words[i]]; };
  const auto depth = [](uint32_t below) {
    if (below >= kMaxDepth) throw OutOfFuel{};
    return static_cast<uint16_t>(below + 1);
  };
  uint32_t deepest = 0, longest = 0, shortest = kUnbounded;  // of what operands match at most
  ByteWords any_first{}, all_first = kAllBytes;
  bool all_nullable = true, any_nullable = false, any_matches = false;
  switch (Kind{words[0]}) {
    case Kind::kBytes: {
      ByteWords bytes{};
      std::ranges::copy(words.subspan(1), bytes.begin());
      return {
          .nullable = false, .matches_something = true, .depth = 0, .max_bytes = 1, .first = bytes};
    }
    case Kind::kConcat:  // not depth: nothing recurses along a sequence
      return {.nullable = facts(1).nullable && facts(2).nullable,
              .matches_something = facts(1).matches_something && facts(2).matches_something,
              .depth = std::max(depth(facts(1).depth), facts(2).depth),
              .max_bytes = add_counts(facts(1).max_bytes, facts(2).max_bytes),
              .first = facts(1).nullable ? facts(1).first | facts(2).first : facts(1).first};
    case Kind::kRepeat:
      return {.nullable = words[2] == 0,
              .matches_something = words[2] == 0 || facts(1).matches_something,
              .depth = depth(facts(1).depth),
              .max_bytes = multiply_counts(facts(1).max_bytes, words[3]),
              .first = facts(1).first};
    case Kind::kNot:
      return {.nullable = !facts(1).nullable,
              .matches_something = !facts(1).nullable,
              .depth = depth(facts(1).depth),
              .max_bytes = kUnbounded,
              .first = kAllBytes};
    case Kind::kAny:
    case Kind::kAll:
      break;
  }
  for (size_t i = 1; i < words.size(); ++i) {
    deepest = std::max<uint32_t>(deepest, facts(i).depth);
    longest = std::max(longest, facts(i).max_bytes);
    shortest = std::min(shortest, facts(i).max_bytes);
    any_first = any_first | facts(i).first;
    all_first = all_first & facts(i).first;
    all_nullable &= facts(i).nullable;
    any_nullable |= facts(i).nullable;
    any_matches |= facts(i).matches_something;
  }
  if (Kind{words[0]} == Kind::kAny)
    return {any_nullable, any_matches, depth(deepest), longest, any_first};
  return {all_nullable, all_nullable, depth(deepest), shortest, all_first};
}

Expression ExpressionSet::make(std::span<const uint32_t> words) {
  fuel_.spend(words.size() + 2);
  const Facts facts = facts_of(words);
  if (!facts.nullable && facts.first == ByteWords{}) return kNothing;
  const WordInterner::Interned node = nodes_.intern(words);
  if (node.is_new) facts_.push_back(facts);
  return Expression{node.number};
}

ByteSet ExpressionSet::byte_set(Expression e) const {
  ByteSet set;
  for (uint32_t byte = 0; byte < 256; ++byte)
    set[byte] = may_begin_with(e, static_cast<uint8_t>(byte));
  return set;
}

Expression ExpressionSet::bytes(const ByteSet& bytes) {
  ByteWords words{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    if (bytes[byte]) words[byte / 32] |= 1u << byte % 32;
  }
  return this->bytes(words);
}

Expression ExpressionSet::bytes(const ByteWords& words) {
  if (words == ByteWords{}) return kNothing;
  std::array<uint32_t, 1 + std::tuple_size_v<ByteWords>> node{static_cast<uint32_t>(Kind::kBytes)};
  std::ranges::copy(words, node.begin() + 1);
  const uint32_t before = nodes_.size();
  const Expression made = make(node);
  if (index(made) >= before) refine_classes(words);
  return made;
}

/// Bytes that are together in a class and of which only some are in the set part.
void ExpressionSet::refine_classes(const ByteWords& words) {
  const auto has = [&](uint32_t byte) { return (words[byte / 32] >> byte % 32 & 1) != 0; };
  std::array<uint8_t, 256> parted{};  // by class: that of those that leave it
  for (uint32_t byte = 0; byte < 256; ++byte) {
    const uint8_t from = classes_[byte];
    if (has(byte) == has(representatives_[from])) continue;
    if (parted[from] == 0) {
      parted[from] = static_cast<uint8_t>(representatives_.size());
      representatives_.push_back(static_cast<uint8_t>(byte));
    }
    classes_[byte] = parted[from];
  }
}

Expression ExpressionSet::literal(std::string_view bytes) {
  Expression made = kEmpty;
  for (size_t i = bytes.size(); i-- > 0;) {
    const auto byte = static_cast<uint8_t>(bytes[i]);
    ByteWords one{};
    one[byte / 32] = 1u << byte % 32;
    made = concat(this->bytes(one), made);
  }
  return made;
}

Expression ExpressionSet::utf8_range(char32_t first, char32_t last) {
  std::string low, high;
  append_utf8(first, low);
  append_utf8(last, high);
  // The texts from low to high, both of as many bytes, from the byte `at` on.
  const auto between = [this](auto&& self, std::string_view from,
                              std::string_view to) -> Expression {
    const auto a = static_cast<uint8_t>(from[0]);
    const auto b = static_cast<uint8_t>(to[0]);
    if (from.size() == 1) return bytes(byte_range(a, b));
    const std::string lowest(from.size() - 1, '\x80'), highest(from.size() - 1, '\xBF');
    const auto lead = [&](uint32_t byte, std::string_view rest_from, std::string_view rest_to) {
      const auto one = static_cast<uint8_t>(byte);
      return concat(bytes(byte_range(one, one)), self(self, rest_from, rest_to));
    };
    const std::string_view rest_from = from.substr(1), rest_to = to.substr(1);
    if (a == b) return lead(a, rest_from, rest_to);
    std::vector<Expression> parts;
    const bool whole_a = rest_from == lowest, whole_b = rest_to == highest;
    if (!whole_a) parts.push_back(lead(a, rest_from, highest));
    if (!whole_b) parts.push_back(lead(b, lowest, rest_to));
    const uint32_t middle_a = a + (whole_a ? 0u : 1u), middle_b = b - (whole_b ? 0u : 1u);
    if (middle_a <= middle_b) {
      parts.push_back(
          concat(bytes(byte_range(static_cast<uint8_t>(middle_a), static_cast<uint8_t>(middle_b))),
                 self(self, lowest, highest)));
    }
    return any_of(parts);
  };
  return between(between, low, high);
}

Expression ExpressionSet::code_points(std::span<const CodePointRange> ranges) {
  // Within each of these, characters have as many bytes.
  static constexpr CodePointRange kLengths[] = {
      {0, 0x7F}, {0x80, 0x7FF}, {0x800, 0xD7FF}, {0xE000, 0xFFFF}, {0x10000, 0x10FFFF}};
  std::vector<Expression> parts;
  for (const CodePointRange& range : ranges) {
    for (const CodePointRange& length : kLengths) {
      const char32_t first = std::max(range.first, length.first);
      const char32_t last = std::min(range.last, length.last);
      if (first <= last) parts.push_back(utf8_range(first, last));
    }
  }
  return any_of(parts);
}

Expression ExpressionSet::character() { return code_points({{{0, 0x10FFFF}}}); }

ExpressionSet::Head ExpressionSet::head_of(Expression e) const {
  const bool sequence = is(e, Kind::kConcat);
  const Expression first = sequence ? Expression{nodes_[index(e)][1]} : e;
  const Expression rest = sequence ? Expression{nodes_[index(e)][2]} : kEmpty;
  if (!is(first, Kind::kRepeat)) return {.body = kNothing, .rest = e, .min = 0, .max = 0};
  const std::span<const uint32_t> words = nodes_[index(first)];
  return {.body = Expression{words[1]}, .rest = rest, .min = words[2], .max = words[3]};
}

std::vector<Expression> ExpressionSet::conditions_of(Expression e) const {
  if (!is(e, Kind::kAll)) return {e};
  std::vector<Expression> conditions;
  for (const uint32_t word : nodes_[index(e)].subspan(1)) conditions.push_back(Expression{word});
  return conditions;
}

std::optional<uint32_t> ExpressionSet::longest_excluded(Expression e) const {
  if (!is(e, Kind::kNot)) return std::nullopt;
  const uint32_t longest = facts_[nodes_[index(e)][1]].max_bytes;
  return longest == kUnbounded ? std::nullopt : std::optional(longest);
}

/// `part` is no sequence.
Expression ExpressionSet::prepend(Expression part, Expression to) {
  const Head a = head_of(part), b = head_of(to);
  const uint64_t min = uint64_t{a.min} + b.min;
  if (a.body != kNothing && a.body == b.body && min < kUnbounded) {  // x{1,2}x{3,4} = x{4,6}
    return concat(repeat(a.body, static_cast<uint32_t>(min), add_counts(a.max, b.max)), b.rest);
  }
  return make({{static_cast<uint32_t>(Kind::kConcat), index(part), index(to)}});
}

Expression ExpressionSet::concat(Expression first, Expression second) {
  if (first == kNothing || second == kNothing) return kNothing;
  if (first == kEmpty) return second;
  if (second == kEmpty || (first == kEverything && second == kEverything)) return first;
  if (!is(first, Kind::kConcat)) return prepend(first, second);
  std::vector<Expression> parts;  // sequences nest to the right
  while (is(first, Kind::kConcat)) {
    fuel_.spend(1);
    parts.push_back(Expression{nodes_[index(first)][1]});
    first = Expression{nodes_[index(first)][2]};
  }
  parts.push_back(first);
  for (; !parts.empty(); parts.pop_back()) second = prepend(parts.back(), second);
  return second;
}

Expression ExpressionSet::concat(std::span<const Expression> parts) {
  Expression made = kEmpty;
  for (size_t i = parts.size(); i-- > 0;) made = concat(parts[i], made);
  return made;
}

Expression ExpressionSet::repeat(Expression e, uint32_t min, uint32_t max) {
  if (min > max || (e == kNothing && min > 0)) return kNothing;
  if (max == 0 || e == kNothing || e == kEmpty) return kEmpty;
  if (e == kEverything) return kEverything;
  if (nullable(e)) min = 0;
  if (is(e, Kind::kRepeat)) {
    const std::span<const uint32_t> inner = nodes_[index(e)];
    const bool unbounded = inner[3] == kUnbounded || max == kUnbounded;
    const uint64_t product = unbounded ? kUnbounded : uint64_t{inner[3]} * max;
    if (inner[2] <= 1 && (unbounded || product < kUnbounded)) {  // no number between is left out
      return repeat(Expression{inner[1]}, inner[2] * min, static_cast<uint32_t>(product));
    }
  }
  if (min == 1 && max == 1) return e;
  return make({{static_cast<uint32_t>(Kind::kRepeat), index(e), min, max}});
}

Expression ExpressionSet::complement(Expression e) {
  if (e == kNothing) return kEverything;
  if (e == kEverything) return kNothing;
  if (is(e, Kind::kNot)) return Expression{nodes_[index(e)][1]};
  return make({{static_cast<uint32_t>(Kind::kNot), index(e)}});
}

/// x{1,3}y | x{4,6}y = x{1,6}y, and y | x{1,3}y = x{0,3}y: without this `.*a.{0,1000}` has a state for every set of
/// places at which an a was. `alternatives` is sorted, before and after.
void ExpressionSet::merge_repetitions(std::vector<Expression>& alternatives) {
  std::vector<Head> heads;
  for (const Expression e : alternatives) {
    const Head head = head_of(e);
    if (head.body != kNothing) heads.push_back(head);
  }
  if (heads.empty() || alternatives.size() < 2) return;
  std::erase_if(alternatives, [&](Expression e) { return head_of(e).body != kNothing; });
  std::ranges::sort(heads, [](const Head& a, const Head& b) {
    return std::tie(a.body, a.rest, a.min, a.max) < std::tie(b.body, b.rest, b.min, b.max);
  });
  for (size_t i = 0; i < heads.size();) {
    Head merged = heads[i++];
    for (; i < heads.size() && heads[i].body == merged.body && heads[i].rest == merged.rest &&
           heads[i].min <= add_counts(merged.max, 1);
         ++i) {
      merged.max = std::max(merged.max, heads[i].max);
    }
    const auto rest = std::ranges::lower_bound(alternatives, merged.rest);
    if (merged.min <= 1 && rest != alternatives.end() && *rest == merged.rest) {
      merged.min = 0;
      alternatives.erase(rest);
    }
    const Expression e = concat(repeat(merged.body, merged.min, merged.max), merged.rest);
    alternatives.insert(std::ranges::lower_bound(alternatives, e), e);
  }
  alternatives.erase(std::unique(alternatives.begin(), alternatives.end()), alternatives.end());
}

/// Union or intersection: flat, sorted, each operand once, one set of bytes.
Expression ExpressionSet::join(Kind operation, std::span<const Expression> operands) {
  const bool any = operation == Kind::kAny;
  const Expression neutral = any ? kNothing : kEverything;
  const Expression absorbing = any ? kEverything : kNothing;
  std::vector<Expression> flat;
  ByteWords bytes{};
  bool has_bytes = false;
  const auto add = [&](Expression e) {
    if (e == neutral) return;
    if (is(e, Kind::kBytes)) {
      const ByteWords& more = facts_[index(e)].first;
      for (size_t i = 0; i < bytes.size(); ++i) {
        bytes[i] = !has_bytes ? more[i] : any ? bytes[i] | more[i] : bytes[i] & more[i];
      }
      has_bytes = true;
    } else {
      flat.push_back(e);
    }
  };
  fuel_.spend(operands.size());
  for (const Expression e : operands) {
    if (!is(e, operation)) {
      add(e);
      continue;
    }
    fuel_.spend(nodes_[index(e)].size());
    for (const uint32_t word : nodes_[index(e)].subspan(1)) add(Expression{word});
  }
  if (has_bytes) flat.push_back(this->bytes(bytes));
  std::ranges::sort(flat);
  flat.erase(std::unique(flat.begin(), flat.end()), flat.end());
  const auto has = [&](Expression e) { return std::ranges::binary_search(flat, e); };
  if (has(absorbing)) return absorbing;
  if (std::ranges::any_of(flat,
                          [&](Expression e) { return is(e, Kind::kNot) && has(complement(e)); })) {
    return absorbing;
  }
  if (has(kEmpty)) {
    if (!any)
      return std::ranges::all_of(flat, [&](Expression e) { return nullable(e); }) ? kEmpty
                                                                                  : kNothing;
    const bool implied =
        std::ranges::any_of(flat, [&](Expression e) { return e != kEmpty && nullable(e); });
    if (implied) std::erase(flat, kEmpty);
  }
  if (any) merge_repetitions(flat);
  if (flat.empty()) return neutral;
  if (flat.size() == 1) return flat[0];
  std::vector<uint32_t> words{static_cast<uint32_t>(operation)};
  for (const Expression e : flat) words.push_back(index(e));
  return make(words);
}

Expression ExpressionSet::either(Expression a, Expression b) { return join(Kind::kAny, {{a, b}}); }
Expression ExpressionSet::any_of(std::span<const Expression> alternatives) {
  return join(Kind::kAny, alternatives);
}
Expression ExpressionSet::both(Expression a, Expression b) { return join(Kind::kAll, {{a, b}}); }
Expression ExpressionSet::all_of(std::span<const Expression> conditions) {
  return join(Kind::kAll, conditions);
}

bool ExpressionSet::nullable(Expression e) const { return facts_[index(e)].nullable; }

Expression ExpressionSet::derivative(Expression e, uint8_t byte) {
  if (!may_begin_with(e, byte)) return kNothing;
  if (e == kEverything) return e;
  if (is(e, Kind::kBytes)) return kEmpty;
  if (is(first_of(e), Kind::kBytes)) return Expression{nodes_[index(e)][2]};  // of a literal
  const uint64_t key = uint64_t{index(e)} << 8 | classes_[byte];
  if (const uint32_t* known = derivatives_.find(key)) return Expression{*known};
  fuel_.spend(8);  // what the entry takes
  const Expression made = derive(e, byte);
  derivatives_.insert(key, index(made));
  return made;
}

Expression ExpressionSet::derive(Expression e, uint8_t byte) {
  // Copied, because making nodes moves them.
  const std::span<const uint32_t> node = nodes_[index(e)];
  switch (Kind{node[0]}) {
    case Kind::kBytes:
      break;
    case Kind::kConcat: {
      std::vector<Expression> alternatives;
      Expression at = e;
      while (is(at, Kind::kConcat)) {
        const Expression first{nodes_[index(at)][1]}, rest{nodes_[index(at)][2]};
        fuel_.spend(1);
        alternatives.push_back(concat(derivative(first, byte), rest));
        at = rest;
        if (!nullable(first)) return any_of(alternatives);
      }
      alternatives.push_back(derivative(at, byte));
      return any_of(alternatives);
    }
    case Kind::kRepeat: {
      const Expression body{node[1]};
      const uint32_t min = node[2], max = node[3];
      return concat(derivative(body, byte), repeat(body, min == 0 ? 0 : min - 1, one_less(max)));
    }
    case Kind::kNot:
      return complement(derivative(Expression{node[1]}, byte));
    case Kind::kAny:
    case Kind::kAll: {
      const Kind operation{node[0]};
      fuel_.spend(node.size());
      std::vector<Expression> operands;
      for (const uint32_t word : node.subspan(1)) operands.push_back(Expression{word});
      for (Expression& operand : operands) operand = derivative(operand, byte);
      return join(operation, operands);
    }
  }
  return kNothing;
}

bool ExpressionSet::matches(Expression e, std::string_view text) {
  for (const char c : text) e = derivative(e, static_cast<uint8_t>(c));
  return nullable(e);
}

bool ExpressionSet::is_nothing(Expression e) {
  const auto known = [this](Expression at) -> std::optional<bool> {
    if (facts_[index(at)].matches_something) return false;
    if (at == kNothing) return true;
    const auto found = nothings_.find(at);
    return found == nothings_.end() ? std::nullopt : std::optional(found->second);
  };
  if (const std::optional<bool> answer = known(e)) return *answer;
  // Depth first to an expression that matches something; what leads there does too.
  struct Step {
    Expression at;
    size_t next_class;
  };
  std::vector<Step> path{{e, 0}};
  std::unordered_map<Expression, bool> visited{{e, true}};
  while (!path.empty()) {
    Step& step = path.back();
    if (step.next_class == representatives_.size()) {
      path.pop_back();
      continue;
    }
    fuel_.spend(4);
    const Expression next = derivative(step.at, representatives_[step.next_class++]);
    const std::optional<bool> answer = known(next);
    if (answer == false) {
      for (const Step& before : path) nothings_[before.at] = false;
      return false;
    }
    if (!answer && visited.emplace(next, true).second) path.push_back({next, 0});
  }
  nothings_.merge(visited);
  return true;
}

size_t ExpressionSet::memory_bytes() const {
  constexpr size_t kMapEntry = 48;
  return nodes_.memory_bytes() + facts_.capacity() * sizeof(Facts) + derivatives_.memory_bytes() +
         kMapEntry * nothings_.size();
}

}  // namespace pumice
