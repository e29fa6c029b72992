// SchemaGrammar: a schema's objects as the arguments of a call.
#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "constraints/schema_grammar.hpp"

namespace pumice::schema {
namespace {

constexpr uint32_t kMaxArgumentNameBytes = 200;

ByteSet bytes_of(std::string_view characters) {
  ByteSet bytes;
  for (const char c : characters) bytes.set(static_cast<unsigned char>(c));
  return bytes;
}

ByteSet identifier_bytes() {
  return bytes_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-");
}

/// Which names can stand between an argument's marks.
Expression argument_names(ExpressionSet& set, bool are_identifiers) {
  const Expression identifier = set.bytes(identifier_bytes());
  if (are_identifiers) return set.repeat(identifier, 1, kMaxArgumentNameBytes);
  ByteSet bytes = bytes_of("$@/:+#%!?*~^,;|\\");
  bytes |= identifier_bytes();
  for (size_t byte = 0xC2; byte < 0xF5; ++byte) bytes.set(byte);
  for (size_t byte = 0x80; byte < 0xC0; ++byte) bytes.set(byte);
  const Expression one = set.bytes(bytes);
  const Expression more = set.repeat(set.concat(set.optional(set.literal(" ")), one), 0);
  return set.all_of(std::array{set.concat(one, more), set.repeat(set.character(), 1),
                               set.repeat(set.bytes(~ByteSet()), 1, kMaxArgumentNameBytes)});
}

}  // namespace

Result<Symbol> SchemaGrammar::make_object(const Json& schema) {
  const GoalId root = model_.stated(schema);
  PUMICE_TRY(const Shapes* const shapes, model_.shapes(root));
  std::vector<Symbol> ways;
  for (const Shape& shape : *shapes) {
    if (!shape.object) continue;
    Shape objects;
    objects.object = shape.object;
    if (shape.values) {
      objects.values.emplace();
      std::ranges::copy_if(*shape.values, std::back_inserter(*objects.values),
                           [](const Json* value) { return value->is_object(); });
    }
    PUMICE_TRY(const Symbol way, values_of(root, objects));
    ways.push_back(way);
  }
  PUMICE_TRY_STATUS(define_open());
  return grammar_.choice(ways);
}

Result<Symbol> SchemaGrammar::make_arguments(const Json& schema, const ArgumentWriting& writing) {
  const GoalId root = model_.stated(schema);
  const Expression names = argument_names(set_, writing.names_are_identifiers);
  const auto listed = [&](const ObjectShape::Property& property) -> Result<Symbol> {
    if (!set_.matches(names, property.name)) {
      return fail(root, "the name of the argument \"" + property.name +
                            "\" cannot be written in this format of calls");
    }
    const bool is_text = writing.raw_texts && writing.raw_texts->is_text(property.name);
    return argument(std::array{writing.before_name, grammar_.literal(property.name)}, property.goal,
                    is_text, writing);
  };
  const auto other = [&](Expression allowed, GoalId goal) -> Result<Symbol> {
    const Symbol name = grammar_.lexeme(set_.both(allowed, names));
    const bool is_text = writing.raw_texts && writing.raw_texts->is_text("");
    return argument(std::array{writing.before_name, name}, goal, is_text, writing);
  };
  PUMICE_TRY(const Shapes* const shapes, model_.shapes(root));
  std::vector<Symbol> ways;
  for (const Shape& shape : *shapes) {
    if (!shape.object) continue;
    if (shape.values) {
      return fail(root,
                  "arguments that are listed whole are not supported in this format of calls");
    }
    if (!shape.object->exists.empty() || !shape.object->excluded.empty()) continue;
    PUMICE_TRY(const Symbol way, members(root, *shape.object,
                                         {.open = writing.open,
                                          .between = writing.between,
                                          .close = writing.close,
                                          .listed = listed,
                                          .other = other}));
    ways.push_back(way);
  }
  PUMICE_TRY_STATUS(define_open());
  return grammar_.choice(ways);
}

/// `name` and what stands before it, then a value of the goal's.
Result<Symbol> SchemaGrammar::argument(std::span<const Symbol> name, GoalId goal, bool is_text,
                                       const ArgumentWriting& writing) {
  const Symbol begin = grammar_.sequence(name);
  if (!writing.raw_texts) {
    return grammar_.sequence({begin, writing.behind_name, symbol(goal), writing.behind_value});
  }
  PUMICE_TRY(const Shapes* const shapes, model_.shapes(goal));
  std::vector<Symbol> texts, others;
  for (const Shape& shape : *shapes) {
    PUMICE_TRY(const Symbol raw, raw_text(shape, is_text));
    texts.push_back(raw);
    Shape other = shape;
    other.string.reset();
    if (other.values) {
      std::erase_if(*other.values, [](const Json* value) { return value->is_string(); });
    }
    PUMICE_TRY(const Symbol value, values_of(goal, other));
    others.push_back(value);
  }
  const Symbol text = grammar_.sequence(
      {writing.raw_texts->behind_name, grammar_.choice(texts), writing.raw_texts->behind_value});
  const Symbol value =
      grammar_.sequence({writing.behind_name, grammar_.choice(others), writing.behind_value});
  return grammar_.sequence({begin, grammar_.choice({text, value})});
}

/// The shape's texts without quotes.
Result<Symbol> SchemaGrammar::raw_text(const Shape& shape, bool is_text) {
  Expression texts = set_.nothing();
  if (shape.values) {
    for (const Json* const value : *shape.values) {
      PUMICE_TRY(const bool accepted, model_.conforms(shape, *value));
      if (!accepted || !value->is_string()) continue;
      texts = set_.either(texts, set_.literal(value->get_ref<const std::string&>()));
    }
  } else if (shape.string) {
    texts = texts_.limited(shape.string->text, shape.string->min_length, shape.string->max_length);
  }
  texts = avoiding(texts);
  return grammar_.lexeme(is_text ? texts : texts_.without(texts, looks_like_json()));
}

/// What a reader who knows no types might take for something else than a text.
Expression SchemaGrammar::looks_like_json() {
  const Expression blanks = set_.repeat(set_.bytes(bytes_of(" \t\r\n")), 0);
  std::vector<Expression> words;
  for (const char* const name : {"true", "True", "false", "False", "null", "None"}) {
    words.push_back(set_.literal(name));
  }
  return set_.concat(blanks, set_.either(set_.concat(set_.bytes(bytes_of("{[(\"'0123456789+-.")),
                                                     set_.everything()),
                                         set_.concat(set_.any_of(words), blanks)));
}

}  // namespace pumice::schema
