// The keywords of JSON Schema that say what arrays and objects hold.
#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "constraints/keyword_reader.hpp"

namespace pumice::schema {
namespace {

/// Schemas that hold of the same value: what unevaluated… would have to know about.
constexpr std::array<std::string_view, 10> kInPlace = {
    "$ref",        "allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas",
    "dependencies"};
/// Of patternProperties: each may part the names in two.
constexpr size_t kMaxPatterns = 10;

}  // namespace

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
