// The decoder in fp64 on the CPU, from the weights in file blocks: what logits are checked against.
// Written to be read, and without anything of the shaders: embedding, RMSNorm, rotary positions,
// grouped-query attention, SwiGLU, output, as in Touvron et al., "LLaMA", 2023. Weights are read a
// row group at a time on all cores, so memory does not grow with the model.
#pragma once

#include <functional>
#include <limits>
#include <span>
#include <vector>

#include "base/result.hpp"
#include "models/families.hpp"
#include "models/model_source.hpp"
#include "text/vocabulary.hpp"

namespace pumice::bench {

struct ReferenceLimits {
  uint32_t n_layers = std::numeric_limits<uint32_t>::max();
  /// Layers are left out, from the last, where all of them would take longer; one is always
  /// computed.
  double seconds = std::numeric_limits<double>::infinity();
  std::function<bool()> stop = {};  ///< asked after each layer
};

struct ReferenceLogits {
  std::vector<double> logits;  ///< [tokens][n_vocab], of a model of the first n_layers layers
  uint32_t n_layers = 0;
  double seconds = 0;
};

/// Logits of every position of a sequence. Tokens are below n_vocab. Errors: kCancelled.
Result<ReferenceLogits> reference_logits(const ModelSource& source, const ModelDescription& model,
                                         std::span<const TokenId> tokens,
                                         const ReferenceLimits& limits = {});

}  // namespace pumice::bench
