// The keywords of JSON Schema, drafts 4 to 2020-12, as shapes: what each says, and what its denial says.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "constraints/schema_model.hpp"

namespace pumice::schema {
namespace {

/// Constrain, and are not supported.
constexpr std::array<std::string_view, 5> kRefused = {"$dynamicRef", "$recursiveRef", "extends",
                                                      "disallow", "divisibleBy"};
/// Schemas that hold of the same value: what unevaluated… would have to know about.
constexpr std::array<std::string_view, 10> kInPlace = {
    "$ref",        "allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas",
    "dependencies"};
/// Of patternProperties: each may part the names in two.
constexpr size_t kMaxPatterns = 10;

const Json kTrue = true;

}  // namespace

/// Reads one schema, or its denial: the shapes of its keywords intersected, or those of their denials joined.
class KeywordReader {
 public:
  KeywordReader(SchemaModel& model, const Json& schema, bool denied)
      : model_(model), texts_(model.texts_), schema_(schema), denied_(denied) {}

  /// Null as SchemaModel::expand.
  Result<std::optional<Shapes>> read();

 private:
  // An empty answer is null.
  using Answer = Result<std::optional<Shapes>>;
  using Handler = Answer (KeywordReader::*)(const Json& value);
  struct Keyword {
    const char* name;
    Handler read;
  };
  static const Keyword kKeywords[];

  Answer members(const Json&);
  Answer elements(const Json&);
  Answer reference(const Json& value);
  Answer all_of(const Json& value);
  Answer any_of(const Json& value);
  Answer one_of(const Json& value);
  Answer negation(const Json& value);
  Answer condition(const Json& value);
  Answer dependencies(const Json& value);
  Answer type(const Json& value);
  Answer constant(const Json& value);
  Answer enumeration(const Json& value);
  Answer required(const Json& value);
  Answer property_names(const Json& value);
  Answer contains(const Json& value);
  Answer unique_items(const Json& value);
  Answer pattern(const Json& value);
  Answer format(const Json& value);
  Answer number_format(const std::string& name);
  Answer multiple_of(const Json& value);
  template <bool kLow>
  Answer bound(const Json& value);
  template <bool kLow>
  Answer exclusive_bound(const Json& value);
  template <bool kLow>
  Answer length(const Json& value);
  template <bool kLow>
  Answer item_count(const Json& value);
  template <bool kLow>
  Answer member_count(const Json& value);

  Error fail(const Json& at, std::string_view why) const { return model_.fail(at, why); }
  const Json* find(const char* keyword) const {
    const auto found = schema_.find(keyword);
    return found == schema_.end() ? nullptr : &*found;
  }
  Status check_schema(const Json& value) const;
  Result<std::vector<const Json*>> schemas(const Json& value) const;
  Result<size_t> count(const Json& value) const;
  Result<Decimal> decimal(const Json& value) const;
  Result<std::vector<std::string>> names(const Json& value) const;

  /// What holds of a type's values: of others anything, or, for a denial, no others.
  template <typename Part>
  Answer only(std::optional<Part> Shape::*type, std::optional<Part> part) const {
    Shape shape = denied_ ? Shape{} : model_.anything();
    shape.*type = std::move(part);
    return Answer(Shapes{std::move(shape)});
  }
  Answer everything() const { return Answer(Shapes{model_.anything()}); }
  Answer nothing() const { return Answer(Shapes{}); }
  /// What a keyword that says nothing answers.
  Answer no_statement() const { return denied_ ? nothing() : everything(); }
  Answer values(std::vector<const Json*> values);
  template <bool kLow>
  Answer number_bound(const Json& value, bool exclusive);
  /// Minimum or maximum of a count in a part that `make` gives.
  template <bool kLow, typename Part>
  Answer counted(const Json& value, std::optional<Part> Shape::*type, size_t Part::*min,
                 size_t Part::*max, Part part);
  ObjectShape any_object() const { return *model_.anything().object; }
  ObjectShape object_with(const std::string& name, GoalId goal, bool required) const;
  Shape object_only(ObjectShape object) const;

  Answer expand(const Json& schema, bool denied);
  /// Both, or either, of what two answers say; null if one is.
  Answer both(const Answer& a, const Answer& b);
  static Answer either(Answer a, const Answer& b);
  Result<bool> overlap(const Shapes& a, const Shapes& b);
  Answer dependency(const std::string& name, const Answer& then);

