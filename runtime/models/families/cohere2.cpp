// Command R7B and A, Aya: Cohere, "Command A: An Enterprise-Ready Large Language Model", 2025.
// Command R with a window and a rope in three layers of four; the fourth sees all, without a rope.
#include <cmath>

#include "models/families.hpp"

namespace pumice::families {

Result<Program> build_cohere2(const ModelSource& source) {
  const Metadata metadata(source, "cohere2");
  PUMICE_TRY(const ModelDimensions d, metadata.read_dimensions());
  PUMICE_TRY(const RopeSource rope, metadata.read_rope(d));
  PUMICE_TRY(const float eps, metadata.read_layer_norm_eps());
  PUMICE_TRY(const double logit_scale, metadata.read_positive("logit_scale", 1));
  PUMICE_TRY(const uint32_t window, metadata.read_window(4096));

  ProgramBuilder p(d);
  constexpr auto kNoBias = ProgramBuilder::Bias::kNone;
  const auto positions = p.rotation(rope, d.head_dim, ProgramBuilder::Pairs::kNeighbours);
  const uint32_t recent = p.state_group("window", d.n_kv_heads, d.head_dim, window);
  const uint32_t full = p.state_group("full", d.n_kv_heads, d.head_dim);
  const double scale = 1 / std::sqrt(d.head_dim);

  ValueId x = p.embed("token_embd", d.n_embd, d.n_vocab);
  for (uint32_t i = 0; i < d.n_layers; ++i) {
    const bool windowed = i % 4 != 3;
    p.begin_layer(x);
    const ValueId h = p.layer_norm(x, "attn_norm", eps, kNoBias);
    ValueId q = p.linear(h, "attn_q", d.q_dim());
    if (windowed) q = p.rope(q, positions);
    ValueId k = p.linear(h, "attn_k", d.kv_dim());
    if (windowed) k = p.rope(k, positions);
    const ValueId v = p.linear(h, "attn_v", d.kv_dim());
    const ValueId kv = p.append(windowed ? recent : full, k, v);
    const ValueId a =
        p.attention(q, kv, {.n_heads = d.n_heads, .scale = scale, .window = windowed ? window : 0});
    x = p.add(x, p.linear(a, "attn_output", d.n_embd));

    const ValueId gate = p.silu(p.linear(h, "ffn_gate", d.n_ff));
    const ValueId up = p.linear(h, "ffn_up", d.n_ff);
    x = p.add(x, p.linear(p.mul(gate, up), "ffn_down", d.n_embd));
    p.end_layer(x);
  }
  x = p.layer_norm(x, "output_norm", eps, kNoBias);
  return p.finish(p.scale(p.linear(x, "token_embd", d.n_vocab), logit_scale));
}

}  // namespace pumice::families
