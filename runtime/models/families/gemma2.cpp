// Gemma 2: Gemma Team, "Gemma 2: Improving Open Language Models at a Practical Size", 2024. Norms
// before and after each block, soft caps on scores and logits, a window on every other layer.
#include <cmath>

#include "models/families.hpp"

namespace pumice::families {

Result<Program> build_gemma2(const Metadata& metadata) {
  PUMICE_TRY(const ModelDimensions d, metadata.read_dimensions());
  PUMICE_TRY(const RopeSource rope, metadata.read_rope(d));
  PUMICE_TRY(const float eps, metadata.read_rms_eps());
  PUMICE_TRY(const uint32_t window, metadata.read_window(4096));
  PUMICE_TRY(const uint32_t period, metadata.read_window_period(2));
  PUMICE_TRY(const double score_cap, metadata.read_positive("attn_logit_softcapping", 50));
  PUMICE_TRY(const double logit_cap, metadata.read_positive("final_logit_softcapping", 30));
  // No key says that the 27B, of 46 layers, divides by the width of a head in its embedding.
  const double scale = 1 / std::sqrt(d.n_layers == 46 ? d.n_embd / d.n_heads : d.head_dim);

  ProgramBuilder p(d);
  const ProgramBuilder::SelfAttention recent{
      .state_group = p.state_group("window", d.n_kv_heads, d.head_dim, window),
      .attention = {.n_heads = d.n_heads, .scale = scale, .window = window, .soft_cap = score_cap},
      .rotation = p.rotation(rope, d.head_dim, ProgramBuilder::Pairs::kHalves)};
  ProgramBuilder::SelfAttention full = recent;
  full.state_group = p.state_group("full", d.n_kv_heads, d.head_dim);
  full.attention.window = 0;

  ValueId x = p.scale(p.embed("token_embd", d.n_embd, d.n_vocab), std::sqrt(d.n_embd));
  for (uint32_t i = 0; p.next_layer(x, i, d.n_layers); ++i) {
    const ValueId h = p.rms_norm(x, "attn_norm", eps);
    const ValueId a = p.self_attention(h, i % period != period - 1 ? recent : full);
    x = p.add(x, p.rms_norm(a, "post_attention_norm", eps));

    const ValueId f = p.rms_norm(x, "ffn_norm", eps);
    const ValueId down = p.gated_ffn(f, ActivationKind::kGeluTanh, d.n_ff);
    x = p.add(x, p.rms_norm(down, "post_ffw_norm", eps));
  }
  x = p.rms_norm(x, "output_norm", eps);
  return p.finish(p.soft_cap(p.linear(x, metadata.output_stem(), d.n_vocab), logit_cap));
}

}  // namespace pumice::families