  SchemaModel& model_;
  SchemaTexts& texts_;
  const Json& schema_;
  const bool denied_;
};

// Properties come first and `required` late, so that members are in the order in which schemas name them. A group that
// several keywords make is read once, at the first that is there.
const KeywordReader::Keyword KeywordReader::kKeywords[] = {
    {"properties", &KeywordReader::members},
    {"patternProperties", &KeywordReader::members},
    {"additionalProperties", &KeywordReader::members},
    {"unevaluatedProperties", &KeywordReader::members},
    {"prefixItems", &KeywordReader::elements},
    {"items", &KeywordReader::elements},
    {"additionalItems", &KeywordReader::elements},
    {"unevaluatedItems", &KeywordReader::elements},
    {"$ref", &KeywordReader::reference},
    {"allOf", &KeywordReader::all_of},
    {"type", &KeywordReader::type},
    {"const", &KeywordReader::constant},
    {"enum", &KeywordReader::enumeration},
    {"minimum", &KeywordReader::bound<true>},
    {"maximum", &KeywordReader::bound<false>},
    {"exclusiveMinimum", &KeywordReader::exclusive_bound<true>},
    {"exclusiveMaximum", &KeywordReader::exclusive_bound<false>},
    {"multipleOf", &KeywordReader::multiple_of},
    {"minLength", &KeywordReader::length<true>},
    {"maxLength", &KeywordReader::length<false>},
    {"pattern", &KeywordReader::pattern},
    {"format", &KeywordReader::format},
    {"minItems", &KeywordReader::item_count<true>},
    {"maxItems", &KeywordReader::item_count<false>},
    {"contains", &KeywordReader::contains},
    {"uniqueItems", &KeywordReader::unique_items},
    {"minProperties", &KeywordReader::member_count<true>},
    {"maxProperties", &KeywordReader::member_count<false>},
    {"propertyNames", &KeywordReader::property_names},
    {"anyOf", &KeywordReader::any_of},
    {"oneOf", &KeywordReader::one_of},
    {"not", &KeywordReader::negation},
    {"if", &KeywordReader::condition},
    {"dependentSchemas", &KeywordReader::dependencies},
    {"dependentRequired", &KeywordReader::dependencies},
    {"dependencies", &KeywordReader::dependencies},
    {"required", &KeywordReader::required},
};

Result<std::optional<Shapes>> SchemaModel::read_keywords(Statement statement) {
  return KeywordReader(*this, *statement.schema, statement.denied).read();
}

KeywordReader::Answer KeywordReader::read() {
  PUMICE_TRY_STATUS(check_schema(schema_));
  if (schema_.is_boolean()) return schema_.get<bool>() != denied_ ? everything() : nothing();
  for (const std::string_view keyword : kRefused) {
    if (const Json* value = find(std::string(keyword).c_str()))
      return fail(*value, "this keyword is not supported");
  }
  if (find("$ref") != nullptr && model_.document_.references_stand_alone())
    return reference(schema_);
  Answer all = no_statement();
  Handler last = nullptr;
  for (const Keyword& keyword : kKeywords) {
    const Json* const value = find(keyword.name);
    const bool in_group =
        keyword.read == &KeywordReader::members || keyword.read == &KeywordReader::elements;
    if (value == nullptr || (in_group && keyword.read == last)) continue;
    last = keyword.read;
    const Answer said = (this->*keyword.read)(*value);
    if (!said) return said.error();
    all = denied_ ? either(std::move(all), said) : both(all, said);
    if (!all || !*all) return all;
  }
  return all;
}

// --- values of keywords ---

Status KeywordReader::check_schema(const Json& value) const {
  if (value.is_object() || value.is_boolean()) return {};
  return fail(value, "a schema must be an object, true or false");
}

Result<std::vector<const Json*>> KeywordReader::schemas(const Json& value) const {
  if (!value.is_array() || value.empty()) return fail(value, "must be a list of schemas");
  std::vector<const Json*> list;
  for (const Json& schema : value) {
    PUMICE_TRY_STATUS(check_schema(schema));
    list.push_back(&schema);
  }
  return list;
}

Result<size_t> KeywordReader::count(const Json& value) const {
  constexpr double kMost = 1e9;  // no answer is that long
  const bool is_count =
      value.is_number() && value.get<double>() >= 0 && decimal_of(value).is_whole();
  if (!is_count) return fail(value, "must be a whole number that is not negative");
  return static_cast<size_t>(std::min(value.get<double>(), kMost));
}

Result<Decimal> KeywordReader::decimal(const Json& value) const {
  if (!value.is_number()) return fail(value, "must be a number");
  Decimal decimal = decimal_of(value);
  if (std::abs(decimal.point) > kMaxPlaces)
    return fail(value, "this number is too large or too small");
  return decimal;
}

Result<std::vector<std::string>> KeywordReader::names(const Json& value) const {
  const bool are_names =
      value.is_array() &&
      std::all_of(value.begin(), value.end(), [](const Json& name) { return name.is_string(); });
  if (!are_names) return fail(value, "must be a list of names");
  return value.get<std::vector<std::string>>();
}

// --- answers ---

KeywordReader::Answer KeywordReader::expand(const Json& schema, bool denied) {
  PUMICE_TRY_STATUS(check_schema(schema));
  PUMICE_TRY(const Shapes* const shapes, model_.expand({&schema, denied}));
  return shapes != nullptr ? Answer(*shapes) : Answer(std::optional<Shapes>{});
}

KeywordReader::Answer KeywordReader::both(const Answer& a, const Answer& b) {
  if (!a || !*a) return a;
  if (!b || !*b) return b;
  PUMICE_TRY(Shapes shapes, model_.product(**a, **b));
  return Answer(std::move(shapes));
}

KeywordReader::Answer KeywordReader::either(Answer a, const Answer& b) {
  if (!a || !*a) return a;
  if (!b || !*b) return b;
  (*a)->insert((*a)->end(), (*b)->begin(), (*b)->end());
  return a;
}

ObjectShape KeywordReader::object_with(const std::string& name, GoalId goal, bool required) const {
  ObjectShape object = any_object();
  object.properties.push_back({name, goal, required});
  return object;
}

Shape KeywordReader::object_only(ObjectShape object) const {
  Shape shape;
  shape.object = std::move(object);
  return shape;
}

// --- keywords of any type ---

KeywordReader::Answer KeywordReader::reference(const Json&) {
  PUMICE_TRY(const Json* const target, model_.document_.target(schema_));
  return expand(*target, denied_);
}

KeywordReader::Answer KeywordReader::all_of(const Json& value) {
  PUMICE_TRY(const auto list, schemas(value));
  Answer all = no_statement();
  for (const Json* schema : list) {
    const Answer said = expand(*schema, denied_);
    all = denied_ ? either(std::move(all), said) : both(all, said);
    if (!all || !*all) break;
  }
  return all;
}

KeywordReader::Answer KeywordReader::any_of(const Json& value) {
  PUMICE_TRY(const auto list, schemas(value));
  Answer all = denied_ ? everything() : nothing();
  for (const Json* schema : list) {
    const Answer said = expand(*schema, denied_);
    all = denied_ ? both(all, said) : either(std::move(all), said);
    if (!all || !*all) break;
  }
  return all;
}

Result<bool> KeywordReader::overlap(const Shapes& a, const Shapes& b) {
  PUMICE_TRY(const Shapes common, model_.product(a, b));
  for (const Shape& shape : common) {
    PUMICE_TRY(const bool impossible, model_.nothing(shape, 0));
    if (!impossible) return true;
  }
  return false;
}

/// Alternatives that provably have nothing in common are simply joined. Where two may overlap, each is taken without
/// the other; of that denial the parts that cannot be written as a grammar drop out later, which allows less.
KeywordReader::Answer KeywordReader::one_of(const Json& value) {
  PUMICE_TRY(const auto list, schemas(value));
  std::vector<Answer> alternatives;
  for (const Json* schema : list) {
    alternatives.push_back(expand(*schema, false));
    if (!alternatives.back() || !*alternatives.back()) return alternatives.back();
  }
  Answer exactly_one = nothing();
  Answer none = everything();
  Answer several = nothing();
  std::vector<Answer> alone = alternatives;
  for (size_t i = 0; i < list.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      PUMICE_TRY(const bool overlapping, overlap(**alternatives[i], **alternatives[j]));
      if (!overlapping) continue;
      alone[i] = both(alone[i], expand(*list[j], true));
      alone[j] = both(alone[j], expand(*list[i], true));
      if (denied_) several = either(std::move(several), both(alternatives[i], alternatives[j]));
    }
  }
  for (size_t i = 0; i < list.size(); ++i) {
    exactly_one = either(std::move(exactly_one), alone[i]);
    if (denied_) none = both(none, expand(*list[i], true));
  }
  return denied_ ? either(std::move(none), several) : exactly_one;
}

