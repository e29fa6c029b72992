#include "constraints/schema_grammar.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <optional>
#include <utility>

#include "constraints/schema_numbers.hpp"

namespace pumice::schema {
namespace {

/// Counts of members and items that have a symbol for each number.
constexpr size_t kMaxCounted = 256;
/// Of an enumeration under uniqueItems: there is a symbol for each set of them.
constexpr size_t kMaxUniqueValues = 8;
/// Of a name that stands without quotes.
constexpr uint32_t kMaxNameBytes = 128;

bool is_bare_name(std::string_view name) {
  const auto fits = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  };
  return !name.empty() && name.size() <= kMaxNameBytes && std::ranges::all_of(name, fits);
}

}  // namespace

SchemaGrammar::SchemaGrammar(GrammarBuilder& grammar, const SchemaDocument& document,
                             ValueWriting writing)
    : grammar_(grammar),
      writing_(std::move(writing)),
      set_(grammar.expressions()),
      texts_(set_),
      model_(document, texts_),
      space_(white_space()) {}

Result<Symbol> SchemaGrammar::make(const Json& schema) {
  const Symbol root = symbol(model_.stated(schema));
  PUMICE_TRY_STATUS(define_open());
  return root;
}

Status SchemaGrammar::define_open() {
  while (!open_.empty()) {
    const GoalId goal = open_.back();
    open_.pop_back();
    PUMICE_TRY(const Symbol body, values_of(goal));
    grammar_.define(symbols_.at(goal), body);
  }
  return {};
}

Expression SchemaGrammar::white_space() {
  ByteSet blanks;
  blanks.set(' ').set('\t');
  const Expression line =
      set_.concat(std::array{set_.optional(set_.literal("\r")), set_.literal("\n"),
                             set_.repeat(set_.bytes(blanks), 0, kMaxIndent)});
  return set_.optional(set_.either(set_.literal(" "), line));
}

/// As the writing has it: a name of a member and what stands before its value.
Symbol SchemaGrammar::key(std::string_view name) {
  const std::string text(name);
  const Expression colon = set_.concat(set_.literal(":"), space_);
  if (!writing_.quote) {
    return grammar_.lexeme(set_.concat(avoiding(set_.literal(SchemaTexts::quoted(text))), colon));
  }
  const Symbol written = is_bare_name(name) ? grammar_.literal(name) : text_constant(text);
  return grammar_.sequence({written, grammar_.lexeme(colon)});
}

Symbol SchemaGrammar::key_of(Expression names) {
  const auto with_colon = [this](Expression written) {
    return grammar_.lexeme(set_.concat(std::array{written, set_.literal(":"), space_}));
  };
  if (!writing_.quote) return with_colon(avoiding(texts_.quoted(names)));
  ByteSet bytes;
  for (unsigned byte = 0; byte < 128; ++byte) {
    const char c = static_cast<char>(byte);
    if (is_bare_name({&c, 1})) bytes.set(byte);
  }
  return with_colon(set_.both(names, set_.repeat(set_.bytes(bytes), 1, kMaxNameBytes)));
}

Expression SchemaGrammar::has(std::string_view text) {
  return set_.concat(std::array{set_.everything(), set_.literal(text), set_.everything()});
}

Expression SchemaGrammar::avoiding(Expression texts) {
  return writing_.avoid.empty() ? texts : texts_.without(texts, has(writing_.avoid));
}

std::string_view SchemaGrammar::word(bool value) const {
  if (writing_.is_python) return value ? "True" : "False";
  return value ? "true" : "false";
}

/// Between the writing's own quotes, as it is.
Symbol SchemaGrammar::text(const StringShape& shape) {
  const Expression limited = texts_.limited(shape.text, shape.min_length, shape.max_length);
  return grammar_.sequence({*writing_.quote, grammar_.lexeme(avoiding(limited)), *writing_.quote});
}

Symbol SchemaGrammar::text_constant(const std::string& text) {
  if (!writing_.quote) return grammar_.lexeme(avoiding(set_.literal(SchemaTexts::quoted(text))));
  return grammar_.sequence(
      {*writing_.quote, grammar_.lexeme(avoiding(set_.literal(text))), *writing_.quote});
}

Symbol SchemaGrammar::symbol(GoalId goal) {
  const auto [at, is_new] = symbols_.try_emplace(goal, Symbol{});
  if (is_new) {
    at->second = grammar_.declare("a value");
    open_.push_back(goal);
  }
  return at->second;
}

