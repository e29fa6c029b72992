// Gemma 1: Gemma Team, "Gemma: Open Models Based on Gemini Research and Technology", 2024. Llama
// with gates of GELU and embeddings times the root of their width. Files have the 1 that the paper
// adds to the weights of norms in them.
#include <cmath>

#include "models/families.hpp"

namespace pumice::families {

Result<Program> build_gemma(const ModelSource& source) {
  const Metadata metadata(source, "gemma");
  PUMICE_TRY(const ModelDimensions d, metadata.read_dimensions());
  PUMICE_TRY(const RopeSource rope, metadata.read_rope(d));
  PUMICE_TRY(const float eps, metadata.read_rms_eps());

  ProgramBuilder p(d);
  const auto positions = p.rotation(rope, d.head_dim, ProgramBuilder::Pairs::kHalves);
  const uint32_t cache = p.state_group("full", d.n_kv_heads, d.head_dim);
  const double scale = 1 / std::sqrt(d.head_dim);

  ValueId x = p.scale(p.embed("token_embd", d.n_embd, d.n_vocab), std::sqrt(d.n_embd));
  for (uint32_t i = 0; i < d.n_layers; ++i) {
    p.begin_layer(x);
    const ValueId h = p.rms_norm(x, "attn_norm", eps);
    const ValueId q = p.rope(p.linear(h, "attn_q", d.q_dim()), positions);
    const ValueId k = p.rope(p.linear(h, "attn_k", d.kv_dim()), positions);
    const ValueId v = p.linear(h, "attn_v", d.kv_dim());
    const ValueId kv = p.append(cache, k, v);
    const ValueId a = p.attention(q, kv, {.n_heads = d.n_heads, .scale = scale});
    x = p.add(x, p.linear(a, "attn_output", d.n_embd));

    const ValueId f = p.rms_norm(x, "ffn_norm", eps);
    const ValueId gate = p.gelu_tanh(p.linear(f, "ffn_gate", d.n_ff));
    const ValueId up = p.linear(f, "ffn_up", d.n_ff);
    x = p.add(x, p.linear(p.mul(gate, up), "ffn_down", d.n_embd));
    p.end_layer(x);
  }
  x = p.rms_norm(x, "output_norm", eps);
  return p.finish(p.linear(x, metadata.output_stem(), d.n_vocab));
}

}  // namespace pumice::families
