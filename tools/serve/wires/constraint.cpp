#include "tools/serve/wires/constraint.hpp"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <string_view>

#include "constraints/fuel.hpp"
#include "constraints/gbnf.hpp"
#include "constraints/grammar.hpp"
#include "constraints/json_schema.hpp"
#include "constraints/regex.hpp"

namespace pumice::serve {
namespace {

constexpr uint32_t kMostCalls = 16;
constexpr uint32_t kMostBlanks = 4;
using Kind = ConstraintWish::Kind;

void set(ConstraintWish& wish, Kind kind, std::string field, std::string text, Fields& errors) {
  if (wish.given()) {
    return errors.fail(bad_field(field, fmt::format("beside {}: only one of the two", wish.field)));
  }
  wish.kind = kind;
  wish.field = std::move(field);
  wish.text = std::move(text);
}

void read_choices(const Json& json, std::string field, Fields& errors, ConstraintWish& wish) {
  const bool is_right =
      json.is_array() && !json.empty() &&
      std::all_of(json.begin(), json.end(), [](const Json& one) { return one.is_string(); });
  if (!is_right) return errors.fail(bad_field(field, "must be an array of strings"));
  set(wish, Kind::kChoice, std::move(field), "", errors);
  wish.choices = json.get<std::vector<std::string>>();
}

void read_one(const Json& json, Kind kind, std::string field, Fields& errors,
              ConstraintWish& wish) {
  if (kind == Kind::kChoice) return read_choices(json, std::move(field), errors, wish);
  const bool is_right = json.is_string() || (kind == Kind::kSchema && !json.is_array());
  if (!is_right) return errors.fail(bad_field(field, "must be a string"));
  set(wish, kind, std::move(field), json.is_string() ? json.get<std::string>() : dumped(json),
      errors);
}

/// Makes the grammar of one request.
class Maker {
 public:
  Maker(const ServedModel& model, const WireRequest& request) : model_(model), request_(request) {}

  Result<Grammar> make(const ConstraintWish& wish);

 private:
  Result<Symbol> value(const ConstraintWish& wish);
  Result<Symbol> calls(const ConstraintWish& wish);
  Result<Symbol> call(std::string_view name, const Json& parameters);
  Result<Symbol> json_call(std::string_view name, const Json& parameters);
  Symbol behind_reasoning(Symbol answer);
  Symbol mark(std::string_view text);
  Symbol blanks();
  const AnswerFormat& format() const { return request_.form->format; }