KeywordReader::Answer KeywordReader::negation(const Json& value) { return expand(value, !denied_); }

KeywordReader::Answer KeywordReader::condition(const Json& value) {
  const Json* const then = find("then");
  const Json* const otherwise = find("else");
  if (then == nullptr && otherwise == nullptr) return no_statement();
  const Answer met = both(expand(value, false), expand(then != nullptr ? *then : kTrue, denied_));
  const Answer unmet =
      both(expand(value, true), expand(otherwise != nullptr ? *otherwise : kTrue, denied_));
  return either(met, unmet);
}

KeywordReader::Answer KeywordReader::type(const Json& value) {
  const Json list = value.is_array() ? value : Json::array({value});
  Shape shape;
  for (const Json& name : list) {
    const std::string type = name.is_string() ? name.get<std::string>() : "";
    const Shape any = model_.anything();
    if (type == "null") {
      shape.null = true;
    } else if (type == "boolean") {
      shape.no = shape.yes = true;
    } else if (type == "string") {
      shape.string = any.string;
    } else if (type == "array") {
      shape.array = any.array;
    } else if (type == "object") {
      shape.object = any.object;
    } else if (type == "number" || type == "integer") {
      const bool had_fractions = shape.number && shape.number->fractional;
      shape.number.emplace().fractional = had_fractions || type == "number";
    } else {
      return fail(value, "there is no such type");
    }
  }
  if (!denied_) return Answer(Shapes{std::move(shape)});
  Shape others = model_.anything();
  others.null = !shape.null;
  others.no = others.yes = !shape.yes;
  if (shape.string) others.string.reset();
  if (shape.array) others.array.reset();
  if (shape.object) others.object.reset();
  if (shape.number) {
    others.number->whole = false;
    if (shape.number->fractional) others.number.reset();
  }
  return Answer(Shapes{std::move(others)});
}

