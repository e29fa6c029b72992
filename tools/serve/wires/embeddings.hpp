// POST /v1/embeddings: texts to vectors; and what all requests to models that give vectors have in
// common. Any thread.
#pragma once

#include <functional>
#include <string>
#include <variant>
#include <vector>

#include "tools/serve/wires/wires.hpp"

namespace pumice::serve {

/// Texts, and the answer that their vectors become.
struct VectorRequest {
  std::vector<std::vector<TokenId>> texts;
  std::function<std::string(std::vector<std::vector<float>> vectors)> answer;

  uint32_t n_tokens() const;
};

/// Text or tokens, or an array of either. Errors: a model that gives no vectors; a text that is
/// empty or too long. The answer has vectors of length 1: as text numbers with no more digits than
/// they need, as bytes floats, little-endian.
std::variant<VectorRequest, ApiError> read_embeddings(const Json& body, const WireContext& context);

/// {"prompt_tokens": …, "total_tokens": …}
Json usage_of(const VectorRequest& request);

}  // namespace pumice::serve
