// What a client is told of a request that is refused or fails; each wire words it its own way.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.hpp"
#include "tools/serve/http/http.hpp"

namespace pumice::serve {

struct ApiError {
  unsigned status = 400;
  /// OpenAI's: "invalid_request_error", "not_found_error", "overloaded_error", "server_error", …
  std::string type = "invalid_request_error";
  std::string message = {};
  std::string param = {};  ///< the field that is wrong; empty: none in particular
  std::string code = {};   ///< "context_length_exceeded"; empty: none
  uint32_t retry_after_s = 0;
};

/// A field that is wrong or cannot be honoured.
ApiError bad_field(std::string field, std::string message);
/// A prompt that the context does not hold. The text is what clients know to look for, of several
/// other servers at once.
ApiError context_exceeded(std::string field, size_t prompt_tokens, uint32_t window_tokens);
/// Requests wait already.
ApiError overloaded(std::string message);
/// The server ends.
ApiError draining();
/// An error of the runtime, of a request: what the caller can do nothing about is status 500 or 503.
ApiError api_error_of(const Error& error);

/// With `body`, which a wire worded.
HttpResponse error_response(const ApiError& error, std::string body);

}  // namespace pumice::serve