KeywordReader::Answer KeywordReader::constant(const Json& value) { return values({&value}); }

KeywordReader::Answer KeywordReader::enumeration(const Json& value) {
  if (!value.is_array()) return fail(value, "must be a list of values");
  std::vector<const Json*> list;
  for (const Json& one : value) list.push_back(&one);
  return values(std::move(list));
}

KeywordReader::Answer KeywordReader::values(std::vector<const Json*> values) {
  texts_.spend(values.size());
  Shape shape = model_.anything();
  if (!denied_) {
    shape.values = std::move(values);
    return Answer(Shapes{std::move(shape)});
  }
  std::vector<Expression> texts;
  for (const Json* value : values) {
    if (value->is_null()) shape.null = false;
    if (value->is_boolean()) (value->get<bool>() ? shape.yes : shape.no) = false;
    if (value->is_number()) shape.number->excluded.push_back(decimal_of(*value));
    if (value->is_string())
      texts.push_back(texts_.set().literal(value->get_ref<const std::string&>()));
    if (value->is_array()) shape.array->excluded.push_back(value);
    if (value->is_object()) shape.object->excluded.push_back(value);
  }
  shape.string->text = shape.string->most =
      texts_.without(texts_.all(), texts_.set().any_of(texts));
  return Answer(Shapes{std::move(shape)});
}

// --- numbers and strings ---

template <bool kLow>
KeywordReader::Answer KeywordReader::number_bound(const Json& value, bool exclusive) {
  PUMICE_TRY(Decimal decimal, decimal(value));
  NumberShape number;
  // The denial of x >= 3 is x < 3.
  (kLow != denied_ ? number.low : number.high) =
      NumberShape::Bound{std::move(decimal), exclusive != denied_};
  return only(&Shape::number, std::optional(std::move(number)));
}

