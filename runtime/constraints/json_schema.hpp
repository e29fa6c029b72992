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
#include <string_view>

#include "constraints/grammar.hpp"

namespace pumice {

constexpr uint32_t kMaxIndent = 64;

Result<Grammar> compile_json_schema(std::string_view schema);

/// The schema's values within a larger grammar (arguments of a tool). Throws OutOfFuel as the builder does.
Result<Symbol> json_schema_symbol(GrammarBuilder& grammar, std::string_view schema);

/// Any object: what `response_format: json_object` asks for.
Result<Grammar> any_json_object();

}  // namespace pumice
