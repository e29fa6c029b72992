// Command R7B and A, Aya: Cohere, "Command A: An Enterprise-Ready Large Language Model", 2025.
// Command R with a window and a rope in three layers of four; the fourth sees all, without a rope.
#include <cmath>

#include "models/families.hpp"

namespace pumice::families {

Result<Program> build_cohere2(const Metadata& metadata) {
  PUMICE_TRY(const ModelDimensions d, metadata.read_dimensions());
  PUMICE_TRY(const RopeSource rope, metadata.read_rope(d));
  PUMICE_TRY(const float eps, metadata.read_layer_norm_eps());
  PUMICE_TRY(const double logit_scale, metadata.read_positive("logit_scale", 1));
  PUMICE_TRY(const uint32_t window, metadata.read_window(4096));
  PUMICE_TRY(const uint32_t period, metadata.read_window_period(4));

  ProgramBuilder p(d);
  constexpr auto kNoBias = ProgramBuilder::Bias::kNone;
  const ProgramBuilder::SelfAttention recent{
      .state_group = p.state_group("window", d.n_kv_heads, d.head_dim, window),
      .attention = {.n_heads = d.n_heads, .scale = 1 / std::sqrt(d.head_dim), .window = window},
      .rotation = p.rotation(rope, d.head_dim, ProgramBuilder::Pairs::kNeighbours)};
  const auto full = p.full_attention(d);

  ValueId x = p.embed("token_embd", d.n_embd, d.n_vocab);
  for (uint32_t i = 0; p.next_layer(x, i, d.n_layers); ++i) {
    const ValueId h = p.layer_norm(x, "attn_norm", eps, kNoBias);
    x = p.add(x, p.self_attention(h, i % period != period - 1 ? recent : full));
    x = p.add(x, p.gated_ffn(h, ActivationKind::kSilu, d.n_ff));
  }
  x = p.layer_norm(x, "output_norm", eps, kNoBias);
  return p.finish(p.scale(p.linear(x, "token_embd", d.n_vocab), logit_scale));
}

}  // namespace pumice::families
