// Qwen 3, dense, Qwen 3 VL (text) and Qwen3-Embedding: Yang et al., "Qwen3 Technical Report", 2025.
// Each head of q and k is normalised. Qwen 3 VL is the same where there is only text: the
// components of a position are equal then, so its rope turns like any other, and its deep layers get
// nothing of an image.

#include "models/families.hpp"

namespace pumice::families {

Result<Program> build_qwen3(const Metadata& metadata) {
  PUMICE_TRY(const ModelDimensions d, metadata.read_dimensions());
  PUMICE_TRY(const RopeSource rope, metadata.read_rope(d));
  PUMICE_TRY(const float eps, metadata.read_rms_eps());

  ProgramBuilder p(d);
  auto attention = p.full_attention(d, rope, ProgramBuilder::Pairs::kHalves);
  attention.head_norm_eps = eps;

  ValueId x = p.embed("token_embd", d.n_embd, d.n_vocab);
  for (uint32_t i = 0; p.next_layer(x, i, d.n_layers); ++i) {
    x = p.add(x, p.self_attention(p.rms_norm(x, "attn_norm", eps), attention));

    const ValueId f = p.rms_norm(x, "ffn_norm", eps);
    x = p.add(x, p.gated_ffn(f, ActivationKind::kSilu, d.n_ff));
  }
  return p.finish(x, metadata.output_stem(), eps);
}

}  // namespace pumice::families
