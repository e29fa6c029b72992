#include "models/families/mamba2.hpp"

#include "shaders/recurrence/recurrence.hpp"

namespace pumice::families {

Result<Mamba2> read_mamba2(const Metadata& metadata) {
  Mamba2 m;
  PUMICE_TRY(m.n_inner, metadata.read_count("ssm.inner_size"));
  PUMICE_TRY(m.n_heads, metadata.read_count("ssm.time_step_rank"));
  PUMICE_TRY(m.n_groups, metadata.read_count("ssm.group_count"));
  PUMICE_TRY(m.n_state, metadata.read_count("ssm.state_size", ops::Recurrence::kMostKeyDim));
  PUMICE_TRY(m.taps, metadata.read_taps("ssm.conv_kernel"));
  if (m.n_inner % m.n_heads != 0 || m.n_heads % m.n_groups != 0) {
    return make_error(ErrorCode::kBadFile,
                      "ssm.inner_size: {} heads in {} groups cannot share {} numbers", m.n_heads,
                      m.n_groups, m.n_inner);
  }
  return m;
}

/// out · norm(scan(conv(xBC), Δ) · silu(z)), as wide as h.
ValueId mamba2(ProgramBuilder& p, ValueId h, uint32_t width, const Mamba2& m) {
  const uint32_t n_keys = m.n_groups * m.n_state;
  const uint32_t n_conv = m.n_inner + 2 * n_keys;
  const ValueId in = p.linear(h, "ssm_in", m.n_inner + n_conv + m.n_heads);
  const ValueId z = p.split(in, 0, m.n_inner);
  const ValueId mixed = p.split(in, m.n_inner, n_conv);
  const ValueId step = p.split(in, m.n_inner + n_conv, m.n_heads);
  const ValueId xbc = p.causal_conv(mixed, "ssm_conv1d",
                                    {.state_group = m.state_group,
                                     .taps = m.taps,
                                     .bias = ProgramBuilder::Bias::kAdded,
                                     .silu = true});
  const ValueId x = p.split(xbc, 0, m.n_inner);
  const ValueId b = p.split(xbc, m.n_inner, n_keys);
  const ValueId c = p.split(xbc, m.n_inner + n_keys, n_keys);
  const ValueId y = p.recurrence(c, b, x, step, std::nullopt,
                                 {.state_group = m.state_group,
                                  .n_heads = m.n_heads,
                                  .n_key_heads = m.n_groups,
                                  .key_dim = m.n_state,
                                  .value_dim = m.n_inner / m.n_heads});
  const ValueId gated = p.mul(y, p.silu(z));
  return p.linear(m.norm_eps ? p.group_norm(gated, "ssm_norm", m.n_groups, *m.norm_eps) : gated,
                  "ssm_out", width);
}

}  // namespace pumice::families
