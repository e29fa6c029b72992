// Endpoints that make no text: what a prompt looks like as tokens, and back. Any thread.
#pragma once

#include <variant>

#include "tools/serve/wires/wires.hpp"

namespace pumice::serve {

using JsonOrError = std::variant<Json, ApiError>;

/// POST /tokenize: {"content"}, {"prompt"} or {"messages"}, as llama-server and vLLM have it.
JsonOrError tokenize(const Json& body, const WireContext& context);
/// POST /detokenize: {"tokens"}
JsonOrError detokenize_tokens(const Json& body, const WireContext& context);
/// POST /apply-template: {"messages", …} → {"prompt"}
JsonOrError apply_template(const Json& body, const WireContext& context);
/// POST /v1/completions/render: one object for each prompt.
JsonOrError render_completion(const Json& body, const WireContext& context);
/// POST /v1/chat/completions/render: one object.
JsonOrError render_chat(const Json& body, const WireContext& context);
/// POST /v1/messages/count_tokens
JsonOrError count_message_tokens(const Json& body, const WireContext& context);
/// POST /v1/responses/input_tokens
JsonOrError count_response_tokens(const Json& body, const WireContext& context);

}  // namespace pumice::serve