Result<Symbol> SchemaGrammar::values_of(GoalId goal) {
  PUMICE_TRY(const Shapes* const shapes, model_.shapes(goal));
  PUMICE_CHECK(shapes != nullptr, "a goal is read within another");
  std::vector<Symbol> ways;
  for (const Shape& shape : *shapes) {
    PUMICE_TRY(const Symbol way, values_of(goal, shape));
    ways.push_back(way);
  }
  return grammar_.choice(ways);
}

Result<Symbol> SchemaGrammar::values_of(GoalId goal, const Shape& shape) {
  std::vector<Symbol> ways;
  if (shape.values) {
    for (const Json* value : *shape.values) {
      PUMICE_TRY(const bool accepted, model_.conforms(shape, *value));
      if (accepted) ways.push_back(constant(*value));
    }
    return grammar_.choice(ways);
  }
  ways.push_back(plain(shape));
  if (shape.string && writing_.quote) ways.push_back(text(*shape.string));
  if (shape.number) {
    if (const std::optional<Symbol> number = number_symbol(grammar_, *shape.number))
      ways.push_back(*number);
  }
  // What a denial says beyond a grammar's reach is left out.
  if (shape.array && !shape.array->repeated && shape.array->excluded.empty()) {
    PUMICE_TRY(const Symbol way, array(goal, *shape.array));
    ways.push_back(way);
  }
  if (shape.object && shape.object->exists.empty() && shape.object->excluded.empty()) {
    PUMICE_TRY(const Symbol way, object(goal, *shape.object));
    ways.push_back(way);
  }
  return grammar_.choice(ways);
}

Symbol SchemaGrammar::plain(const Shape& shape) {
  std::vector<Expression> texts;
  if (shape.null) texts.push_back(set_.literal(writing_.is_python ? "None" : "null"));
  if (shape.no) texts.push_back(set_.literal(word(false)));
  if (shape.yes) texts.push_back(set_.literal(word(true)));
  if (shape.string && !writing_.quote) {
    texts.push_back(avoiding(
        texts_.quoted(shape.string->text, shape.string->min_length, shape.string->max_length)));
  }
  return grammar_.lexeme(set_.any_of(texts));
}

Symbol SchemaGrammar::constant(const Json& value) {
  const bool is_object = value.is_object();
  if (value.is_number_float() && decimal_of(value).is_whole() &&
      decimal_of(value).point <= kMaxDigits) {
    return grammar_.literal(decimal_of(value).text());  // 1.0 is no integer for draft 4
  }
  if (value.is_string()) return text_constant(value.get<std::string>());
  if (value.is_boolean()) return grammar_.literal(word(value.get<bool>()));
  if (value.is_null()) return grammar_.literal(writing_.is_python ? "None" : "null");
  if (!is_object && !value.is_array()) return grammar_.literal(value.dump());
  std::vector<Symbol> parts{opening(is_object ? "{" : "[")};
  for (const auto& [name, inner] : value.items()) {
    if (parts.size() > 1) parts.push_back(comma());
    if (is_object) parts.push_back(key(name));
    parts.push_back(constant(inner));
  }
  parts.push_back(closing(is_object ? "}" : "]"));
  return grammar_.sequence(parts);
}

Symbol SchemaGrammar::list(Symbol item, Symbol between, size_t min, size_t max, bool after_other) {
  if (min > max) return nothing();
  if (max == 0) return grammar_.empty();
  const auto count = [](size_t n) { return n == kNoLimit ? kUnbounded : static_cast<uint32_t>(n); };
  const Symbol next = grammar_.sequence({between, item});
  if (after_other) return grammar_.repeat(next, count(min), count(max));
  const size_t min_more = min == 0 ? 0 : min - 1;
  const Symbol some = grammar_.sequence(
      {item, grammar_.repeat(next, count(min_more), count(max == kNoLimit ? max : max - 1))});
  return min == 0 ? grammar_.optional(some) : some;
}

// --- arrays ---

Result<Symbol> SchemaGrammar::array(GoalId goal, const ArrayShape& array) {
  if (array.min_items > array.max_items) return nothing();
  const bool is_unique = array.unique && array.max_items > 1;
  if (is_unique && !array.contains.empty())
    return fail(goal, "uniqueItems and contains together are not supported");
  PUMICE_TRY(const Symbol items, is_unique ? unique_items(goal, array) : items_with(goal, array));
  return grammar_.sequence({opening("["), items, closing("]")});
}

