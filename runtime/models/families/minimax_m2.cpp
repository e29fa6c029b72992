// MiniMax M2: MiniMax, "MiniMax-M2", 2025. q and k are normalised over all heads at once, half of a
// head turns, and every layer has experts chosen by sigmoids.
#include "models/families.hpp"

namespace pumice::families {

Result<Program> build_minimax_m2(const Metadata& metadata) {
  PUMICE_TRY(const ModelDimensions d, metadata.read_dimensions());
  PUMICE_TRY(const ExpertSource experts, metadata.read_experts(d, kSigmoidRouter));
  PUMICE_TRY(const RopeSource rope, metadata.read_rope(d));
  PUMICE_TRY(const float eps, metadata.read_rms_eps());

  ProgramBuilder p(d);
  auto attention = p.full_attention(d, rope, ProgramBuilder::Pairs::kHalves);
  attention.head_norm_eps = eps;
  attention.head_norm = ProgramBuilder::HeadNorm::kAllHeads;

  ValueId x = p.embed("token_embd", d.n_embd, d.n_vocab);
  for (uint32_t i = 0; p.next_layer(x, i, d.n_layers); ++i) {
    x = p.add(x, p.self_attention(p.rms_norm(x, "attn_norm", eps), attention));

    const ValueId f = p.rms_norm(x, "ffn_norm", eps);
    x = p.add(x, p.experts(f, {.source = experts, .selection_bias = "exp_probs_b"}));
  }
  return p.finish(x, metadata.output_stem(), eps);
}

}  // namespace pumice::families
