#include "constraints/json_schema.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "constraints/schema_model.hpp"
#include "constraints/schema_numbers.hpp"

namespace pumice {
namespace schema {
namespace {

/// Counts of members and items that have a symbol for each number.
constexpr size_t kMaxCounted = 256;
/// Of an enumeration under uniqueItems: there is a symbol for each set of them.
constexpr size_t kMaxUniqueValues = 8;

/// Makes the symbols of goals, each once; a goal's symbol may be used before it is defined.
class SchemaGrammar {
 public:
  SchemaGrammar(GrammarBuilder& grammar, const SchemaDocument& document)
      : grammar_(grammar),
        set_(grammar.expressions()),
        texts_(set_),
        model_(document, texts_),
        space_(white_space()) {}

  Result<Symbol> make(const Json& schema) {
    const Symbol root = symbol(model_.stated(schema));
    while (!open_.empty()) {
      const GoalId goal = open_.back();
      open_.pop_back();
      PUMICE_TRY(const Symbol body, values_of(goal));
      grammar_.define(symbols_.at(goal), body);
    }
    return root;
  }

 private:
  Expression white_space();
  /// `mark` with white space before or behind it.
  Symbol opening(std::string_view mark) {
    return grammar_.lexeme(set_.concat(set_.literal(mark), space_));
  }
  Symbol closing(std::string_view mark) {
    return grammar_.lexeme(set_.concat(space_, set_.literal(mark)));
  }
  Symbol comma() { return opening(","); }
  Symbol nothing() { return grammar_.choice({}); }
  Symbol key(Expression name) {
    return grammar_.lexeme(set_.concat(std::array{name, set_.literal(":"), space_}));
  }
  /// `item` from `min` to `max` times with commas between, and before the first if something is there already.
  Symbol list(Symbol item, size_t min, size_t max, bool after_other);

  Symbol symbol(GoalId goal);
  Result<Symbol> values_of(GoalId goal);
  Result<Symbol> values_of(GoalId goal, const Shape& shape);
  Symbol constant(const Json& value);
  Symbol plain(const Shape& shape);

  Result<Symbol> array(GoalId goal, const ArrayShape& array);
  Result<Symbol> items_with(GoalId goal, const ArrayShape& array);
  Result<Symbol> unique_items(GoalId goal, const ArrayShape& array);
  Result<Symbol> object(GoalId goal, const ObjectShape& object);
  Symbol other_members(const ObjectShape& object, size_t n_before);
  Symbol other_member(const ObjectShape& object);

  Error fail(GoalId goal, std::string_view why) const {
    return make_error(ErrorCode::kInvalidArgument, "{}: {}", model_.place(goal), why);
  }

