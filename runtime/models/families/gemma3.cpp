// Gemma 3, text: Gemma Team, "Gemma 3 Technical Report", 2025. Five layers with a window and a rope
// of their own to each full one, norms before and after each block and on the heads of q and k.
#include <cmath>

#include "models/families.hpp"

namespace pumice::families {

Result<Program> build_gemma3(const ModelSource& source) {
  const Metadata metadata(source, "gemma3");
  PUMICE_TRY(const ModelDimensions d, metadata.read_dimensions());
  PUMICE_TRY(const RopeSource rope, metadata.read_rope(d));
  PUMICE_TRY(const float local_base, metadata.get_or<float>("rope.freq_base_swa", 10000));
  PUMICE_TRY(const float eps, metadata.read_rms_eps());
  PUMICE_TRY(const uint32_t window, metadata.read_window(1024));
  // No key says that the 27B, of 62 layers, divides by the width of a head in its embedding.
  const double scale = 1 / std::sqrt(d.n_layers == 62 ? d.n_embd / d.n_heads : d.head_dim);

  ProgramBuilder p(d);
  constexpr auto kHalves = ProgramBuilder::Pairs::kHalves;
  const RopeSource local_rope{{.dims = rope.config.dims, .base = local_base}};
  const auto local = p.rotation(local_rope, d.head_dim, kHalves);
  const auto global = p.rotation(rope, d.head_dim, kHalves);
  const uint32_t recent = p.state_group("window", d.n_kv_heads, d.head_dim, window);
  const uint32_t full = p.state_group("full", d.n_kv_heads, d.head_dim);

  ValueId x = p.scale(p.embed("token_embd", d.n_embd, d.n_vocab), std::sqrt(d.n_embd));
  for (uint32_t i = 0; i < d.n_layers; ++i) {
    const bool windowed = i % 6 != 5;
    const auto& positions = windowed ? local : global;
    p.begin_layer(x);
    const ValueId h = p.rms_norm(x, "attn_norm", eps);
    ValueId q = p.linear(h, "attn_q", d.q_dim());
    q = p.rope(p.head_norm(q, "attn_q_norm", d.head_dim, eps), positions);
    ValueId k = p.linear(h, "attn_k", d.kv_dim());
    k = p.rope(p.head_norm(k, "attn_k_norm", d.head_dim, eps), positions);
    const ValueId v = p.linear(h, "attn_v", d.kv_dim());
    const ValueId kv = p.append(windowed ? recent : full, k, v);
    const ValueId a =
        p.attention(q, kv, {.n_heads = d.n_heads, .scale = scale, .window = windowed ? window : 0});
    x = p.add(x, p.rms_norm(p.linear(a, "attn_output", d.n_embd), "post_attention_norm", eps));

    const ValueId f = p.rms_norm(x, "ffn_norm", eps);
    const ValueId gate = p.gelu_tanh(p.linear(f, "ffn_gate", d.n_ff));
    const ValueId up = p.linear(f, "ffn_up", d.n_ff);
    const ValueId down = p.linear(p.mul(gate, up), "ffn_down", d.n_embd);
    x = p.add(x, p.rms_norm(down, "post_ffw_norm", eps));
    p.end_layer(x);
  }
  x = p.rms_norm(x, "output_norm", eps);
  return p.finish(p.linear(x, metadata.output_stem(), d.n_vocab));
}

}  // namespace pumice::families