template <bool kLow>
KeywordReader::Answer KeywordReader::bound(const Json& value) {
  const Json* const exclusive = find(kLow ? "exclusiveMinimum" : "exclusiveMaximum");
  return number_bound<kLow>(value, exclusive != nullptr && *exclusive == true);
}

template <bool kLow>
KeywordReader::Answer KeywordReader::exclusive_bound(const Json& value) {
  if (value.is_boolean()) return no_statement();  // draft 4: bound() has looked at it
  return number_bound<kLow>(value, true);
}

KeywordReader::Answer KeywordReader::multiple_of(const Json& value) {
  PUMICE_TRY(const Decimal unit, decimal(value));
  if (unit.negative || unit.is_zero()) return fail(value, "must be above zero");
  NumberShape number;
  number.multiples = {{unit, denied_}};
  return only(&Shape::number, std::optional(std::move(number)));
}

template <bool kLow, typename Part>
KeywordReader::Answer KeywordReader::counted(const Json& value, std::optional<Part> Shape::*type,
                                             size_t Part::*min, size_t Part::*max, Part part) {
  PUMICE_TRY(const size_t n, count(value));
  if (!denied_) {
    part.*(kLow ? min : max) = n;
  } else if (kLow) {
    if (n == 0) return nothing();
    part.*max = n - 1;
  } else {
    part.*min = n + 1;
  }
  return only(type, std::optional(std::move(part)));
}

template <bool kLow>
KeywordReader::Answer KeywordReader::length(const Json& value) {
  return counted<kLow>(value, &Shape::string, &StringShape::min_length, &StringShape::max_length,
                       *model_.anything().string);
}

KeywordReader::Answer KeywordReader::pattern(const Json& value) {
  if (!value.is_string()) return fail(value, "must be a regular expression");
  const Result<Expression> texts = texts_.pattern(value.get_ref<const std::string&>());
  if (!texts) return fail(value, texts.error().message);
  StringShape string = *model_.anything().string;
  string.text = string.most = denied_ ? texts_.without(texts_.all(), *texts) : *texts;
  return only(&Shape::string, std::optional(string));
}

KeywordReader::Answer KeywordReader::format(const Json& value) {
  if (!value.is_string()) return fail(value, "must be a name");
  // Of the texts that are not of a format nothing is known: those that are taken for it may be fewer than it has.
  if (denied_) return nothing();
  const auto& name = value.get_ref<const std::string&>();
  if (name == "int32" || name == "int64" || name == "float" || name == "double")
    return number_format(name);
  const auto texts = texts_.format(name);
  if (!texts) return fail(value, texts.error().message);
  StringShape string = *model_.anything().string;
  string.text = texts->first;
  string.most = texts->second;
  return only(&Shape::string, std::optional(string));
}

/// OpenAPI's, of numbers.
KeywordReader::Answer KeywordReader::number_format(const std::string& name) {
  if (name == "float" || name == "double") return everything();
  const bool is_long = name == "int64";
  NumberShape number;
  number.fractional = false;
  number.low = {decimal_of(is_long ? INT64_MIN : int64_t{INT32_MIN}), false};
  number.high = {decimal_of(is_long ? INT64_MAX : int64_t{INT32_MAX}), false};
  return only(&Shape::number, std::optional(std::move(number)));
}

// --- arrays ---

KeywordReader::Answer KeywordReader::elements(const Json&) {
  const Json* items = find("items");
  const Json* prefix = find("prefixItems");
  if (prefix == nullptr && items != nullptr && items->is_array()) {  // until 2019-09
    prefix = std::exchange(items, find("additionalItems"));
  }
  if (const Json* unevaluated = find("unevaluatedItems");
      unevaluated != nullptr && *unevaluated != true) {
    const bool alone = std::none_of(kInPlace.begin(), kInPlace.end(),
                                    [&](std::string_view k) { return schema_.contains(k); });
    if (!alone || find("contains") != nullptr)
      return fail(*unevaluated, "not supported beside allOf, $ref and their like");
    if (items == nullptr) items = unevaluated;
  }
  std::vector<const Json*> first;
  if (prefix != nullptr && !prefix->empty()) {
    PUMICE_TRY(first, schemas(*prefix));
  }
  if (items != nullptr) PUMICE_TRY_STATUS(check_schema(*items));
  ArrayShape array;
  if (!denied_) {
    for (const Json* schema : first) array.prefix.push_back(model_.stated(*schema));
    if (items != nullptr) array.rest = model_.stated(*items);
    // What intersection does of itself: items that cannot be end the array.
    return both(everything(), only(&Shape::array, std::optional(std::move(array))));
  }
  Shapes shapes;
  for (size_t i = 0; i < first.size(); ++i) {
    ArrayShape wrong;
    wrong.prefix.resize(i, kAnything);
    wrong.prefix.push_back(model_.denied(*first[i]));
    wrong.min_items = i + 1;
    shapes.emplace_back().array = std::move(wrong);
  }
  if (items != nullptr) {
    array.contains = {{model_.denied(*items), first.size(), 1}};
    shapes.emplace_back().array = std::move(array);
  }
  return both(everything(), Answer(std::move(shapes)));
}

