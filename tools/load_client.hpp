// Requests to a server that speaks OpenAI's completions, timed piece by piece.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <string_view>

#include "base/result.hpp"
#include "bench/load.hpp"

namespace pumice::tools {

struct ServerAddress {
  std::string host;
  std::string port;
  std::string base;  ///< of paths: "", "/openai"
  std::string api_key;

  /// "http://HOST[:PORT][/BASE]"; a last part "/v1" is left out. Errors: kInvalidArgument.
  static Result<ServerAddress> parse(std::string_view url, std::string api_key);
};

/// The id of the server's first model. Errors: kBadFile, for whatever is no answer.
Result<std::string> first_model(const ServerAddress& address);

/// Streams a completion; times count from `start`. `stop` is asked every now and then. What fails is the sample's error.
/// Any number of threads may call it at once: each call has its own connection.
bench::LoadSample send_request(const ServerAddress& address, const std::string& model,
                               const bench::LoadRequest& request,
                               std::chrono::steady_clock::time_point start,
                               const std::function<bool()>& stop);

}  // namespace pumice::tools
