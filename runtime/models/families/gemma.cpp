// Gemma 1: Gemma Team, "Gemma: Open Models Based on Gemini Research and Technology", 2024. Llama
// with gates of GELU and embeddings times the root of their width. Files have the 1 that the paper
// adds to the weights of norms in them.
#include <cmath>

#include "models/families.hpp"

namespace pumice::families {

Result<Program> build_gemma(const Metadata& metadata) {
  PUMICE_TRY(const ModelDimensions d, metadata.read_dimensions());
  PUMICE_TRY(const RopeSource rope, metadata.read_rope(d));
  PUMICE_TRY(const float eps, metadata.read_rms_eps());

  ProgramBuilder p(d);
  const auto attention = p.full_attention(d, rope, ProgramBuilder::Pairs::kHalves);

  ValueId x = p.scale(p.embed("token_embd", d.n_embd, d.n_vocab), std::sqrt(d.n_embd));
  for (uint32_t i = 0; p.next_layer(x, i, d.n_layers); ++i) {
    x = p.add(x, p.self_attention(p.rms_norm(x, "attn_norm", eps), attention));

    const ValueId f = p.rms_norm(x, "ffn_norm", eps);
    x = p.add(x, p.gated_ffn(f, ActivationKind::kGeluTanh, d.n_ff));
  }
  return p.finish(x, metadata.output_stem(), eps);
}

}  // namespace pumice::families
