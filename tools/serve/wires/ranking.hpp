// POST /v1/rerank, as Jina's and Cohere's clients ask, and /v1/score, as vLLM's: how well texts answer
// a query, by a model that ranks. Any thread.
#pragma once

#include <variant>

#include "tools/serve/wires/embeddings.hpp"

namespace pumice::serve {

/// `query` and `documents`, texts or objects with a `text`. The answer has the `top_n` best, best
/// first, each with its place among the documents and a relevance_score between 0 and 1. Errors: a
/// model that does not rank; a query with a document that is too long.
std::variant<VectorRequest, ApiError> read_rerank(const Json& body, const WireContext& context);

/// `text_1` and `text_2`, each a text or several: one with all, or each with the other of its place.
/// The answer has a score between 0 and 1 for each pair.
std::variant<VectorRequest, ApiError> read_score(const Json& body, const WireContext& context);

}  // namespace pumice::serve
