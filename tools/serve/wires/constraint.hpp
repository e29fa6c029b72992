// What a request's answer has to be: JSON, a schema's, a grammar's, calls of tools. Held to by masks
// over the tokens, so that nothing else can be said.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/serve/service/answer_writer.hpp"
#include "tools/serve/service/served_model.hpp"
#include "tools/serve/wires/fields.hpp"

namespace pumice::serve {

struct ConstraintWish {
  enum class Kind { kNone, kSchema, kGbnf, kRegex, kChoice };

  Kind kind = Kind::kNone;
  std::string field = {};  ///< which asked for it
  std::string text = {};   ///< a schema, a grammar, an expression
  std::vector<std::string> choices = {};
  /// A tool is to be called: one of these, or any if there are none.
  bool needs_call = false;
  std::vector<std::string> tools = {};

  bool given() const { return kind != Kind::kNone || needs_call; }
};

/// By the fields of llama-server and vLLM: grammar, json_schema, guided_…, structured_outputs.
void read_constraint(Fields& fields, ConstraintWish& wish);
/// OpenAI's response_format, which Responses have as text.format. `field`: what to call it.
void read_format(const Json* format, const std::string& field, Fields& errors,
                 ConstraintWish& wish);
/// Of a request whose prompt and form are set, so that reasoning may come first. Errors: what the
/// compilers refuse, with the place, naming the field.
std::optional<ApiError> set_constraint(const ConstraintWish& wish, const ServedModel& model,
                                       WireRequest& request);

}  // namespace pumice::serve
