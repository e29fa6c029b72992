// Gemma 3, text: Gemma Team, "Gemma 3 Technical Report", 2025. Five layers with a window and a rope
// of their own to each full one, norms before and after each block and on the heads of q and k.
#include <cmath>

#include "models/families.hpp"

namespace pumice::families {

Result<Program> build_gemma3(const Metadata& metadata) {
  PUMICE_TRY(const ModelDimensions d, metadata.read_dimensions());
  PUMICE_TRY(const RopeSource rope, metadata.read_rope(d));
  PUMICE_TRY(const float local_base, metadata.get_or<float>("rope.freq_base_swa", 10000));
  PUMICE_TRY(const float eps, metadata.read_rms_eps());
  double logit_cap = 0;
  if (metadata.has("final_logit_softcapping")) {
    PUMICE_TRY(logit_cap, metadata.read_positive("final_logit_softcapping", 30));
  }
  PUMICE_TRY(const uint32_t window, metadata.read_window(1024));
  PUMICE_TRY(const uint32_t period, metadata.read_window_period(6));
  // No key says that the 27B, of 62 layers, divides by the width of a head in its embedding.
  const double scale = 1 / std::sqrt(d.n_layers == 62 ? d.n_embd / d.n_heads : d.head_dim);

  ProgramBuilder p(d);
  constexpr auto kHalves = ProgramBuilder::Pairs::kHalves;
  const RopeSource local_rope{{.dims = rope.config.dims, .base = local_base}};
  const ProgramBuilder::SelfAttention recent{
      .state_group = p.state_group("window", d.n_kv_heads, d.head_dim, window),
      .attention = {.n_heads = d.n_heads, .scale = scale, .window = window},
      .rotation = p.rotation(local_rope, d.head_dim, kHalves),
      .head_norm_eps = eps};
  const ProgramBuilder::SelfAttention full{
      .state_group = p.state_group("full", d.n_kv_heads, d.head_dim),
      .attention = {.n_heads = d.n_heads, .scale = scale},
      .rotation = p.rotation(rope, d.head_dim, kHalves),
      .head_norm_eps = eps};

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
  x = p.linear(x, metadata.output_stem(), d.n_vocab);
  return p.finish(logit_cap == 0 ? x : p.soft_cap(x, logit_cap));
}

}  // namespace pumice::families
