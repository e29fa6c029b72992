// POST /v1/embeddings: texts to vectors. Any thread.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "tools/serve/wires/wires.hpp"

namespace pumice::serve {

struct EmbeddingInput {
  std::vector<std::vector<TokenId>> texts;
  uint32_t dimensions = 0;  ///< of each vector: so many of its first numbers
  bool base64 = false;      ///< vectors as bytes: floats, little-endian

  uint32_t n_tokens() const;
};

/// Text or tokens, or an array of either. Errors: a model that gives no vectors; a text that is
/// empty or too long.
std::variant<EmbeddingInput, ApiError> read_embeddings(const Json& body,
                                                       const WireContext& context);
/// The answer: vectors of length 1. As text: numbers with no more digits than they need.
std::string embeddings_answer(const EmbeddingInput& input, std::vector<std::vector<float>> vectors,
                              const ServedModel& model);

/// POST /v1/rerank and /v1/score, for which no model that can be loaded is made: an error that says
/// so.
std::variant<Json, ApiError> rank_texts(const Json& body, const WireContext& context);

}  // namespace pumice::serve
