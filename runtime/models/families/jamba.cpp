// Jamba: Lieber et al., "Jamba: A Hybrid Transformer-Mamba Language Model", 2024. Most layers are
// Mamba (Gu and Dao, "Mamba: Linear-Time Sequence Modeling with Selective State Spaces", 2023)
// whose step, B and C are normed; those with kv heads are attention without rope, and some have
// experts.
#include <fmt/core.h>

#include "models/families.hpp"
#include "shaders/recurrence/recurrence.hpp"

namespace pumice::families {
namespace {

struct Mamba {
  uint32_t n_inner;
  uint32_t n_state;
  uint32_t step_rank;
  uint32_t taps;
  float norm_eps;
  uint32_t state_group = 0;
};

Result<Mamba> read_mamba(const Metadata& metadata) {
  Mamba m{};
  PUMICE_TRY(m.n_inner, metadata.read_count("ssm.inner_size"));
  PUMICE_TRY(m.n_state, metadata.read_count("ssm.state_size", ops::Recurrence::kMostStateKeyDim));
  PUMICE_TRY(m.step_rank, metadata.read_count("ssm.time_step_rank"));
  PUMICE_TRY(m.taps, metadata.read_taps("ssm.conv_kernel"));
  PUMICE_TRY(m.norm_eps, metadata.read_rms_eps());
  return m;
}

/// out · (scan(conv(x), Δ, B, C) · silu(z)), as wide as h. A channel's state is a row of one
/// head's, and each of its numbers decays by itself.
ValueId mamba(ProgramBuilder& p, ValueId h, uint32_t width, const Mamba& m) {
  const ValueId in = p.linear(h, "ssm_in", 2 * m.n_inner);
  const ValueId z = p.split(in, m.n_inner, m.n_inner);
  const ValueId x = p.causal_conv(p.split(in, 0, m.n_inner), "ssm_conv1d",
                                  {.state_group = m.state_group,
                                   .taps = m.taps,
                                   .bias = ProgramBuilder::Bias::kAdded,
                                   .silu = true});
  const ValueId low = p.linear(x, "ssm_x", m.step_rank + 2 * m.n_state);
  const ValueId dt = p.rms_norm(p.split(low, 0, m.step_rank), "ssm_dt_norm", m.norm_eps);
  const ValueId b = p.rms_norm(p.split(low, m.step_rank, m.n_state), "ssm_b_norm", m.norm_eps);
  const ValueId c =
      p.rms_norm(p.split(low, m.step_rank + m.n_state, m.n_state), "ssm_c_norm", m.norm_eps);
  const ValueId step = p.linear(dt, "ssm_dt", m.n_inner);
  const ValueId y = p.recurrence(c, b, x, step, std::nullopt,
                                 {.state_group = m.state_group,
                                  .n_heads = 1,
                                  .n_key_heads = 1,
                                  .key_dim = m.n_state,
                                  .value_dim = m.n_inner,
                                  .decay = StateDecay::kState});
  return p.linear(p.mul(y, p.silu(z)), "ssm_out", width);
}

}  // namespace

Result<Program> build_jamba(const Metadata& metadata) {
  constexpr auto kLayers = Metadata::Layers::kSomeHaveNone;
  PUMICE_TRY(const ModelDimensions d, metadata.read_dimensions(kLayers));
  PUMICE_TRY(const std::vector<uint32_t> kv_heads,
             metadata.read_layer_counts("attention.head_count_kv", d.n_layers, kLayers));
  PUMICE_TRY(const ExpertSource experts, metadata.read_experts(d, {.renormalised = false}));
  PUMICE_TRY(Mamba own, read_mamba(metadata));
  PUMICE_TRY(const float eps, metadata.read_rms_eps());

  ProgramBuilder p(d);
  const auto attention = p.full_attention(d);
  own.state_group = p.recurrent_group("mamba");

  ValueId x = p.embed("token_embd", d.n_embd, d.n_vocab);
  for (uint32_t i = 0; p.next_layer(x, i, d.n_layers); ++i) {
    const ValueId h = p.rms_norm(x, "attn_norm", eps);
    PUMICE_TRY_STATUS(metadata.expect_kv_heads(kv_heads[i], d, i));
    x = p.add(x, kv_heads[i] == 0 ? mamba(p, h, d.n_embd, own) : p.self_attention(h, attention));

    const ValueId f = p.rms_norm(x, "ffn_norm", eps);
    const bool routed = metadata.has_tensor(fmt::format("blk.{}.ffn_gate_inp.weight", i));
    x = p.add(x, routed && experts.n_experts > 0 ? p.experts(f, {.source = experts})
                                                 : p.gated_ffn(f, ActivationKind::kSilu, d.n_ff));
  }
  return p.finish(x, metadata.output_stem(), eps);
}

}  // namespace pumice::families
