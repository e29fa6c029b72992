// Command R and R+: Cohere, 2024. Attention and feed-forward side by side after one norm, which has
// a mean and no bias; scaled logits. R+ norms the heads of q and k, each with its own weights.
#include "models/families.hpp"

namespace pumice::families {

Result<Program> build_command_r(const Metadata& metadata) {
  PUMICE_TRY(const ModelDimensions d, metadata.read_dimensions());
  PUMICE_TRY(const RopeSource rope, metadata.read_rope(d));
  PUMICE_TRY(const float eps, metadata.read_layer_norm_eps());
  PUMICE_TRY(const double logit_scale, metadata.read_positive("logit_scale", 1));

  ProgramBuilder p(d);
  constexpr auto kNoBias = ProgramBuilder::Bias::kNone;
  auto attention = p.full_attention(d, rope, ProgramBuilder::Pairs::kNeighbours);
  if (metadata.has_tensor("blk.0.attn_q_norm.weight")) attention.head_norm_eps = eps;
  attention.head_norm = ProgramBuilder::HeadNorm::kLayerNorm;

  ValueId x = p.embed("token_embd", d.n_embd, d.n_vocab);
  for (uint32_t i = 0; p.next_layer(x, i, d.n_layers); ++i) {
    const ValueId h = p.layer_norm(x, "attn_norm", eps, kNoBias);
    x = p.add(x, p.self_attention(h, attention));
    x = p.add(x, p.gated_ffn(h, ActivationKind::kSilu, d.n_ff));
  }
  x = p.layer_norm(x, "output_norm", eps, kNoBias);
  return p.finish(p.scale(p.linear(x, "token_embd", d.n_vocab), logit_scale));
}

}  // namespace pumice::families
