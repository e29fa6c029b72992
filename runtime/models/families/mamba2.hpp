// Mamba-2 as layers of hybrid families have it: Dao and Gu, "Transformers are SSMs", 2024.
#pragma once

#include <optional>

#include "models/metadata.hpp"
#include "models/program_builder.hpp"

namespace pumice::families {

/// What ssm.* keys say.
struct Mamba2 {
  uint32_t n_inner = 0;
  uint32_t n_heads = 0;
  uint32_t n_groups = 0;  ///< of heads that share B and C, and whose outputs are normed together
  uint32_t n_state = 0;
  uint32_t taps = 0;
  uint32_t state_group = 0;
  std::optional<float> norm_eps = {};  ///< none: the gated result is not normed
};

/// Errors (kBadFile): heads, groups and sizes that do not fit together.
Result<Mamba2> read_mamba2(const Metadata& metadata);

/// out · norm(scan(conv(xBC), Δ) · silu(z)), as wide as h.
ValueId mamba2(ProgramBuilder& p, ValueId h, uint32_t width, const Mamba2& m);

}  // namespace pumice::families
