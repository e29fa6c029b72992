// Nemotron-H and Nemotron 3: NVIDIA, "Nemotron-H: A Family of Accurate and Efficient Hybrid
// Mamba-Transformer Models", 2025. A layer is one of Mamba-2, attention without rope, or a feed-forward of squares.
// Nemotron 3 has experts in place of feed-forwards, the larger ones in a latent.
#include <fmt/core.h>

#include <string_view>

#include "models/families.hpp"
#include "models/families/mamba2.hpp"

namespace pumice::families {
namespace {

/// down · relu(up · x)²
ValueId squares(ProgramBuilder& p, ValueId x, std::string_view up_stem, std::string_view down_stem,
                uint32_t n_ff, uint32_t width) {
  const ValueId up = p.relu(p.linear(x, up_stem, n_ff));
  return p.linear(p.mul(up, up), down_stem, width);
}

/// Experts read and write a latent of the row, where there is one; the router and what is shared
/// have the row itself.
ValueId mixture(ProgramBuilder& p, ValueId h, uint32_t width, const ExpertSource& experts,
                uint32_t n_latent) {
  const uint32_t n = experts.n_experts;
  const ValueId scores = p.linear(h, "ffn_gate_inp", n);
  const ValueId to = p.route(scores, experts.n_used, experts.router, "exp_probs_b");
  const ValueId x = n_latent == 0 ? h : p.linear(h, "ffn_latent_down", n_latent);
  const uint32_t inner = n_latent == 0 ? width : n_latent;
  const ValueId up = p.relu(p.expert_linear(x, to, "ffn_up_exps", {inner, experts.n_ff, n}));
  const ValueId down =
      p.expert_linear(p.mul(up, up), to, "ffn_down_exps", {experts.n_ff, inner, n});
  const ValueId sum = p.combine(down, to);
  const ValueId routed = n_latent == 0 ? sum : p.linear(sum, "ffn_latent_up", width);
  if (experts.n_ff_shared == 0) return routed;
  return p.add(routed, squares(p, h, "ffn_up_shexp", "ffn_down_shexp", experts.n_ff_shared, width));
}

}  // namespace

Result<Program> build_nemotron_h(const Metadata& metadata) {
  constexpr auto kLayers = Metadata::Layers::kSomeHaveNone;
  PUMICE_TRY(const ModelDimensions d, metadata.read_dimensions(kLayers));
  PUMICE_TRY(const std::vector<uint32_t> kv_heads,
             metadata.read_layer_counts("attention.head_count_kv", d.n_layers, kLayers));
  PUMICE_TRY(const std::vector<uint32_t> n_ff,
             metadata.read_layer_counts("feed_forward_length", d.n_layers, kLayers));
  PUMICE_TRY(const ExpertSource experts, metadata.read_experts(d, kSigmoidRouter));
  uint32_t n_latent = 0;
  if (metadata.has("moe_latent_size")) {
    PUMICE_TRY(n_latent, metadata.read_count("moe_latent_size"));
  }
  PUMICE_TRY(Mamba2 mamba, read_mamba2(metadata));
  PUMICE_TRY(const float eps, metadata.read_rms_eps());

  ProgramBuilder p(d);
  const auto attention = p.full_attention(d);
  mamba.state_group = p.recurrent_group("mamba");
  mamba.norm_eps = eps;

  ValueId x = p.embed("token_embd", d.n_embd, d.n_vocab);
  for (uint32_t i = 0; p.next_layer(x, i, d.n_layers); ++i) {
    const ValueId h = p.rms_norm(x, "attn_norm", eps);
    PUMICE_TRY_STATUS(metadata.expect_kv_heads(kv_heads[i], d, i));
    const bool routed = metadata.has_tensor(fmt::format("blk.{}.ffn_gate_inp.weight", i));
    if (routed && experts.n_experts > 0) {
      x = p.add(x, mixture(p, h, d.n_embd, experts, n_latent));
    } else if (n_ff[i] > 0) {
      x = p.add(x, squares(p, h, "ffn_up", "ffn_down", n_ff[i], d.n_embd));
    } else if (kv_heads[i] > 0) {
      x = p.add(x, p.self_attention(h, attention));
    } else {
      x = p.add(x, mamba2(p, h, d.n_embd, mamba));
    }
  }
  return p.finish(x, metadata.output_stem(), eps);
}

}  // namespace pumice::families
