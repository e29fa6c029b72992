// A program evaluated in fp64 on the CPU, from the weights in file blocks: what logits are checked
// against. Written to be read, and without anything of the shaders. Weights are decoded a row group
// at a time and values go with their last reader, so memory does not grow with the model; time is
// that of plain loops, square in the sequence for attention only.
#pragma once

#include <functional>
#include <limits>
#include <span>
#include <vector>

#include "base/result.hpp"
#include "models/model_source.hpp"
#include "models/program.hpp"
#include "text/vocabulary.hpp"

namespace pumice {

struct ReferenceLimits {
  uint32_t n_layers = std::numeric_limits<uint32_t>::max();
  /// Layers are left out, from the last, where all of them would take longer; one is always
  /// computed.
  double seconds = std::numeric_limits<double>::infinity();
  size_t max_threads = 0;              ///< 0: one per core. The result does not depend on it.
  std::function<bool()> stop = {};     ///< asked after each layer
  std::span<const double> given = {};  ///< [tokens][width], of a program that has op::GivenRows
  uint32_t context_tokens = 0;  ///< of the session (LongRoPE); 0: the program's context_length
};

struct ReferenceLogits {
  std::vector<double> logits;  ///< [tokens][n_vocab], of a model of the first n_layers layers
  uint32_t n_layers = 0;
  /// Of each router of those layers, in the program's order: [tokens][n_used] experts.
  std::vector<std::vector<uint32_t>> experts = {};
  double seconds = 0;
};

/// Logits of every position of a sequence. `program` is that of `source`, as build_program checked
/// it; tokens are below n_vocab. Errors: kInvalidArgument (given rows of another size), kCancelled,
/// kBadFile (a file cut since it was opened), kDoesNotFit (memory).
Result<ReferenceLogits> reference_logits(const ModelSource& source, const Program& program,
                                         std::span<const TokenId> tokens,
                                         const ReferenceLimits& limits = {});

}  // namespace pumice
