// Kimi Linear: Kimi Team, "Kimi Linear: An Expressive, Efficient Attention Architecture", 2025.
// Most layers are Kimi delta attention, a gated delta net of whose state each key's column decays
// by itself; those with kv heads are attention by latents without rope. After the first layers
// experts, and one for all tokens.
#include <cmath>
#include <string_view>

#include "models/families.hpp"
#include "shaders/recurrence/recurrence.hpp"

namespace pumice::families {
namespace {

struct KimiDelta {
  uint32_t n_heads;
  uint32_t head_dim;
  uint32_t taps;
  float norm_eps;
  uint32_t state_group = 0;
};

/// out · (norm(o) · sigmoid(gate)), as wide as h.
ValueId delta_attention(ProgramBuilder& p, ValueId h, uint32_t width, const KimiDelta& net) {
  const uint32_t n = net.n_heads * net.head_dim;
  const auto mixed = [&](std::string_view product, std::string_view conv) {
    return p.causal_conv(
        p.linear(h, product, n), conv,
        {.state_group = net.state_group, .taps = net.taps, .silu = true, .has_channel_dim = true});
  };
  // x / √(Σx² + eps) is an RMS norm over √dim.
  const auto dim = static_cast<float>(net.head_dim);
  const float unit_eps = net.norm_eps / dim;
  const ValueId q = p.plain_head_norm(mixed("attn_q", "ssm_conv1d_q"), net.head_dim, unit_eps);
  const ValueId k = p.plain_head_norm(mixed("attn_k", "ssm_conv1d_k"), net.head_dim, unit_eps);
  const ValueId v = mixed("attn_v", "ssm_conv1d_v");
  const ValueId step = p.linear(p.linear(h, "ssm_f_a", net.head_dim), "ssm_f_b", n);
  const ValueId beta = p.linear(h, "ssm_beta", net.n_heads);
  const ValueId o = p.recurrence(q, k, v, step, beta,
                                 {.state_group = net.state_group,
                                  .n_heads = net.n_heads,
                                  .n_key_heads = net.n_heads,
                                  .key_dim = net.head_dim,
                                  .value_dim = net.head_dim,
                                  .decay = StateDecay::kKey,
                                  .q_scale = 1 / double{dim},
                                  .k_scale = 1 / std::sqrt(double{dim})});
  const ValueId normed = p.head_norm(o, "ssm_norm", net.head_dim, net.norm_eps);
  const ValueId gate = p.linear(p.linear(h, "ssm_g_a", net.head_dim), "ssm_g_b", n);
  return p.linear(p.mul(normed, p.sigmoid(gate)), "attn_output", width);
}

}  // namespace

Result<Program> build_kimi_linear(const Metadata& metadata) {
  constexpr auto kLayers = Metadata::Layers::kSomeHaveNone;
  LatentSource latent;
  PUMICE_TRY(const ModelDimensions d, metadata.read_latent_dimensions(latent, kLayers));
  PUMICE_TRY(const std::vector<uint32_t> kv_heads,
             metadata.read_layer_counts("attention.head_count_kv", d.n_layers, kLayers));
  PUMICE_TRY(const ExpertSource experts, metadata.read_experts(d, kSigmoidRouter));
  PUMICE_TRY(const uint32_t n_dense, metadata.read_dense_layers(d));
  PUMICE_TRY(const float eps, metadata.read_rms_eps());
  KimiDelta net{.n_heads = d.n_heads, .norm_eps = eps};
  PUMICE_TRY(net.head_dim, metadata.read_count("kda.head_dim", ops::Recurrence::kMostKeyDim));
  PUMICE_TRY(net.taps, metadata.read_taps("ssm.conv_kernel"));

  ProgramBuilder p(d);
  const uint32_t state = p.latent_group("latent", latent.rank + latent.n_turning, latent.rank);
  const ProgramBuilder::LatentAttention attention{
      .source = latent, .n_heads = d.n_heads, .scale = 1 / std::sqrt(d.head_dim), .norm_eps = eps};
  net.state_group = p.recurrent_group("delta");

  ValueId x = p.embed("token_embd", d.n_embd, d.n_vocab);
  for (uint32_t i = 0; p.next_layer(x, i, d.n_layers); ++i) {
    const ValueId h = p.rms_norm(x, "attn_norm", eps);
    x = p.add(x, kv_heads[i] == 0 ? delta_attention(p, h, d.n_embd, net)
                                  : p.latent_attention(h, state, attention));

    const ValueId f = p.rms_norm(x, "ffn_norm", eps);
    const bool dense = experts.n_experts == 0 || i < n_dense;
    x = p.add(x, dense ? p.gated_ffn(f, ActivationKind::kSilu, d.n_ff)
                       : p.experts(f, {.source = experts, .selection_bias = "exp_probs_b"}));
  }
  return p.finish(x, metadata.output_stem(), eps);
}

}  // namespace pumice::families
