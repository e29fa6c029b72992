// What a request's answer has to be: JSON, a schema's, a grammar's, calls of tools. Held to by masks
// over the tokens, so that nothing else can be said.
#pragma once

#include <optional>
#include <string>

#include "answers/answer_constraint.hpp"
#include "tools/serve/service/answer_writer.hpp"
#include "tools/serve/service/served_model.hpp"
#include "tools/serve/wires/fields.hpp"

namespace pumice::serve {

struct ConstraintWish {
  AnswerWish answer = {};
  std::string field = {};  ///< which asked for it

  bool given() const { return answer.given(); }
};

/// By the fields of llama-server and vLLM: grammar, json_schema, guided_…, structured_outputs.
void read_constraint(Fields& fields, ConstraintWish& wish);
/// OpenAI's response_format, which Responses have as text.format. `field`: what to call it.
void read_format(const Json* format, const std::string& field, Fields& errors,
                 ConstraintWish& wish);
/// Holds the answer that stands in `frame` to the wish. Errors: what the compilers refuse, with the place, naming the
/// field.
std::optional<ApiError> set_constraint(const ConstraintWish& wish, const AnswerFrame& frame,
                                       const ServedModel& model, WireRequest& request);

}  // namespace pumice::serve