  GrammarBuilder& grammar_;
  ExpressionSet& set_;
  SchemaTexts texts_;
  SchemaModel model_;
  Expression space_;
  std::map<GoalId, Symbol> symbols_;
  std::vector<GoalId> open_;
};

Expression SchemaGrammar::white_space() {
  ByteSet blanks;
  blanks.set(' ').set('\t');
  const Expression line =
      set_.concat(std::array{set_.optional(set_.literal("\r")), set_.literal("\n"),
                             set_.repeat(set_.bytes(blanks), 0, kMaxIndent)});
  return set_.optional(set_.either(set_.literal(" "), line));
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
  if (shape.null) texts.push_back(set_.literal("null"));
  if (shape.no) texts.push_back(set_.literal("false"));
  if (shape.yes) texts.push_back(set_.literal("true"));
  if (shape.string)
    texts.push_back(
        texts_.quoted(shape.string->text, shape.string->min_length, shape.string->max_length));
  return grammar_.lexeme(set_.any_of(texts));
}

Symbol SchemaGrammar::constant(const Json& value) {
  const bool is_object = value.is_object();
  if (value.is_number_float() && decimal_of(value).is_whole() &&
      decimal_of(value).point <= kMaxDigits) {
    return grammar_.literal(decimal_of(value).text());  // 1.0 is no integer for draft 4
  }
  if (!is_object && !value.is_array()) return grammar_.literal(value.dump());
  std::vector<Symbol> parts{opening(is_object ? "{" : "[")};
  for (const auto& [name, inner] : value.items()) {
    if (parts.size() > 1) parts.push_back(comma());
    if (is_object) parts.push_back(key(set_.literal(SchemaTexts::quoted(name))));
    parts.push_back(constant(inner));
  }
  parts.push_back(closing(is_object ? "}" : "]"));
  return grammar_.sequence(parts);
}

Symbol SchemaGrammar::list(Symbol item, size_t min, size_t max, bool after_other) {
  if (min > max) return nothing();
  if (max == 0) return grammar_.empty();
  const auto count = [](size_t n) { return n == kNoLimit ? kUnbounded : static_cast<uint32_t>(n); };
  const Symbol next = grammar_.sequence({comma(), item});
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
  Symbol found =
      list(any, left(array.min_items, n_first), left(array.max_items, n_first), n_first > 0);
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
      const Symbol then = list(any, left(min, before + 1), left(max, before + 1), true);
      const bool is_first = before == 0 && n_first == 0;
      if (is_first) ways.push_back(grammar_.sequence({it, then}));
      if (is_first && !is_last) continue;
      const Symbol others =
          list(any, is_first ? 1 : before, is_last ? kNoLimit : before, n_first > 0);
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

Symbol SchemaGrammar::other_member(const ObjectShape& object) {
  std::vector<Expression> listed;
  for (const ObjectShape::Property& p : object.properties) listed.push_back(set_.literal(p.name));
  const Expression known = set_.any_of(listed);
  std::vector<Symbol> ways;
  for (const ObjectShape::Others& others : object.others) {
    const Expression names = listed.empty() ? others.names : texts_.without(others.names, known);
    ways.push_back(grammar_.sequence({key(texts_.quoted(names)), symbol(others.goal)}));
  }
  return grammar_.choice(ways);
}

/// Members from the last property to the first, each with what may follow, apart by how many there were before: by their
/// number where the schema counts them, else by whether there was one (and a comma is due).
Result<Symbol> SchemaGrammar::object(GoalId goal, const ObjectShape& object) {
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
  const Symbol other = other_member(object);
  std::vector<Symbol> after;  // what may follow after so many members
  for (size_t n = 0; n <= n_counts; ++n) {
    const bool is_counted = object.max_members != kNoLimit;
    const size_t min = object.min_members > n ? object.min_members - n : 0;
    const size_t max = object.others.empty() ? 0
                       : is_counted          ? object.max_members - std::min(n, object.max_members)
                                             : kNoLimit;
    // Names outside the list may repeat: no more than one of them counts.
    after.push_back(min > 1 ? nothing() : list(other, min, max, n > 0));
  }
  for (size_t i = n_listed; i-- > 0;) {
    const ObjectShape::Property& p = object.properties[i];
    const Symbol name = key(set_.literal(SchemaTexts::quoted(p.name)));
    const Symbol value = symbol(p.goal);
    std::vector<Symbol> before;
    for (size_t n = 0; n <= std::min(n_counts, i); ++n) {
      std::vector<Symbol> ways;
      const bool has_room = n < object.max_members && p.goal != kNothing;
      const Symbol then = after[std::min(n + 1, n_counts)];
      if (has_room && n == 0) ways.push_back(grammar_.sequence({name, value, then}));
      if (has_room && n > 0) ways.push_back(grammar_.sequence({comma(), name, value, then}));
      if (!p.required) ways.push_back(after[n]);
      before.push_back(grammar_.choice(ways));
      if (i % 100 == 0) {  // so that symbols do not lie too deep within each other
        const Symbol named = grammar_.declare("members");
        grammar_.define(named, std::exchange(before.back(), named));
      }
    }
    after = std::move(before);
  }
  return grammar_.sequence({opening("{"), after[0], closing("}")});
}

/// Of schemas that nothing satisfies, the innermost one.
class Culprit {
 public:
  explicit Culprit(const SchemaDocument& document) : document_(document) {}

  const Json& within(const Json& schema) {
    for (const Json* const part : needed_parts(schema)) {
      if (n_left_ == 0) break;
      --n_left_;
      if (is_impossible(*part)) return within(*part);
    }
    return schema;
  }

 private:
  /// Schemas without a value of which `schema` has none either; the plain ways only.
  std::vector<const Json*> needed_parts(const Json& schema) const {
    std::vector<const Json*> parts;
    if (!schema.is_object()) return parts;
    const auto member = [](const Json& object, const std::string& name) -> const Json* {
      const auto found = object.is_object() ? object.find(name) : object.end();
      return found != object.end() ? &*found : nullptr;
    };
    const Json* const properties = member(schema, "properties");
    const Json* const required = member(schema, "required");
    if (properties != nullptr && required != nullptr && required->is_array()) {
      for (const Json& name : *required) {
        const Json* const part = name.is_string() ? member(*properties, name) : nullptr;
        if (part != nullptr) parts.push_back(part);
      }
    }
    if (const Json* const all = member(schema, "allOf"); all != nullptr && all->is_array()) {
      for (const Json& part : *all) parts.push_back(&part);
    }
    const Json* const items = member(schema, "items");
    const Json* const min_items = member(schema, "minItems");
    if (items != nullptr && min_items != nullptr && *min_items > 0) parts.push_back(items);
    if (const Json* const reference = member(schema, "$ref"); reference != nullptr) {
      const Result<const Json*> target = document_.target(schema);
      if (target.ok()) parts.push_back(*target);
    }
    return parts;
  }

  bool is_impossible(const Json& schema) const {
    const Result<bool> found = within_fuel("", [&]() -> Result<bool> {
      GrammarBuilder builder(kFuel);
      PUMICE_TRY(const Symbol root, SchemaGrammar(builder, document_).make(schema));
      PUMICE_TRY(const Grammar grammar, std::move(builder).build(root));
      return grammar.rules[grammar.start].productions.empty();
    });
    return found.ok() && *found;
  }

  static constexpr uint64_t kFuel = ExpressionSet::kDefaultFuel / 16;
  const SchemaDocument& document_;
  int n_left_ = 100;  // parts to be looked at; references may be rings
};

}  // namespace
}  // namespace schema

Result<Symbol> json_schema_symbol(GrammarBuilder& grammar, std::string_view schema) {
  PUMICE_TRY(const schema::SchemaDocument document, schema::SchemaDocument::read(schema));
  return schema::SchemaGrammar(grammar, document).make(document.root());
}

Result<Grammar> compile_json_schema(std::string_view schema) {
  return within_fuel("the JSON schema", [&]() -> Result<Grammar> {
    PUMICE_TRY(const schema::SchemaDocument document, schema::SchemaDocument::read(schema));
    GrammarBuilder builder;
    PUMICE_TRY(const Symbol root, schema::SchemaGrammar(builder, document).make(document.root()));
    PUMICE_TRY(Grammar grammar, std::move(builder).build(root));
    if (!grammar.rules[grammar.start].productions.empty()) return grammar;
    const schema::Json& culprit = schema::Culprit(document).within(document.root());
    return make_error(ErrorCode::kInvalidArgument, "{}: no value is as the schema says",
                      document.place(culprit));
  });
}

Result<Grammar> any_json_object() { return compile_json_schema(R"({"type": "object"})"); }

}  // namespace pumice
