// The memory of a step's activations.
#pragma once

#include <cstdint>
#include <vector>

#include "models/lowering.hpp"

namespace pumice {

/// Where each buffer lies in one piece of memory: buffers that are never in use at once may share.
struct ActivationPlan {
  std::vector<uint64_t> offsets;  ///< bytes, multiples of 256, by BufferId
  uint64_t bytes = 0;
};
ActivationPlan plan_activations(const Lowered& lowered, uint64_t rows, uint64_t logit_rows);

}  // namespace pumice
