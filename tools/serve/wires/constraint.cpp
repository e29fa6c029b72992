#include "tools/serve/wires/constraint.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <string_view>
#include <utility>

namespace pumice::serve {
namespace {

using enum ConstraintKind;
/// None: a list of texts, one of which it is.
using Kind = std::optional<ConstraintKind>;
constexpr Kind kChoice = std::nullopt;

bool set(ConstraintWish& wish, Kind kind, std::string field, std::string text, Fields& errors) {
  if (wish.given()) {
    errors.fail(bad_field(field, fmt::format("beside {}: only one of the two", wish.field)));
    return false;
  }
  wish.answer.kind = kind;
  wish.answer.text = std::move(text);
  wish.field = std::move(field);
  return true;
}

void read_choices(const Json& json, std::string field, Fields& errors, ConstraintWish& wish) {
  const bool is_right =
      json.is_array() && !json.empty() &&
      std::all_of(json.begin(), json.end(), [](const Json& one) { return one.is_string(); });
  if (!is_right) return errors.fail(bad_field(field, "must be an array of strings"));
  if (!set(wish, kChoice, std::move(field), "", errors)) return;
  wish.answer.choices = json.get<std::vector<std::string>>();
}

void read_one(const Json& json, Kind kind, std::string field, Fields& errors,
              ConstraintWish& wish) {
  if (kind == kChoice) return read_choices(json, std::move(field), errors, wish);
  const bool is_right = json.is_string() || (kind == kJsonSchema && !json.is_array());
  if (!is_right) return errors.fail(bad_field(field, "must be a string"));
  set(wish, kind, std::move(field), json.is_string() ? json.get<std::string>() : dumped(json),
      errors);
}

}  // namespace

void read_constraint(Fields& fields, ConstraintWish& wish) {
  const std::pair<const char*, Kind> names[] = {
      {"grammar", kGbnf},           {"guided_grammar", kGbnf}, {"json_schema", kJsonSchema},
      {"guided_json", kJsonSchema}, {"guided_regex", kRegex},  {"guided_choice", kChoice}};
  for (const auto& [name, kind] : names) {
    const Json* const json = fields.find(name);
    if (json == nullptr || *json == "") continue;
    read_one(*json, kind, name, fields, wish);
  }
  const Json* const outputs = fields.find("structured_outputs");
  if (outputs == nullptr) return;
  if (!outputs->is_object()) return fields.fail("structured_outputs", "must be an object");
  const std::pair<const char*, Kind> kinds[] = {
      {"json", kJsonSchema}, {"regex", kRegex}, {"choice", kChoice}, {"grammar", kGbnf}};
  for (const auto& [name, value] : outputs->items()) {
    const auto* const it = std::ranges::find(kinds, std::string_view(name), [](const auto& kind) {
      return std::string_view(kind.first);
    });
    const std::string field = "structured_outputs." + name;
    if (value.is_null()) continue;
    if (name == "json_object" && value == true) {
      set(wish, kJsonSchema, field, R"({"type": "object"})", fields);
    } else if (it == std::end(kinds)) {
      fields.fail(bad_field(field, "is not known here"));
    } else {
      read_one(value, it->second, field, fields, wish);
    }
  }
}

void read_format(const Json* format, const std::string& field, Fields& errors,
                 ConstraintWish& wish) {
  if (format == nullptr || format->is_null()) return;
  const Json type = format->is_object() ? format->value("type", Json()) : Json();
  if (type == "text") return;
  if (type != "json_object" && type != "json_schema") {
    return errors.fail(bad_field(field + ".type", "must be text, json_object or json_schema"));
  }
  const Json* schema = format->contains("schema") ? &(*format)["schema"] : nullptr;
  std::string where = field;
  if (type == "json_schema" && format->contains("json_schema")) {
    where += ".json_schema";
    const Json& named = (*format)["json_schema"];
    schema = named.is_object() && named.contains("schema") ? &named["schema"] : nullptr;
  }
  if (schema == nullptr || schema->is_null()) {
    if (type == "json_schema") return errors.fail(bad_field(where + ".schema", "is missing"));
    set(wish, kJsonSchema, field, R"({"type": "object"})", errors);
    return;
  }
  set(wish, kJsonSchema, where + ".schema", dumped(*schema), errors);
}

std::optional<ApiError> set_constraint(const ConstraintWish& wish, const AnswerFrame& frame,
                                       const ServedModel& model, WireRequest& request) {
  if (!wish.given()) return std::nullopt;
  Result<std::shared_ptr<const Constraint>> made = model.constraints->get(
      answer_constraint_key(wish.answer, frame),
      [&] { return answer_constraint(wish.answer, frame, *model.tokenizer); });
  if (!made.ok()) return bad_field(wish.field, made.error().message);
  request.input.constraint = std::move(made).value();
  return std::nullopt;
}

}  // namespace pumice::serve
