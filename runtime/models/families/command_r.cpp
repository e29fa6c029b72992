// Command R and R+: Cohere, 2024. Attention and feed-forward side by side after one norm, which has
// a mean and no bias; scaled logits. R+ norms the heads of q and k, each with its own weights.
#include <cmath>

#include "models/families.hpp"

namespace pumice::families {

Result<Program> build_command_r(const Metadata& metadata) {
  PUMICE_TRY(const ModelDimensions d, metadata.read_dimensions());
  PUMICE_TRY(const RopeSource rope, metadata.read_rope(d));
  PUMICE_TRY(const float eps, metadata.read_layer_norm_eps());
  PUMICE_TRY(const double logit_scale, metadata.read_positive("logit_scale", 1));
  const bool head_norms = metadata.has_tensor("blk.0.attn_q_norm.weight");

  ProgramBuilder p(d);
  constexpr auto kNoBias = ProgramBuilder::Bias::kNone;
  const auto positions = p.rotation(rope, d.head_dim, ProgramBuilder::Pairs::kNeighbours);
  const uint32_t cache = p.state_group("full", d.n_kv_heads, d.head_dim);
  const double scale = 1 / std::sqrt(d.head_dim);

  ValueId x = p.embed("token_embd", d.n_embd, d.n_vocab);
  for (uint32_t i = 0; i < d.n_layers; ++i) {
    p.begin_layer(x);
    const ValueId h = p.layer_norm(x, "attn_norm", eps, kNoBias);
    ValueId q = p.linear(h, "attn_q", d.q_dim());
    if (head_norms) q = p.head_layer_norm(q, "attn_q_norm", d.head_dim, eps);
    q = p.rope(q, positions);
    ValueId k = p.linear(h, "attn_k", d.kv_dim());
    if (head_norms) k = p.head_layer_norm(k, "attn_k_norm", d.head_dim, eps);
    k = p.rope(k, positions);
    const ValueId v = p.linear(h, "attn_v", d.kv_dim());
    const ValueId kv = p.append(cache, k, v);
    const ValueId a = p.attention(q, kv, {.n_heads = d.n_heads, .scale = scale});
    x = p.add(x, p.linear(a, "attn_output", d.n_embd));

    x = p.add(x, p.gated_ffn(h, ActivationKind::kSilu, d.n_ff));
    p.end_layer(x);
  }
  x = p.layer_norm(x, "output_norm", eps, kNoBias);
  return p.finish(p.scale(p.linear(x, "token_embd", d.n_vocab), logit_scale));
}

}  // namespace pumice::families
