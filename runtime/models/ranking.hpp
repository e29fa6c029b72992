// Rerankers: models that are given a query and a text as one sequence and say how well the text
// answers it. Nogueira and Cho, "Passage Re-ranking with BERT", 2019.
#pragma once

#include <span>

#include "base/result.hpp"
#include "models/metadata.hpp"
#include "models/program.hpp"

namespace pumice {

/// The program with the classifier of a file that ranks (pooling_type 4) behind its last norm: cls
/// and a tanh where the file has them, then cls.output. Of a model that writes text it takes the
/// place of the output matrix, at the last token; of others it is at the first. Other files' programs
/// stay as they are. Errors (kBadFile): the classifier's shape, or labels of which none is "yes".
Result<Program> with_ranking_head(Program program, const Metadata& metadata);

/// How well a text answers a query, between 0 and 1, from what the program gives of them: of one
/// number its logistic function, of several the softmax's part of `label`.
double relevance(std::span<const float> scores, uint32_t label);

}  // namespace pumice
