// Qwen3-Next and Qwen 3.5: Qwen Team, 2025 and 2026. Most layers are gated delta nets (Yang et al.,
// "Gated Delta Networks", 2024), every full_attention_interval-th is attention whose output is
// gated. They differ in which key head a value head has, and in how their products are stacked.
#include <cmath>

#include "models/families.hpp"
#include "shaders/recurrence/recurrence.hpp"

namespace pumice::families {
namespace {

struct DeltaNet {
  uint32_t n_key_heads;
  uint32_t n_heads;
  uint32_t key_dim;
  uint32_t value_dim;
  uint32_t taps;
  bool stacked;  ///< betas and steps are one product, of one key head after the other
  uint32_t state_group = 0;
};

Result<DeltaNet> read_delta_net(const Metadata& metadata, bool stacked) {
  DeltaNet net{.stacked = stacked};
  PUMICE_TRY(const uint32_t n_inner, metadata.read_count("ssm.inner_size"));
  PUMICE_TRY(net.n_heads, metadata.read_count("ssm.time_step_rank"));
  PUMICE_TRY(net.n_key_heads, metadata.read_count("ssm.group_count"));
  PUMICE_TRY(net.key_dim, metadata.read_count("ssm.state_size", ops::Recurrence::kMostKeyDim));
  PUMICE_TRY(net.taps, metadata.read_taps("ssm.conv_kernel"));
  if (n_inner % net.n_heads != 0 || net.n_heads % net.n_key_heads != 0) {
    return make_error(ErrorCode::kBadFile,
                      "ssm.inner_size: {} heads, {} of keys, cannot share {} numbers", net.n_heads,
                      net.n_key_heads, n_inner);
  }
  net.value_dim = n_inner / net.n_heads;
  return net;
}

ValueId delta_net(ProgramBuilder& p, ValueId h, uint32_t width, const DeltaNet& net, float eps) {
  const uint32_t n_keys = net.n_key_heads * net.key_dim;
  const uint32_t n_values = net.n_heads * net.value_dim;
  const ValueId qkv = p.linear(h, "attn_qkv", 2 * n_keys + n_values);
  const ValueId z = p.linear(h, "attn_gate", n_values);
  ValueId beta = 0;
  ValueId step = 0;
  if (net.stacked) {
    const uint32_t n = net.n_heads / net.n_key_heads;
    const ValueId both = p.linear(h, "ssm_ba", 2 * net.n_heads);
    beta = p.split_groups(both, 2 * n, 0, n);
    step = p.split_groups(both, 2 * n, n, n);
  } else {
    beta = p.linear(h, "ssm_beta", net.n_heads);
    step = p.linear(h, "ssm_alpha", net.n_heads);
  }
  const ValueId mixed = p.causal_conv(
      qkv, "ssm_conv1d", {.state_group = net.state_group, .taps = net.taps, .silu = true});
  // x / √(Σx² + eps) is an RMS norm over √n.
  const float n = static_cast<float>(net.key_dim);
  const ValueId qk = p.plain_head_norm(p.split(mixed, 0, 2 * n_keys), net.key_dim, eps / n);
  const ValueId q = p.split(qk, 0, n_keys);
  const ValueId k = p.split(qk, n_keys, n_keys);
  const ValueId v = p.split(mixed, 2 * n_keys, n_values);
  const ValueId y = p.recurrence(q, k, v, step, beta,
                                 {.state_group = net.state_group,
                                  .n_heads = net.n_heads,
                                  .n_key_heads = net.n_key_heads,
                                  .key_dim = net.key_dim,
                                  .value_dim = net.value_dim,
                                  .by_remainder = !net.stacked,
                                  .q_scale = 1 / double{n},
                                  .k_scale = 1 / std::sqrt(double{n})});
  const ValueId normed = p.head_norm(y, "ssm_norm", net.value_dim, eps);
  return p.linear(p.mul(normed, p.silu(z)), "ssm_out", width);
}

Result<Program> build(const Metadata& metadata, bool stacked, ModelPart part) {
  PUMICE_TRY(ModelDimensions d, metadata.read_dimensions());
  PUMICE_TRY(const Blocks blocks, metadata.read_blocks(d, part));
  PUMICE_TRY(const ExpertSource experts, metadata.read_experts(d));
  PUMICE_TRY(DeltaNet net, read_delta_net(metadata, stacked));
  PUMICE_TRY(const uint32_t interval, metadata.read_count("full_attention_interval"));
  PUMICE_TRY(const RopeSource rope, metadata.read_rope(d));
  PUMICE_TRY(const float eps, metadata.read_rms_eps());

  ProgramBuilder p(d);
  auto attention = p.full_attention(d, rope, ProgramBuilder::Pairs::kHalves);
  attention.head_norm_eps = eps;
  attention.gated_q = true;
  if (!blocks.predicts()) net.state_group = p.recurrent_group("delta");
  const ProgramBuilder::Experts mixture{
      .source = experts,
      .merged = metadata.has_tensor(blocks.tensor("ffn_gate_up_exps.weight")),
      .shared_gate = "ffn_gate_inp_shexp"};

  ValueId x = p.input(blocks, d.n_embd, eps);
  for (uint32_t i = blocks.first; p.next_layer(x, i, blocks.end); ++i) {
    const ValueId h = p.rms_norm(x, "attn_norm", eps);
    const bool attends = blocks.predicts() || (i + 1) % interval == 0;
    x = p.add(x, attends ? p.self_attention(h, attention) : delta_net(p, h, d.n_embd, net, eps));

    const ValueId f = p.rms_norm(x, "post_attention_norm", eps);
    x = p.add(x, experts.n_experts == 0 ? p.gated_ffn(f, ActivationKind::kSilu, d.n_ff)
                                        : p.experts(f, mixture));
  }
  return p.finish(x, blocks, eps);
}

}  // namespace

Result<Program> build_qwen3next(const Metadata& metadata, ModelPart part) {
  return build(metadata, true, part);
}
Result<Program> build_qwen35(const Metadata& metadata, ModelPart part) {
  return build(metadata, false, part);
}

}  // namespace pumice::families
