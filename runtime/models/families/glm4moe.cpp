// GLM 4.5 to 4.7: GLM-4.5 Team, "GLM-4.5: Agentic, Reasoning, and Coding Foundation Models", 2025.
// The first layers are dense; the others have experts chosen by sigmoids, and one for all tokens.
// The larger ones normalise the heads of q and k.
#include "models/families.hpp"

namespace pumice::families {

Result<Program> build_glm4moe(const Metadata& metadata, ModelPart part) {
  PUMICE_TRY(ModelDimensions d, metadata.read_dimensions());
  PUMICE_TRY(const Blocks blocks, metadata.read_blocks(d, part));
  PUMICE_TRY(const ExpertSource experts, metadata.read_experts(d, kPlainSigmoidRouter));
  PUMICE_TRY(const uint32_t n_dense, metadata.read_dense_layers(d));
  PUMICE_TRY(const RopeSource rope, metadata.read_rope(d));
  PUMICE_TRY(const float eps, metadata.read_rms_eps());

  ProgramBuilder p(d);
  auto attention = p.full_attention(d, rope, ProgramBuilder::Pairs::kHalves);
  attention.bias = ProgramBuilder::Bias::kAdded;
  if (metadata.has_tensor(blocks.tensor("attn_q_norm.weight"))) attention.head_norm_eps = eps;

  ValueId x = p.input(blocks, d.n_embd, eps);
  for (uint32_t i = blocks.first; p.next_layer(x, i, blocks.end); ++i) {
    x = p.add(x, p.self_attention(p.rms_norm(x, "attn_norm", eps), attention));

    const ValueId f = p.rms_norm(x, "post_attention_norm", eps);
    x = p.add(x, i < n_dense ? p.gated_ffn(f, ActivationKind::kSilu, d.n_ff)
                             : p.experts(f, {.source = experts, .selection_bias = "exp_probs_b"}));
  }
  return p.finish(x, blocks, eps);
}

}  // namespace pumice::families
