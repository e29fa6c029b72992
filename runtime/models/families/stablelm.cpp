// StableLM 3B, Zephyr and 2: Bellagente et al., "Stable LM 2 1.6B Technical Report", 2024. Llama
// with norms that have a mean, and a rope of a part of each head. The 12B has no second norm,
// attention and feed-forward side by side, and norms of the heads of q and k, each with its
// weights.
#include "models/families.hpp"

namespace pumice::families {

Result<Program> build_stablelm(const Metadata& metadata) {
  PUMICE_TRY(const ModelDimensions d, metadata.read_dimensions());
  PUMICE_TRY(const RopeSource rope, metadata.read_rope(d));
  PUMICE_TRY(const float eps, metadata.read_layer_norm_eps());
  const bool parallel = !metadata.has_tensor("blk.0.ffn_norm.weight");

  ProgramBuilder p(d);
  auto attention = p.full_attention(d, rope, ProgramBuilder::Pairs::kHalves);
  if (metadata.has_tensor("blk.0.attn_q.bias")) attention.bias = ProgramBuilder::Bias::kAdded;
  if (metadata.has_tensor("blk.0.attn_q_norm.weight")) attention.head_norm_eps = eps;
  attention.head_norm = ProgramBuilder::HeadNorm::kLayerNorm;

  ValueId x = p.embed("token_embd", d.n_embd, d.n_vocab);
  for (uint32_t i = 0; p.next_layer(x, i, d.n_layers); ++i) {
    const ValueId h = p.layer_norm(x, "attn_norm", eps);
    x = p.add(x, p.self_attention(h, attention));

    const ValueId f = parallel ? h : p.layer_norm(x, "ffn_norm", eps);
    x = p.add(x, p.gated_ffn(f, ActivationKind::kSilu, d.n_ff));
  }
  x = p.layer_norm(x, "output_norm", eps);
  return p.finish(p.linear(x, metadata.output_stem(), d.n_vocab));
}

}  // namespace pumice::families
