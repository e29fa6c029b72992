#include "constraints/schema_model.hpp"

#include <algorithm>
#include <iterator>

namespace pumice::schema {
namespace {

/// Of one intersection of shapes, in fuel: some two microseconds.
constexpr size_t kShapeCost = 200;
/// References, allOf and their like within each other: they are read recursively.
constexpr int kMaxDepth = 300;
/// How deep a proof that nothing can be so looks: discriminators stand a level or two down.
constexpr int kProofDepth = 5;

bool is_anything(const Json& schema) {
  return schema == true || (schema.is_object() && schema.empty());
}

/// A reference alone, or with nothing but words about it.
bool is_plain_reference(const Json& schema) {
  if (!schema.is_object() || !schema.contains("$ref")) return false;
  const auto& members = schema.items();
  return std::all_of(members.begin(), members.end(), [](const auto& member) {
    return member.key() == "$ref" || member.key() == "description" || member.key() == "title";
  });
}

/// Equal as JSON Schema means it: numbers by value, objects without order.
bool equal(const Json& a, const Json& b) {
  if (a.is_object() && b.is_object()) {
    return a.size() == b.size() &&
           std::all_of(a.items().begin(), a.items().end(), [&](const auto& member) {
             const auto other = b.find(member.key());
             return other != b.end() && equal(member.value(), *other);
           });
  }
  if (a.is_array() && b.is_array())
    return std::equal(a.begin(), a.end(), b.begin(), b.end(), equal);
  return a == b;
}

bool is_among(const std::vector<const Json*>& values, const Json& value) {
  return std::any_of(values.begin(), values.end(),
                     [&](const Json* other) { return equal(*other, value); });
}

template <typename T>
void append(std::vector<T>& to, const std::vector<T>& from) {
  to.insert(to.end(), from.begin(), from.end());
}

void take_tighter(std::optional<NumberShape::Bound>& bound,
                  const std::optional<NumberShape::Bound>& other,
                  bool (*tighter)(const Decimal&, const Decimal&)) {
  if (!other) return;
  if (!bound || tighter(other->value, bound->value)) {
    bound = other;
  } else if (bound->value == other->value) {
    bound->exclusive |= other->exclusive;
  }
}

std::optional<NumberShape> intersection(NumberShape a, const NumberShape& b) {
  a.whole &= b.whole;
  a.fractional &= b.fractional;
  take_tighter(a.low, b.low, [](const Decimal& x, const Decimal& y) { return y < x; });
  take_tighter(a.high, b.high, [](const Decimal& x, const Decimal& y) { return x < y; });
  append(a.multiples, b.multiples);
  append(a.excluded, b.excluded);
  if (!a.whole && !a.fractional) return std::nullopt;
  if (a.low && a.high) {
    if (a.high->value < a.low->value) return std::nullopt;
    if (a.high->value == a.low->value && (a.low->exclusive || a.high->exclusive))
      return std::nullopt;
  }
  return a;
}

bool is_within(const NumberShape& number, const Json& json) {
  const Decimal value = decimal_of(json);
  if (value.is_whole() ? !number.whole : !number.fractional) return false;
  if (number.low &&
      (value < number.low->value || (number.low->exclusive && value == number.low->value)))
    return false;
  if (number.high &&
      (number.high->value < value || (number.high->exclusive && value == number.high->value)))
    return false;
  if (std::find(number.excluded.begin(), number.excluded.end(), value) != number.excluded.end())
    return false;
  return std::all_of(
      number.multiples.begin(), number.multiples.end(),
      [&](const NumberShape::Multiple& m) { return is_multiple(value, m.unit) != m.denied; });
}

size_t code_points(const std::string& text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

const ObjectShape::Property* find_property(const ObjectShape& object, std::string_view name) {
  const auto found = std::find_if(object.properties.begin(), object.properties.end(),
                                  [&](const ObjectShape::Property& p) { return p.name == name; });
  return found == object.properties.end() ? nullptr : &*found;
}

}  // namespace

SchemaModel::SchemaModel(const SchemaDocument& document, SchemaTexts& texts)
    : document_(document), texts_(texts) {
  static const Json kFalse = false;
  for (Statements statements : {Statements{}, Statements{{&kFalse, false}}}) {
    const auto [at, is_new] =
        ids_.emplace(std::move(statements), static_cast<GoalId>(goals_.size()));
    goals_.push_back(&at->first);
    goal_shapes_.emplace_back();
  }
}

Error SchemaModel::fail(const Json& at, std::string_view why) const {
  return make_error(ErrorCode::kInvalidArgument, "{}: {}", document_.place(at), why);
}

std::string SchemaModel::place(GoalId id) const {
  return goals_[id]->empty() ? "#" : document_.place(*goals_[id]->front().schema);
}

GoalId SchemaModel::goal(Statements statements) {
  Statements kept;
  for (Statement statement : statements) {
    // References in a ring are found where they are expanded.
    for (int hops = 0; hops < 32 && is_plain_reference(*statement.schema); ++hops) {
      const Result<const Json*> target = document_.target(*statement.schema);
      if (!target) break;
      statement.schema = *target;
    }
    const bool is_true = is_anything(*statement.schema);
    if (is_true ? statement.denied : (*statement.schema == false && !statement.denied))
      return kNothing;
    if (is_true || *statement.schema == false) continue;
    if (std::find(kept.begin(), kept.end(), Statement{statement.schema, !statement.denied}) !=
        kept.end())
      return kNothing;
    if (std::find(kept.begin(), kept.end(), statement) == kept.end()) kept.push_back(statement);
  }
  const auto [at, is_new] = ids_.emplace(std::move(kept), static_cast<GoalId>(goals_.size()));
  if (is_new) {
    goals_.push_back(&at->first);
    goal_shapes_.emplace_back();
  }
  return at->second;
}

GoalId SchemaModel::both(GoalId a, GoalId b) {
  if (a == b || b == kAnything) return a;
  if (a == kAnything) return b;
  if (a == kNothing || b == kNothing) return kNothing;
  Statements statements = *goals_[a];
  append(statements, *goals_[b]);
  return goal(std::move(statements));
}

GoalId SchemaModel::member(const ObjectShape& object, std::string_view name) {
  if (const auto* property = find_property(object, name)) return property->goal;
  for (const ObjectShape::Others& others : object.others) {
    if (texts_.set().matches(others.names, name)) return others.goal;
  }
  return kNothing;
}

Shape SchemaModel::anything() const {
  Shape shape;
  shape.null = shape.no = shape.yes = true;
  shape.number.emplace();
  shape.string = StringShape{0, kNoLimit, texts_.all(), texts_.all()};
  shape.array.emplace();
  shape.object.emplace().others = {{texts_.all(), kAnything}};
  return shape;
}

Result<const Shapes*> SchemaModel::shapes(GoalId id) {
  if (goal_shapes_[id]) return &*goal_shapes_[id];
  Shapes all{anything()};
  for (const Statement& statement : *goals_[id]) {
    PUMICE_TRY(const Shapes* const more, expand(statement));
    if (more == nullptr) return nullptr;
    PUMICE_TRY(all, product(all, *more));
  }
  return &goal_shapes_[id].emplace(std::move(all));
}

Result<const Shapes*> SchemaModel::expand(Statement statement) {
  const auto [at, is_new] = expanded_.try_emplace(statement);
  if (!is_new) {
    if (at->second.shapes) return &*at->second.shapes;
    if (at->second.level != level_) return nullptr;
    return fail(*statement.schema, "the schema refers to itself without end");
  }
  at->second.level = level_;
  if (depth_ >= kMaxDepth) {
    return make_error(ErrorCode::kDoesNotFit, "{}: references lie too deep within each other",
                      document_.place(*statement.schema));
  }
  ++depth_;
  Result<std::optional<Shapes>> shapes = read_keywords(statement);
  --depth_;
  if (!shapes) return shapes.error();
  if (!*shapes) {
    expanded_.erase(at);
    return nullptr;
  }
  return &at->second.shapes.emplace(std::move(**shapes));
}

Result<Shapes> SchemaModel::product(const Shapes& a, const Shapes& b) {
  Shapes all;
  for (const Shape& x : a) {
    for (const Shape& y : b) {
      PUMICE_TRY(Shape both, intersection(x, y));
      const bool possible = both.null || both.no || both.yes || both.number || both.string ||
                            both.array || both.object;
      if (possible && (!both.values || !both.values->empty())) all.push_back(std::move(both));
    }
  }
  return all;
}

Result<Shape> SchemaModel::intersection(const Shape& a, const Shape& b) {
  texts_.spend(kShapeCost);
  Shape both;
  both.null = a.null && b.null;
  both.no = a.no && b.no;
  both.yes = a.yes && b.yes;
  if (a.number && b.number) both.number = schema::intersection(*a.number, *b.number);
  if (a.string && b.string) both.string = intersection(*a.string, *b.string);
  if (a.array && b.array) both.array = intersection(*a.array, *b.array);
  if (a.object && b.object) {
    PUMICE_TRY(both.object, intersection(*a.object, *b.object));
  }
  if (a.values && b.values) {
    texts_.spend(a.values->size() * b.values->size());
    both.values.emplace();
    std::copy_if(a.values->begin(), a.values->end(), std::back_inserter(*both.values),
                 [&](const Json* value) { return is_among(*b.values, *value); });
  } else {
    both.values = a.values ? a.values : b.values;
  }
  return both;
}

/// Empty only if no text at all is of both, whatever a format is taken to mean: proofs that alternatives of oneOf have
/// nothing in common rest on it.
std::optional<StringShape> SchemaModel::intersection(const StringShape& a, const StringShape& b) {
  StringShape both{std::max(a.min_length, b.min_length), std::min(a.max_length, b.max_length),
                   texts_.set().both(a.text, b.text), texts_.set().both(a.most, b.most)};
  if (both.min_length > both.max_length) return std::nullopt;
  const bool is_new = both.most != a.most && both.most != b.most;
  if (is_new && texts_.set().is_nothing(both.most)) return std::nullopt;
  return both;
}

std::optional<ArrayShape> SchemaModel::intersection(const ArrayShape& a, const ArrayShape& b) {
  ArrayShape both = a;
  both.prefix.resize(std::max(a.prefix.size(), b.prefix.size()));
  for (size_t i = 0; i < both.prefix.size(); ++i) {
    both.prefix[i] = this->both(i < a.prefix.size() ? a.prefix[i] : a.rest,
                                i < b.prefix.size() ? b.prefix[i] : b.rest);
  }
  both.rest = this->both(a.rest, b.rest);
  both.min_items = std::max(a.min_items, b.min_items);
  both.max_items = std::min(a.max_items, b.max_items);
  // Items that cannot be end the array.
  const auto impossible = std::find(both.prefix.begin(), both.prefix.end(), kNothing);
  if (impossible != both.prefix.end() || both.rest == kNothing) {
    both.max_items =
        std::min(both.max_items, static_cast<size_t>(impossible - both.prefix.begin()));
  }
  append(both.contains, b.contains);
  append(both.excluded, b.excluded);
  both.unique |= b.unique;
  both.repeated |= b.repeated;
  if (both.min_items > both.max_items || (both.unique && both.repeated)) return std::nullopt;
  return both;
}

Result<std::optional<ObjectShape>> SchemaModel::intersection(const ObjectShape& a,
                                                             const ObjectShape& b) {
  texts_.spend(a.properties.size() + b.properties.size() + a.others.size() * b.others.size());
  ObjectShape both;
  for (const ObjectShape::Property& p : a.properties) {
    const auto* const other = find_property(b, p.name);
    const GoalId goal = this->both(p.goal, other != nullptr ? other->goal : member(b, p.name));
    both.properties.push_back({p.name, goal, p.required || (other != nullptr && other->required)});
  }
  for (const ObjectShape::Property& p : b.properties) {
    if (find_property(a, p.name) != nullptr) continue;
    both.properties.push_back({p.name, this->both(member(a, p.name), p.goal), p.required});
  }
  for (const ObjectShape::Others& x : a.others) {
    for (const ObjectShape::Others& y : b.others) {
      const Expression names = texts_.set().both(x.names, y.names);
      const GoalId goal = this->both(x.goal, y.goal);
      if (goal != kNothing && !texts_.set().is_nothing(names)) both.others.push_back({names, goal});
    }
  }
  both.min_members = std::max(a.min_members, b.min_members);
  both.max_members = std::min(a.max_members, b.max_members);
  both.exists = a.exists;
  append(both.exists, b.exists);
  both.excluded = a.excluded;
  append(both.excluded, b.excluded);
  const bool impossible =
      both.min_members > both.max_members ||
      std::any_of(both.properties.begin(), both.properties.end(),
                  [](const ObjectShape::Property& p) { return p.required && p.goal == kNothing; });
  if (impossible) return std::optional<ObjectShape>{};
  return std::optional<ObjectShape>{std::move(both)};
}

Result<bool> SchemaModel::provably_nothing(GoalId id, int depth) {
  if (id == kNothing) return true;
  if (id == kAnything || depth > kProofDepth) return false;
  if (const auto known = nothing_.find(id); known != nothing_.end()) return known->second;
  texts_.spend(1);
  nothing_[id] = false;  // what a proof in a ring may assume
  ++level_;
  Result<const Shapes*> alternatives = shapes(id);
  --level_;
  if (!alternatives) return alternatives.error();
  if (*alternatives == nullptr) {
    nothing_.erase(id);
    return false;
  }
  for (const Shape& shape : **alternatives) {
    PUMICE_TRY(const bool impossible, nothing(shape, depth));
    if (!impossible) return false;
  }
  return nothing_[id] = true;
}

Result<bool> SchemaModel::nothing(const Shape& shape, int depth) {
  if (shape.values) {
    for (const Json* value : *shape.values) {
      ++level_;
      const Result<bool> taken = conforms(shape, *value);
      --level_;
      if (!taken) return taken.error();
      if (*taken) return false;
    }
    return true;
  }
  if (shape.null || shape.no || shape.yes || shape.number || shape.string) return false;
  if (shape.array) {
    bool possible = true;
    for (size_t i = 0; i < std::min(shape.array->prefix.size(), shape.array->min_items) && possible;
         ++i) {
      PUMICE_TRY(const bool impossible, provably_nothing(shape.array->prefix[i], depth + 1));
      possible = !impossible;
    }
    if (possible) return false;
  }
  if (!shape.object) return true;
  for (const ObjectShape::Property& p : shape.object->properties) {
    if (!p.required) continue;
    PUMICE_TRY(const bool impossible, provably_nothing(p.goal, depth + 1));
    if (impossible) return true;
  }
  return false;
}

Result<bool> SchemaModel::accepts(GoalId id, const Json& value) {
  PUMICE_TRY(const Shapes* const alternatives, shapes(id));
  // Within a proof about a schema that is being read: what is not known may be.
  if (alternatives == nullptr) return true;
  for (const Shape& shape : *alternatives) {
    if (shape.values) texts_.spend(shape.values->size());
    if (shape.values && !is_among(*shape.values, value)) continue;
    PUMICE_TRY(const bool taken, conforms(shape, value));
    if (taken) return true;
  }
  return false;
}

Result<bool> SchemaModel::conforms(const Shape& shape, const Json& value) {
  texts_.spend(1);
  switch (value.type()) {
    case Json::value_t::null:
      return shape.null;
    case Json::value_t::boolean:
      return value.get<bool>() ? shape.yes : shape.no;
    case Json::value_t::string: {
      if (!shape.string) return false;
      const auto& text = value.get_ref<const std::string&>();
      const size_t length = code_points(text);
      return length >= shape.string->min_length && length <= shape.string->max_length &&
             texts_.set().matches(level_ > 0 ? shape.string->most : shape.string->text, text);
    }
    case Json::value_t::array:
      return shape.array ? accepts(*shape.array, value) : Result<bool>(false);
    case Json::value_t::object:
      return shape.object ? accepts(*shape.object, value) : Result<bool>(false);
    default:
      return shape.number && is_within(*shape.number, value);
  }
}

Result<bool> SchemaModel::accepts(const ArrayShape& array, const Json& value) {
  if (value.size() < array.min_items || value.size() > array.max_items ||
      is_among(array.excluded, value))
    return false;
  for (size_t i = 0; i < value.size(); ++i) {
    PUMICE_TRY(const bool taken,
               accepts(i < array.prefix.size() ? array.prefix[i] : array.rest, value[i]));
    if (!taken) return false;
  }
  for (const ArrayShape::Contains& contains : array.contains) {
    size_t n = 0;
    for (size_t i = contains.from; i < value.size(); ++i) {
      PUMICE_TRY(const bool taken, accepts(contains.goal, value[i]));
      n += taken ? 1 : 0;
    }
    if (n < contains.min) return false;
  }
  if (!array.unique && !array.repeated) return true;
  texts_.spend(value.size() * value.size());
  bool repeats = false;
  for (size_t i = 0; i < value.size(); ++i) {
    repeats |= std::any_of(value.begin(), value.begin() + static_cast<std::ptrdiff_t>(i),
                           [&](const Json& before) { return equal(before, value[i]); });
  }
  return array.repeated == repeats;
}

Result<bool> SchemaModel::accepts(const ObjectShape& object, const Json& value) {
  if (value.size() < object.min_members || value.size() > object.max_members ||
      is_among(object.excluded, value))
    return false;
  for (const ObjectShape::Property& p : object.properties) {
    if (p.required && !value.contains(p.name)) return false;
  }
  for (const auto& [name, inner] : value.items()) {
    PUMICE_TRY(const bool taken, accepts(member(object, name), inner));
    if (!taken) return false;
  }
  for (const ObjectShape::Others& exists : object.exists) {
    bool found = false;
    for (const auto& [name, inner] : value.items()) {
      if (found || !texts_.set().matches(exists.names, name)) continue;
      PUMICE_TRY(found, accepts(exists.goal, inner));
    }
    if (!found) return false;
  }
  return true;
}

}  // namespace pumice::schema
