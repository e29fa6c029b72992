#include "tools/serve/service/api_error.hpp"

#include <utility>

namespace pumice::serve {

ApiError bad_field(std::string field, std::string message) {
  ApiError error{.message = field + ": " + std::move(message)};
  error.param = std::move(field);
  return error;
}

ApiError context_exceeded(std::string field, size_t prompt_tokens, uint32_t window_tokens) {
  return {.message = fmt::format(
              "This model's maximum context length is {1} tokens. However, your request has {0} "
              "tokens: request ({0} tokens) exceeds the available context size ({1} tokens).",
              prompt_tokens, window_tokens),
          .param = std::move(field),
          .code = "context_length_exceeded"};
}

ApiError overloaded(std::string message) {
  return {.status = 429,
          .type = "overloaded_error",
          .message = std::move(message),
          .code = "rate_limit_exceeded",
          .retry_after_s = 1};
}

ApiError draining() {
  return {.status = 503,
          .type = "unavailable_error",
          .message = "this server is shutting down; send the request to another one",
          .retry_after_s = 5};
}

ApiError api_error_of(const Error& error) {
  switch (error.code) {
    case ErrorCode::kInvalidArgument:
    case ErrorCode::kDoesNotFit:
      return {.message = error.message};
    case ErrorCode::kDeviceLost:
      return {
          .status = 503, .type = "unavailable_error", .message = error.message, .retry_after_s = 5};
    default:
      return {.status = 500, .type = "server_error", .message = error.message};
  }
}

HttpResponse error_response(const ApiError& error, std::string body) {
  HttpResponse response{.status = error.status, .body = std::move(body)};
  if (error.retry_after_s != 0) {
    response.headers.emplace_back("Retry-After", fmt::format("{}", error.retry_after_s));
  }
  if (error.status == 401) response.headers.emplace_back("WWW-Authenticate", "Bearer");
  return response;
}

}  // namespace pumice::serve
