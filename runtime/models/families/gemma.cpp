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
  const ProgramBuilder::SelfAttention attention{
      .state_group = p.state_group("full", d.n_kv_heads, d.head_dim),
      .attention = {.n_heads = d.n_heads, .scale = 1 / std::sqrt(d.head_dim)},
      .rotation = p.rotation(rope, d.head_dim, ProgramBuilder::Pairs::kHalves)};

  ValueId x = p.scale(p.embed("token_embd", d.n_embd, d.n_vocab), std::sqrt(d.n_embd));
  for (uint32_t i = 0; i < d.n_layers; ++i) {
    p.begin_layer(x);
    x = p.add(x, p.self_attention(p.rms_norm(x, "attn_norm", eps), attention));

    const ValueId f = p.rms_norm(x, "ffn_norm", eps);
    x = p.add(x, p.gated_ffn(f, ActivationKind::kGeluTanh, d.n_ff));
    p.end_layer(x);
  }
  x = p.rms_norm(x, "output_norm", eps);
  return p.finish(p.linear(x, metadata.output_stem(), d.n_vocab));
}

}  // namespace pumice::families
