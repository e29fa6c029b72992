// OLMo 2: OLMo Team, "2 OLMo 2 Furious", 2025. Norms come after attention and after the
// feed-forward rather than before, and q and k are normalised over all heads at once.
#include "models/families.hpp"

namespace pumice::families {

Result<Program> build_olmo2(const Metadata& metadata) {
  PUMICE_TRY(const ModelDimensions d, metadata.read_dimensions());
  PUMICE_TRY(const RopeSource rope, metadata.read_rope(d));
  PUMICE_TRY(const float eps, metadata.read_rms_eps());

  ProgramBuilder p(d);
  auto attention = p.full_attention(d, rope, ProgramBuilder::Pairs::kHalves);
  attention.head_norm_eps = eps;
  attention.head_norm = ProgramBuilder::HeadNorm::kAllHeads;

  ValueId x = p.embed("token_embd", d.n_embd, d.n_vocab);
  for (uint32_t i = 0; p.next_layer(x, i, d.n_layers); ++i) {
    x = p.add(x, p.rms_norm(p.self_attention(x, attention), "post_attention_norm", eps));

    const ValueId f = p.gated_ffn(x, ActivationKind::kSilu, d.n_ff);
    x = p.add(x, p.rms_norm(f, "post_ffw_norm", eps));
  }
  return p.finish(x, metadata.output_stem(), eps);
}

}  // namespace pumice::families
