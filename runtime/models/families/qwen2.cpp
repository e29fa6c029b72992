// Qwen 1.5, 2 and 2.5 and Seed-OSS: Yang et al., "Qwen2 Technical Report", 2024; ByteDance Seed
// Team, 2025. Llama with biases on q, k, v. In Seed-OSS the norm before the feed-forward has the
// name that others give to one after attention.
#include "models/families.hpp"

namespace pumice::families {

Result<Program> build_qwen2(const Metadata& metadata) {
  PUMICE_TRY(const ModelDimensions d, metadata.read_dimensions());
  PUMICE_TRY(const RopeSource rope, metadata.read_rope(d));
  PUMICE_TRY(const float eps, metadata.read_rms_eps());
  const auto* ffn_norm = d.architecture == "seed_oss" ? "post_attention_norm" : "ffn_norm";

  ProgramBuilder p(d);
  auto attention = p.full_attention(d, rope, ProgramBuilder::Pairs::kHalves);
  attention.bias = ProgramBuilder::Bias::kAdded;

  ValueId x = p.embed("token_embd", d.n_embd, d.n_vocab);
  for (uint32_t i = 0; p.next_layer(x, i, d.n_layers); ++i) {
    x = p.add(x, p.self_attention(p.rms_norm(x, "attn_norm", eps), attention));

    const ValueId f = p.rms_norm(x, ffn_norm, eps);
    x = p.add(x, p.gated_ffn(f, ActivationKind::kSilu, d.n_ff));
  }
  return p.finish(x, metadata.output_stem(), eps);
}

}  // namespace pumice::families