template <bool kLow>
KeywordReader::Answer KeywordReader::item_count(const Json& value) {
  return counted<kLow>(value, &Shape::array, &ArrayShape::min_items, &ArrayShape::max_items,
                       ArrayShape{});
}

KeywordReader::Answer KeywordReader::contains(const Json& value) {
  PUMICE_TRY_STATUS(check_schema(value));
  size_t min = 1;
  if (const Json* least = find("minContains")) {
    PUMICE_TRY(min, count(*least));
  }
  if (const Json* most = find("maxContains")) return fail(*most, "this keyword is not supported");
  if (min == 0) return no_statement();
  ArrayShape array;
  if (!denied_) {
    array.contains = {{model_.stated(value), 0, min}};
  } else if (min == 1) {
    array.rest = model_.denied(value);
  } else {
    return nothing();  // fewer than so many: beyond what a shape says, and left out
  }
  return both(everything(), only(&Shape::array, std::optional(std::move(array))));
}

KeywordReader::Answer KeywordReader::unique_items(const Json& value) {
  if (!value.is_boolean()) return fail(value, "must be true or false");
  if (!value.get<bool>()) return no_statement();
  ArrayShape array;
  (denied_ ? array.repeated : array.unique) = true;
  return only(&Shape::array, std::optional(std::move(array)));
}

// --- objects ---

KeywordReader::Answer KeywordReader::members(const Json&) {
  static const Json kNone = Json::object();
  const Json* const named = find("properties") != nullptr ? find("properties") : &kNone;
  const Json* const patterns =
      find("patternProperties") != nullptr ? find("patternProperties") : &kNone;
  const Json* additional = find("additionalProperties");
  if (const Json* unevaluated = find("unevaluatedProperties");
      unevaluated != nullptr && *unevaluated != true) {
    const bool alone = std::none_of(kInPlace.begin(), kInPlace.end(),
                                    [&](std::string_view k) { return schema_.contains(k); });
    if (!alone) return fail(*unevaluated, "not supported beside allOf, $ref and their like");
    if (additional == nullptr) additional = unevaluated;
  }
  if (!named->is_object()) return fail(*named, "must be an object of schemas");
  if (!patterns->is_object()) return fail(*patterns, "must be an object of schemas");
  if (patterns->size() > kMaxPatterns) return fail(*patterns, "too many patterns");
  if (additional == nullptr) additional = &kTrue;
  PUMICE_TRY_STATUS(check_schema(*additional));

  ObjectShape object;
  object.others = {{texts_.all(), kAnything}};
  Expression unmatched = texts_.all();
  Shapes wrong;
  const auto with_wrong_member = [&](ObjectShape::Others member) {
    ObjectShape shape = any_object();
    shape.exists = {member};
    if (member.goal != kNothing) wrong.push_back(object_only(std::move(shape)));
  };
  std::vector<std::pair<Expression, const Json*>> matched;
  for (const auto& [regex, schema] : patterns->items()) {
    PUMICE_TRY_STATUS(check_schema(schema));
    const Result<Expression> names = texts_.pattern(regex);
    if (!names) return fail(schema, names.error().message);
    matched.emplace_back(*names, &schema);
    unmatched = texts_.without(unmatched, *names);
    with_wrong_member({*names, model_.denied(schema)});
    std::vector<ObjectShape::Others> parts;
    for (const ObjectShape::Others& others : object.others) {
      parts.push_back({texts_.set().both(others.names, *names),
                       model_.both(others.goal, model_.stated(schema))});
      parts.push_back({texts_.without(others.names, *names), others.goal});
    }
    std::erase_if(parts, [&](const ObjectShape::Others& part) {
      return texts_.set().is_nothing(part.names);
    });
    object.others = std::move(parts);
  }
  if (*additional != true) {
    // The part that no pattern took is the last one, if it is not empty.
    for (ObjectShape::Others& others : object.others) {
      if (texts_.set().disjoint(others.names, unmatched)) continue;
      others.goal = model_.stated(*additional);
    }
  }
  std::vector<Expression> listed;
  for (const auto& [name, schema] : named->items()) {
    PUMICE_TRY_STATUS(check_schema(schema));
    GoalId goal = model_.stated(schema);
    for (const auto& [names, patterned] : matched) {
      if (texts_.set().matches(names, name)) goal = model_.both(goal, model_.stated(*patterned));
    }
    object.properties.push_back({name, goal, false});
    listed.push_back(texts_.set().literal(name));
    const GoalId denied = model_.denied(schema);
    if (denied != kNothing) wrong.push_back(object_only(object_with(name, denied, true)));
  }
  if (!denied_) {
    std::erase_if(object.others,
                  [](const ObjectShape::Others& others) { return others.goal == kNothing; });
    return only(&Shape::object, std::optional(std::move(object)));
  }
  with_wrong_member(
      {texts_.without(unmatched, texts_.set().any_of(listed)), model_.denied(*additional)});
  return Answer(std::move(wrong));
}

