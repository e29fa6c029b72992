// JSON Schema as a grammar: texts that are valid JSON and valid under the schema, and no others.
//
// Drafts 4 to 2020-12. Members come in the order of `properties` (of allOf and $ref in turn, then of `required`), then those
// of patternProperties and additionalProperties. What is said and cannot be held to is an error that names the place as
// a JSON pointer; keywords outside the vocabularies are annotations, as the specification has it, and so are
// `contentEncoding` and its like. Not every valid text is in the grammar, where a reader loses nothing by that:
//   - white space: one space, or a line end and up to kMaxIndent spaces or tabs, at each place but before `,` and `:`;
//   - numbers as schema_numbers.hpp says; strings that are constrained have no \uXXXX but of control characters;
//   - formats as schema_formats.cpp has them, which may be fewer texts than the format's;
//   - of alternatives of oneOf that overlap, and of `not`, the parts that a grammar cannot say are left out.
// A name that the schema does not list may come twice, as in any JSON text; each value is as the schema says.
// Errors (kInvalidArgument), all with the place: unevaluatedProperties and unevaluatedItems beside allOf and its like,
// uniqueItems of more than one item that is not an enumeration, minContains above one, maxContains, minProperties that more
// than one name outside `properties` must meet, $dynamicRef, references to other documents, formats that are not known,
// patterns that are not regular. A schema that nothing satisfies is an error too; kDoesNotFit: one that costs too much.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "constraints/grammar.hpp"

namespace pumice {

constexpr uint32_t kMaxIndent = 64;

Result<Grammar> compile_json_schema(std::string_view schema);

/// The schema's values within a larger grammar (arguments of a tool). Throws OutOfFuel as the builder does.
Result<Symbol> json_schema_symbol(GrammarBuilder& grammar, std::string_view schema);

/// How values are written by who does not write JSON.
struct ValueWriting {
  bool is_python = false;  ///< True, False and None
  /// Stands before and behind texts instead of quotes. They have no escapes then; names of members stand without quotes.
  std::optional<Symbol> quote = {};
  std::string avoid = {};  ///< no text has this
};

/// Texts stand as they are, without quotes (and without what values avoid), between these.
struct RawTextWriting {
  Symbol behind_name = {}, behind_value = {};
  /// Of the argument `name`: its value is read as a text whatever it looks like. Of others, texts that look like another
  /// value are left out.
  std::function<bool(std::string_view name)> is_text = {};
};

/// How the arguments of a call are written, each with its name: open, name and value with `between` between, close.
struct ArgumentWriting {
  ValueWriting values;
  Symbol open = {}, between = {}, close = {};
  Symbol before_name = {}, behind_name = {}, behind_value = {};
  /// Instead of the last two, of texts.
  std::optional<RawTextWriting> raw_texts = {};
  /// Names are letters, digits, "_", "." and "-"; else also other characters that are neither blanks nor brackets nor
  /// quotes, and blanks between them.
  bool names_are_identifiers = false;
};

/// Those of the schema's values that are objects, within a larger grammar. Throws OutOfFuel as the builder does.
Result<Symbol> json_object_symbol(GrammarBuilder& grammar, std::string_view schema,
                                  const ValueWriting& writing = {});
/// The same as arguments. Errors (kInvalidArgument), besides: a name that cannot be written so, an enumeration of whole
/// objects.
Result<Symbol> json_arguments_symbol(GrammarBuilder& grammar, std::string_view schema,
                                     const ArgumentWriting& writing);

/// Any object: what `response_format: json_object` asks for.
Result<Grammar> any_json_object();

}  // namespace pumice
