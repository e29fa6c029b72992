// ModernBERT (GTE-ModernBERT, Granite Embedding R2): Warner et al., "Smarter, Better, Faster,
// Longer: A Modern Bidirectional Encoder", 2024. Norms without biases come before attention, in
// the first layer none, and before the feed-forward; each n-th layer from the first sees the whole
// text, the others as far to both sides as half a window.
#include <cmath>
#include <optional>

#include "models/families.hpp"

namespace pumice::families {

Result<Program> build_modern_bert(const Metadata& metadata) {
  PUMICE_TRY(const ModelDimensions d, metadata.read_dimensions());
  PUMICE_TRY(const RopeSource rope, metadata.read_rope(d));
  PUMICE_TRY(const float local_base, metadata.get_or<float>("rope.freq_base_swa", 10000));
  PUMICE_TRY(const float eps, metadata.read_layer_norm_eps());
  PUMICE_TRY(const uint32_t window, metadata.read_window(128));
  PUMICE_TRY(const uint32_t period, metadata.read_window_period(3));
  PUMICE_TRY(const std::optional<Pooling> pooling, metadata.read_pooling());
  PUMICE_TRY_STATUS(metadata.expect_not_causal());
  const uint32_t half_window = window / 2;

  ProgramBuilder p(d);
  constexpr auto kHalves = ProgramBuilder::Pairs::kHalves;
  constexpr auto kNoBias = ProgramBuilder::Bias::kNone;
  const RopeSource local_rope{{.dims = rope.config.dims, .base = local_base}};
  const uint32_t text = p.state_group("text", d.n_kv_heads, d.head_dim);
  const ProgramBuilder::SelfAttention full{.state_group = text,
                                           .attention = {.n_heads = d.n_heads,
                                                         .scale = 1 / std::sqrt(d.head_dim),
                                                         .ahead = op::kAllAhead},
                                           .rotation = p.rotation(rope, d.head_dim, kHalves),
                                           .fused = true};
  ProgramBuilder::SelfAttention near = full;
  near.attention.window = 2 * half_window + 1;
  near.attention.ahead = half_window;
  near.rotation = p.rotation(local_rope, d.head_dim, kHalves);

  ValueId x = p.embed("token_embd", d.n_embd, d.n_vocab);
  x = p.layer_norm(x, "token_embd_norm", eps, kNoBias);
  for (uint32_t i = 0; p.next_layer(x, i, d.n_layers); ++i) {
    const ValueId h = i == 0 ? x : p.layer_norm(x, "attn_norm", eps, kNoBias);
    x = p.add(x, p.self_attention(h, i % period == 0 ? full : near));

    const ValueId f = p.layer_norm(x, "ffn_norm", eps, kNoBias);
    const ValueId gate = p.gelu(p.linear_rows(f, "ffn_up", 2 * d.n_ff, 0, d.n_ff));
    const ValueId up = p.linear_rows(f, "ffn_up", 2 * d.n_ff, d.n_ff, d.n_ff);
    x = p.add(x, p.linear(p.mul(gate, up), "ffn_down", d.n_embd));
  }
  x = p.layer_norm(x, "output_norm", eps, kNoBias);
  return p.finish_embedding(x, pooling.value_or(Pooling::kCls));
}

}  // namespace pumice::families
