// The keywords of JSON Schema, drafts 4 to 2020-12, as shapes: what each says, and what its denial says.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>

#include "constraints/keyword_reader.hpp"

namespace pumice::schema {
namespace {

/// Constrain, and are not supported.
constexpr std::array<std::string_view, 5> kRefused = {"$dynamicRef", "$recursiveRef", "extends",
                                                      "disallow", "divisibleBy"};

}  // namespace

const Json KeywordReader::kTrue = true;

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
      return fail(value, "unknown type");
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

// --- numbers, counts and strings ---

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

template <bool kLow>
KeywordReader::Answer KeywordReader::item_count(const Json& value) {
  return counted<kLow>(value, &Shape::array, &ArrayShape::min_items, &ArrayShape::max_items,
                       ArrayShape{});
}

template <bool kLow>
KeywordReader::Answer KeywordReader::member_count(const Json& value) {
  return counted<kLow>(value, &Shape::object, &ObjectShape::min_members, &ObjectShape::max_members,
                       any_object());
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

}  // namespace pumice::schema