  const ServedModel& model_;
  const WireRequest& request_;
  GrammarBuilder builder_;
};

Result<Grammar> Maker::make(const ConstraintWish& wish) {
  // Whole grammars of their own.
  if (wish.kind == Kind::kGbnf || wish.kind == Kind::kRegex) {
    const ConstraintKind kind =
        wish.kind == Kind::kGbnf ? ConstraintKind::kGbnf : ConstraintKind::kRegex;
    return compile_grammar(kind, wish.text, [this](std::string_view spelling) {
      return model_.tokenizer->vocabulary().find(spelling);
    });
  }
  try {
    const bool has_tools = request_.form && !request_.form->options.tools->empty();
    std::vector<Symbol> answers;
    if (wish.kind != Kind::kNone) {
      PUMICE_TRY(answers.emplace_back(), value(wish));
    }
    if (wish.needs_call || has_tools) {
      PUMICE_TRY(answers.emplace_back(), calls(wish));
    }
    const Symbol answer = builder_.choice(answers);
    return std::move(builder_).build(request_.form ? behind_reasoning(answer) : answer);
  } catch (const OutOfFuel&) {
    return make_error(ErrorCode::kDoesNotFit, "this costs too much to hold answers to");
  }
}

Result<Symbol> Maker::value(const ConstraintWish& wish) {
  if (wish.kind == Kind::kSchema) return json_schema_symbol(builder_, wish.text);
  std::vector<Symbol> choices;
  for (const std::string& choice : wish.choices) choices.push_back(builder_.literal(choice));
  return builder_.choice(choices);
}

/// Control tokens have no text of their own.
Symbol Maker::mark(std::string_view text) {
  if (text.empty()) return builder_.empty();
  const Vocabulary& vocabulary = model_.tokenizer->vocabulary();
  const std::optional<TokenId> token = vocabulary.find(text);
  const bool is_control = token && vocabulary.type(*token) == TokenType::kControl;
  return is_control ? builder_.tokens({*token}) : builder_.literal(text);
}

Symbol Maker::blanks() {
  ByteSet blanks;
  for (const char c : {' ', '\n'}) blanks.set(static_cast<uint8_t>(c));
  ExpressionSet& expressions = builder_.expressions();
  return builder_.lexeme(expressions.repeat(expressions.bytes(blanks), 0, kMostBlanks));
}

/// A model that reasons does so before what it is held to.
Symbol Maker::behind_reasoning(Symbol answer) {
  const Result<ChatPrompt>& chat = *model_.chat;
  const bool begins = request_.form->options.begins_reasoning;
  const bool may = begins || (chat.ok() && chat->traits().reasoning);
  if (!may || format().think_close.empty() || format().think_open.empty()) return answer;
  ExpressionSet& expressions = builder_.expressions();
  const Expression close = expressions.literal(format().think_close);
  const Expression has_close = expressions.concat(
      std::vector<Expression>{expressions.everything(), close, expressions.everything()});
  const Symbol thoughts = builder_.sequence(
      {builder_.lexeme(expressions.complement(has_close)), mark(format().think_close), blanks()});
  if (begins) return builder_.sequence({thoughts, answer});
  const Symbol opened = builder_.sequence({mark(format().think_open.front()), thoughts});
  return builder_.sequence({builder_.optional(opened), answer});
}

Result<Symbol> Maker::json_call(std::string_view name, const Json& parameters) {
  const bool is_llama = format().name == "llama3" || format().name == "llama4";
  PUMICE_TRY(const Symbol arguments, json_schema_symbol(builder_, dumped(parameters)));
  return builder_.sequence(
      {builder_.literal(fmt::format("{{\"name\": {}, \"{}\": ", dumped(Json(name)),
                                    is_llama ? "parameters" : "arguments")),
       arguments, builder_.literal("}")});
}

/// One call, with its own marks.
Result<Symbol> Maker::call(std::string_view name, const Json& parameters) {
  if (format().shape == CallShape::kJson) {
    PUMICE_TRY(const Symbol object, json_call(name, parameters));
    if (format().call_open.empty()) return object;
    return builder_.sequence({mark(format().call_open), builder_.optional(builder_.literal("\n")),
                              object, builder_.optional(builder_.literal("\n")),
                              mark(format().call_close)});
  }
  const bool is_plain = format().shape == CallShape::kNamed && format().id_open.empty() &&
                        !format().name_is_id && format().type_end.empty() &&
                        !format().name_end.empty();
  if (!is_plain) {
    return make_error(ErrorCode::kInvalidArgument,
                      "calls in this model's format ({}) cannot be asked for yet", format().name);
  }
  PUMICE_TRY(const Symbol arguments, json_schema_symbol(builder_, dumped(parameters)));
  return builder_.sequence({mark(format().call_open), builder_.literal(name),
                            mark(format().name_end.front()), arguments, mark(format().args_close),
                            mark(format().call_close)});
}

Result<Symbol> Maker::calls(const ConstraintWish& wish) {
  std::vector<Symbol> each;
  for (const Json& tool : request_.form->options.tools->json()) {
    const Json& function = tool["function"];
    const std::string name = function["name"].get<std::string>();
    const bool is_wanted = wish.tools.empty() || std::find(wish.tools.begin(), wish.tools.end(),
                                                           name) != wish.tools.end();
    if (!is_wanted) continue;
    const Json any = {{"type", "object"}};
    const bool has_schema = function.contains("parameters") && !function["parameters"].empty();
    Result<Symbol> one = call(name, has_schema ? function["parameters"] : any);
    if (!one.ok()) {
      return make_error(one.error().code, "tool {}: {}", name, one.error().message);
    }
    each.push_back(*one);
  }
  const Symbol one = builder_.choice(each);
  const bool in_list = format().shape == CallShape::kJson && format().call_open.empty() &&
                       !format().section_open.empty();
  const uint32_t most = request_.one_call ? 0 : kMostCalls - 1;
  const Symbol between =
      in_list ? builder_.literal(", ") : builder_.optional(builder_.literal("\n"));
  const bool can_repeat = in_list || !format().call_open.empty();
  Symbol all = one;
  if (most > 0 && can_repeat) {
    all = builder_.sequence({one, builder_.repeat(builder_.sequence({between, one}), 0, most)});
  }
  if (in_list) all = builder_.sequence({builder_.literal("["), all, builder_.literal("]")});
  if (format().section_open.empty()) return all;
  const std::string close = format().section_close.empty() ? "" : format().section_close.front();
  return builder_.sequence({mark(format().section_open.front()), all, mark(close)});
}

/// All that the grammar depends on.
std::string key_of(const ConstraintWish& wish, const WireRequest& request) {
  std::string key = fmt::format("{}\n{}\n{}\n{}\n{}\n{}", static_cast<int>(wish.kind), wish.text,
                                dumped(Json(wish.choices)), wish.needs_call,
                                dumped(Json(wish.tools)), request.one_call);
  if (!request.form) return key;
  return key + fmt::format("\n{}\n{}", request.form->options.begins_reasoning,
                           dumped(request.form->options.tools->json()));
}

}  // namespace

void read_constraint(Fields& fields, ConstraintWish& wish) {
  const std::pair<const char*, Kind> names[] = {
      {"grammar", Kind::kGbnf},       {"guided_grammar", Kind::kGbnf},
      {"json_schema", Kind::kSchema}, {"guided_json", Kind::kSchema},
      {"guided_regex", Kind::kRegex}, {"guided_choice", Kind::kChoice}};
  for (const auto& [name, kind] : names) {
    const Json* const json = fields.find(name);
    if (json == nullptr || *json == "") continue;
    read_one(*json, kind, name, fields, wish);
  }
  const Json* const outputs = fields.find("structured_outputs");
  if (outputs == nullptr) return;
  if (!outputs->is_object()) return fields.fail("structured_outputs", "must be an object");
  const std::pair<const char*, Kind> kinds[] = {{"json", Kind::kSchema},
                                                {"regex", Kind::kRegex},
                                                {"choice", Kind::kChoice},
                                                {"grammar", Kind::kGbnf}};
  for (const auto& [name, value] : outputs->items()) {
    const auto* const it = std::ranges::find(kinds, std::string_view(name), [](const auto& kind) {
      return std::string_view(kind.first);
    });
    const std::string field = "structured_outputs." + name;
    if (value.is_null()) continue;
    if (name == "json_object" && value == true) {
      set(wish, Kind::kSchema, field, R"({"type": "object"})", fields);
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
    return set(wish, Kind::kSchema, field, R"({"type": "object"})", errors);
  }
  set(wish, Kind::kSchema, where + ".schema", dumped(*schema), errors);
}

std::optional<ApiError> set_constraint(const ConstraintWish& wish, const ServedModel& model,
                                       WireRequest& request) {
  if (!wish.given()) return std::nullopt;
  Result<std::shared_ptr<const Constraint>> made = model.constraints->get(
      key_of(wish, request), [&] { return Maker(model, request).make(wish); });
  if (!made.ok()) return bad_field(wish.field, made.error().message);
  request.input.constraint = std::move(made).value();
  return std::nullopt;
}

}  // namespace pumice::serve
