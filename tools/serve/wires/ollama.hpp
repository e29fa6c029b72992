// What clients of Ollama ask before they chat by OpenAI's API on the same port: which server this is,
// which models it has and what they can do.
#pragma once

#include <string>
#include <string_view>
#include <variant>

#include "tools/serve/wires/wires.hpp"

namespace pumice::serve {

/// What its clients put behind names that have no tag.
constexpr std::string_view kOllamaLatest = ":latest";

/// GET /api/version
Json ollama_version();
/// Of GET /api/tags: one of its models.
Json ollama_tag(const ModelCard& model);
/// POST /api/show: {"model"}
std::variant<Json, ApiError> ollama_show(const Json& body, const WireContext& context);
/// {"error": "…"}
std::string ollama_error(const ApiError& error, std::string_view request_id);

}  // namespace pumice::serve