/// Items from the last to the first, each with what may follow; with `contains`, apart by whether that item has been.
Result<Symbol> SchemaGrammar::items_with(GoalId goal, const ArrayShape& array) {
  const bool has_contains = !array.contains.empty();
  const ArrayShape::Contains wanted = has_contains ? array.contains[0] : ArrayShape::Contains{};
  if (array.contains.size() > 1 ||
      (has_contains && (wanted.min != 1 || wanted.from > array.prefix.size()))) {
    return fail(goal, "only one `contains`, of one item or more, is supported");
  }
  const size_t n_first = std::min(array.prefix.size(), array.max_items);
  const auto left = [](size_t n, size_t taken) {
    return n == kNoLimit ? n : n > taken ? n - taken : 0;
  };
  const Symbol any = symbol(array.rest);
  Symbol found = list(any, comma(), left(array.min_items, n_first), left(array.max_items, n_first),
                      n_first > 0);
  Symbol open = found;
  if (has_contains) {
    // The wanted item after any number of others: after fewer than min - 1 of them, more must follow.
    const size_t min = left(array.min_items, n_first), max = left(array.max_items, n_first);
    const size_t n_ways = max == kNoLimit ? std::max<size_t>(min, 1) : max;
    if (n_ways > kMaxCounted) return fail(goal, "`contains` beside so many items is not supported");
    const Symbol it = symbol(model_.both(array.rest, wanted.goal));
    std::vector<Symbol> ways;
    for (size_t before = 0; before < n_ways; ++before) {
      const bool is_last = max == kNoLimit && before + 1 == n_ways;
      const Symbol then = list(any, comma(), left(min, before + 1), left(max, before + 1), true);
      const bool is_first = before == 0 && n_first == 0;
      if (is_first) ways.push_back(grammar_.sequence({it, then}));
      if (is_first && !is_last) continue;
      const Symbol others =
          list(any, comma(), is_first ? 1 : before, is_last ? kNoLimit : before, n_first > 0);
      ways.push_back(grammar_.sequence({others, comma(), it, then}));
    }
    open = grammar_.choice(ways);
  }
  for (size_t i = n_first; i-- > 0;) {
    const auto item = [&](GoalId what, Symbol then) {
      return i == 0 ? grammar_.sequence({symbol(what), then})
                    : grammar_.sequence({comma(), symbol(what), then});
    };
    const bool may_stop = i >= array.min_items;
    const Symbol next_open = item(array.prefix[i], open);
    if (!has_contains) {
      open = may_stop ? grammar_.optional(next_open) : next_open;
      continue;
    }
    const Symbol hit =
        i >= wanted.from ? item(model_.both(array.prefix[i], wanted.goal), found) : nothing();
    open = grammar_.choice({next_open, hit});
    const Symbol next_found = item(array.prefix[i], found);
    found = may_stop ? grammar_.optional(next_found) : next_found;
  }
  return open;
}

/// Items of an enumeration, each once: a symbol for each set of those that are left.
Result<Symbol> SchemaGrammar::unique_items(GoalId goal, const ArrayShape& array) {
  PUMICE_TRY(const Shapes* const shapes, model_.shapes(array.rest));
  std::vector<const Json*> values;
  bool is_listed = array.prefix.empty();
  for (const Shape& shape : *shapes) {
    is_listed = is_listed && shape.values.has_value();
    if (!is_listed) break;
    for (const Json* value : *shape.values) {
      PUMICE_TRY(const bool accepted, model_.conforms(shape, *value));
      is_listed = is_listed && !value->is_structured();
      const bool is_new =
          std::none_of(values.begin(), values.end(), [&](const Json* v) { return *v == *value; });
      if (accepted && is_new) values.push_back(value);
    }
  }
  if (!is_listed || values.size() > kMaxUniqueValues) {
    return fail(goal, "uniqueItems is supported for a few listed words or numbers, or one item");
  }
  const size_t n_sets = size_t{1} << values.size();
  std::vector<Symbol> after(n_sets, Symbol{});  // what may follow once the set's values are there
  for (size_t set = n_sets; set-- > 0;) {
    const auto n_items = static_cast<size_t>(std::popcount(set));
    std::vector<Symbol> ways;
    if (n_items >= array.min_items) ways.push_back(grammar_.empty());
    for (size_t i = 0; i < values.size() && n_items < array.max_items; ++i) {
      if ((set >> i & 1) != 0) continue;
      const Symbol next = grammar_.sequence({constant(*values[i]), after[set | size_t{1} << i]});
      ways.push_back(set == 0 ? next : grammar_.sequence({comma(), next}));
    }
    after[set] = grammar_.declare("items left");
    grammar_.define(after[set], grammar_.choice(ways));
  }
  return after[0];
}

