// What OpenAI's endpoints have in common: sampling, errors, usage, log probabilities.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tools/serve/service/answer_writer.hpp"
#include "tools/serve/service/served_model.hpp"
#include "tools/serve/wires/fields.hpp"

namespace pumice::serve {

/// Reads what says how tokens are chosen and where a text ends, and what kind of request it is:
/// class, priority, salt. Refuses by name what would change the answer and is not there. What is
/// wrong is the fields' error.
void read_generation(Fields& fields, const ServedModel& model, GenerationInput& input);
/// max_tokens by these names, the first one that is there.
void read_max_tokens(Fields& fields, std::initializer_list<std::string_view> names, uint32_t least,
                     GenerationInput& input);
/// The model's name, "stream" and stream_options; errors: a model that is not served (404).
struct StreamOptions {
  bool stream = false;
  bool usage = false;
};
StreamOptions read_stream(Fields& fields, bool always_usage);
void check_model(Fields& fields, const ServedModel& model);
/// The same of a request for text. Errors: a model that writes none.
void check_writer(Fields& fields, const ServedModel& model);

std::string openai_error(const ApiError& error, std::string_view request_id);
Json openai_error_json(const ApiError& error);

/// {"prompt_tokens", …}
Json openai_usage(const Usage& usage);
/// CONVENTIONS' timings.
Json timings_of(const Usage& usage);
/// "chatcmpl-0123…", of that prefix: no two are alike.
std::string new_id(std::string_view prefix);
int64_t now_s();

/// The bytes of a token as text, and as numbers.
std::string token_bytes(const Tokenizer& tokenizer, TokenId token);
Json bytes_json(std::string_view bytes);
/// A token as a string of JSON: bytes that are no whole character as "bytes:\xe2".
std::string token_text(std::string_view bytes);

}  // namespace pumice::serve
