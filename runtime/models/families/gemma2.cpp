// Gemma 2: Gemma Team, "Gemma 2: Improving Open Language Models at a Practical Size", 2024. Norms
// before and after each block, soft caps on scores and logits, a window on every other layer.
#include <cmath>

#include "models/families.hpp"

namespace pumice::families {

Result<Program> build_gemma2(const ModelSource& source) {
  const Metadata metadata(source, "gemma2");
  PUMICE_TRY(const ModelDimensions d, metadata.read_dimensions());
  PUMICE_TRY(const RopeSource rope, metadata.read_rope(d));
  PUMICE_TRY(const float eps, metadata.read_rms_eps());
  PUMICE_TRY(const uint32_t window, metadata.read_window(4096));
  PUMICE_TRY(const double score_cap, metadata.read_positive("attn_logit_softcapping", 50));
  PUMICE_TRY(const double logit_cap, metadata.read_positive("final_logit_softcapping", 30));
  // No key says that the 27B, of 46 layers, divides by the width of a head in its embedding.
  const double scale = 1 / std::sqrt(d.n_layers == 46 ? d.n_embd / d.n_heads : d.head_dim);

  ProgramBuilder p(d);
  const auto positions = p.rotation(rope, d.head_dim, ProgramBuilder::Pairs::kHalves);
  const uint32_t recent = p.state_group("window", d.n_kv_heads, d.head_dim, window);
  const uint32_t full = p.state_group("full", d.n_kv_heads, d.head_dim);

  ValueId x = p.scale(p.embed("token_embd", d.n_embd, d.n_vocab), std::sqrt(d.n_embd));
  for (uint32_t i = 0; i < d.n_layers; ++i) {
    const bool windowed = i % 2 == 0;
    p.begin_layer(x);
    const ValueId h = p.rms_norm(x, "attn_norm", eps);
    const ValueId q = p.rope(p.linear(h, "attn_q", d.q_dim()), positions);
    const ValueId k = p.rope(p.linear(h, "attn_k", d.kv_dim()), positions);
    const ValueId v = p.linear(h, "attn_v", d.kv_dim());
    const ValueId kv = p.append(windowed ? recent : full, k, v);
    const ValueId a = p.attention(q, kv,
                                  {.n_heads = d.n_heads,
                                   .scale = scale,
                                   .window = windowed ? window : 0,
                                   .soft_cap = score_cap});
    x = p.add(x, p.rms_norm(p.linear(a, "attn_output", d.n_embd), "post_attention_norm", eps));

    const ValueId f = p.rms_norm(x, "ffn_norm", eps);
    const ValueId gate = p.gelu_tanh(p.linear(f, "ffn_gate", d.n_ff));
    const ValueId up = p.linear(f, "ffn_up", d.n_ff);
    const ValueId down = p.linear(p.mul(gate, up), "ffn_down", d.n_embd);
    x = p.add(x, p.rms_norm(down, "post_ffw_norm", eps));
    p.end_layer(x);
  }
  x = p.rms_norm(x, "output_norm", eps);
  return p.finish(p.soft_cap(p.linear(x, metadata.output_stem(), d.n_vocab), logit_cap));
}

}  // namespace pumice::families