template <bool kLow>
KeywordReader::Answer KeywordReader::member_count(const Json& value) {
  return counted<kLow>(value, &Shape::object, &ObjectShape::min_members, &ObjectShape::max_members,
                       any_object());
}

KeywordReader::Answer KeywordReader::required(const Json& value) {
  PUMICE_TRY(const auto list, names(value));
  if (!denied_) {
    ObjectShape object = any_object();
    std::unordered_set<std::string_view> seen;
    for (const std::string& name : list) {
      if (seen.insert(name).second) object.properties.push_back({name, kAnything, true});
    }
    return only(&Shape::object, std::optional(std::move(object)));
  }
  Shapes shapes;
  for (const std::string& name : list)
    shapes.push_back(object_only(object_with(name, kNothing, false)));
  return Answer(std::move(shapes));
}

KeywordReader::Answer KeywordReader::property_names(const Json& value) {
  const Answer of_names = expand(value, denied_);
  if (!of_names || !*of_names) return of_names;
  std::vector<Expression> taken;
  for (const Shape& shape : **of_names) {
    if (!shape.string) continue;
    const StringShape& string = *shape.string;
    if (string.text != string.most) return fail(value, "this format is not supported for names");
    Expression text = texts_.limited(string.text, string.min_length, string.max_length);
    if (shape.values) {
      std::vector<Expression> literals;
      for (const Json* name : *shape.values) {
        if (!name->is_string()) continue;
        literals.push_back(texts_.set().literal(name->get_ref<const std::string&>()));
      }
      text = texts_.set().both(text, texts_.set().any_of(literals));
    }
    taken.push_back(text);
  }
  ObjectShape object = any_object();
  std::vector<ObjectShape::Others>& members = denied_ ? object.exists : object.others;
  members = {{texts_.set().any_of(taken), kAnything}};
  return only(&Shape::object, std::optional(std::move(object)));
}

/// `then` of objects that have the member; others are as they like. Or the denial: they have it, and not `then`.
KeywordReader::Answer KeywordReader::dependency(const std::string& name, const Answer& then) {
  const Answer present =
      both(Answer(Shapes{object_only(object_with(name, kAnything, true))}), then);
  if (denied_) return present;
  Shape absent = model_.anything();
  absent.object = object_with(name, kNothing, false);
  return either(Answer(Shapes{std::move(absent)}), present);
}

KeywordReader::Answer KeywordReader::dependencies(const Json& value) {
  if (!value.is_object()) return fail(value, "must be an object");
  Answer all = no_statement();
  for (const auto& [name, then] : value.items()) {
    const Answer said = dependency(name, then.is_array() ? required(then) : expand(then, denied_));
    all = denied_ ? either(std::move(all), said) : both(all, said);
    if (!all || !*all) break;
  }
  return all;
}

}  // namespace pumice::schema