// --- objects ---

Result<Symbol> SchemaGrammar::object(GoalId goal, const ObjectShape& object) {
  const Members json = {.open = opening("{"),
                        .between = comma(),
                        .close = closing("}"),
                        .listed = [this](const ObjectShape::Property& property) -> Result<Symbol> {
                          return grammar_.sequence({key(property.name), symbol(property.goal)});
                        },
                        .other = [this](Expression names, GoalId value) -> Result<Symbol> {
                          return grammar_.sequence({key_of(names), symbol(value)});
                        }};
  return members(goal, object, json);
}

Result<Symbol> SchemaGrammar::other_member(const ObjectShape& object, const Members& members) {
  std::vector<Expression> listed;
  for (const ObjectShape::Property& p : object.properties) listed.push_back(set_.literal(p.name));
  const Expression known = set_.any_of(listed);
  std::vector<Symbol> ways;
  for (const ObjectShape::Others& others : object.others) {
    const Expression names = listed.empty() ? others.names : texts_.without(others.names, known);
    PUMICE_TRY(const Symbol way, members.other(names, others.goal));
    ways.push_back(way);
  }
  return grammar_.choice(ways);
}

/// Members from the last property to the first, each with what may follow, apart by how many there were before: by their
/// number where the schema counts them, else by whether there was one (and a comma is due).
Result<Symbol> SchemaGrammar::members(GoalId goal, const ObjectShape& object,
                                      const Members& members) {
  const size_t n_listed = object.properties.size();
  const auto n_possible = static_cast<size_t>(
      std::count_if(object.properties.begin(), object.properties.end(),
                    [](const ObjectShape::Property& p) { return p.goal != kNothing; }));
  if (object.min_members > n_possible + 1 && !object.others.empty()) {
    return fail(goal,
                "minProperties that several names outside `properties` must meet is not supported");
  }
  const size_t most =
      object.max_members == kNoLimit ? std::max<size_t>(object.min_members, 1) : object.max_members;
  const size_t n_counts = std::min(most, n_listed + 1);
  if (n_counts > 1 && n_counts * n_listed > kMaxCounted * kMaxCounted) {
    return fail(goal, "minProperties or maxProperties beside so many properties is not supported");
  }
  PUMICE_TRY(const Symbol other, other_member(object, members));
  std::vector<Symbol> after;  // what may follow after so many members
  for (size_t n = 0; n <= n_counts; ++n) {
    const bool is_counted = object.max_members != kNoLimit;
    const size_t min = object.min_members > n ? object.min_members - n : 0;
    const size_t max = object.others.empty() ? 0
                       : is_counted          ? object.max_members - std::min(n, object.max_members)
                                             : kNoLimit;
    // Names outside the list may repeat: no more than one of them counts.
    after.push_back(min > 1 ? nothing() : list(other, members.between, min, max, n > 0));
  }
  for (size_t i = n_listed; i-- > 0;) {
    const ObjectShape::Property& p = object.properties[i];
    PUMICE_TRY(const Symbol member, members.listed(p));
    std::vector<Symbol> before;
    for (size_t n = 0; n <= std::min(n_counts, i); ++n) {
      std::vector<Symbol> ways;
      const bool has_room = n < object.max_members && p.goal != kNothing;
      const Symbol then = after[std::min(n + 1, n_counts)];
      if (has_room && n == 0) ways.push_back(grammar_.sequence({member, then}));
      if (has_room && n > 0) ways.push_back(grammar_.sequence({members.between, member, then}));
      if (!p.required) ways.push_back(after[n]);
      before.push_back(grammar_.choice(ways));
      if (i % 100 == 0) {  // so that symbols do not lie too deep within each other
        const Symbol named = grammar_.declare("members");
        grammar_.define(named, std::exchange(before.back(), named));
      }
    }
    after = std::move(before);
  }
  return grammar_.sequence({members.open, after[0], members.close});
}

}  // namespace pumice::schema
