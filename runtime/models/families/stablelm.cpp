// StableLM 3B, Zephyr and 2: Bellagente et al., "Stable LM 2 1.6B Technical Report", 2024. Llama
// with norms that have a mean, and a rope of a part of each head. The 12B has no second norm,
// attention and feed-forward side by side, and norms of the heads of q and k, each with its
// weights.
#include <cmath>

#include "models/families.hpp"

namespace pumice::families {

Result<Program> build_stablelm(const Metadata& metadata) {
  PUMICE_TRY(const ModelDimensions d, metadata.read_dimensions());
  PUMICE_TRY(const RopeSource rope, metadata.read_rope(d));
  PUMICE_TRY(const float eps, metadata.read_layer_norm_eps());
  const auto bias = metadata.has_tensor("blk.0.attn_q.bias") ? ProgramBuilder::Bias::kAdded
                                                             : ProgramBuilder::Bias::kNone;
  const bool head_norms = metadata.has_tensor("blk.0.attn_q_norm.weight");
  const bool parallel = !metadata.has_tensor("blk.0.ffn_norm.weight");

  ProgramBuilder p(d);
  const auto positions = p.rotation(rope, d.head_dim, ProgramBuilder::Pairs::kHalves);
  const uint32_t cache = p.state_group("full", d.n_kv_heads, d.head_dim);
  const double scale = 1 / std::sqrt(d.head_dim);

  ValueId x = p.embed("token_embd", d.n_embd, d.n_vocab);
  for (uint32_t i = 0; i < d.n_layers; ++i) {
    p.begin_layer(x);
    const ValueId h = p.layer_norm(x, "attn_norm", eps);
    ValueId q = p.linear(h, "attn_q", d.q_dim(), bias);
    if (head_norms) q = p.head_layer_norm(q, "attn_q_norm", d.head_dim, eps);
    q = p.rope(q, positions);
    ValueId k = p.linear(h, "attn_k", d.kv_dim(), bias);
    if (head_norms) k = p.head_layer_norm(k, "attn_k_norm", d.head_dim, eps);
    k = p.rope(k, positions);
    const ValueId v = p.linear(h, "attn_v", d.kv_dim(), bias);
    const ValueId kv = p.append(cache, k, v);
    const ValueId a = p.attention(q, kv, {.n_heads = d.n_heads, .scale = scale});
    x = p.add(x, p.linear(a, "attn_output", d.n_embd));

    const ValueId f = parallel ? h : p.layer_norm(x, "ffn_norm", eps);
    x = p.add(x, p.gated_ffn(f, ActivationKind::kSilu, d.n_ff));
    p.end_layer(x);
  }
  x = p.layer_norm(x, "output_norm", eps);
  return p.finish(p.linear(x, metadata.output_stem(), d.n_vocab));
}

}  // namespace pumice::families
