// EXAONE 4: LG AI Research, "EXAONE 4.0: Unified Large Language Models", 2025. Norms come after
// attention and after the feed-forward only, and on the heads of q and k. The 32B, which its 64
// layers tell, has a window and rope on three layers of four; the fourth sees all, without rope.
#include <cmath>
#include <string_view>

#include "models/families.hpp"
#include "models/families/window_period.hpp"

namespace pumice::families {

Result<Program> build_exaone4(const Metadata& metadata) {
  PUMICE_TRY(const ModelDimensions d, metadata.read_dimensions());
  PUMICE_TRY(const RopeSource rope, metadata.read_rope(d));
  PUMICE_TRY(const float eps, metadata.read_rms_eps());
  const bool has_windows = d.n_layers == 64;
  uint32_t window = 4096;
  uint32_t period = 4;
  if (has_windows) {
    PUMICE_TRY(window, metadata.read_window(window));
    PUMICE_TRY(period, read_window_period(metadata, period));
  } else {  // as llama.cpp does
    metadata.leave_out({"attention.sliding_window", "attention.sliding_window_pattern"});
  }

  ProgramBuilder p(d);
  const auto positions = p.rotation(rope, d.head_dim, ProgramBuilder::Pairs::kHalves);
  const uint32_t full = p.state_group("full", d.n_kv_heads, d.head_dim);
  const uint32_t recent =
      has_windows ? p.state_group("window", d.n_kv_heads, d.head_dim, window) : full;
  const double scale = 1 / std::sqrt(d.head_dim);

  ValueId x = p.embed("token_embd", d.n_embd, d.n_vocab);
  for (uint32_t i = 0; i < d.n_layers; ++i) {
    const bool windowed = has_windows && i % period != period - 1;
    const bool turns = windowed || !has_windows;
    p.begin_layer(x);
    const auto heads = [&](std::string_view stem, std::string_view norm, uint32_t n) {
      const ValueId y = p.head_norm(p.linear(x, stem, n), norm, d.head_dim, eps);
      return turns ? p.rope(y, positions) : y;
    };
    const ValueId q = heads("attn_q", "attn_q_norm", d.q_dim());
    const ValueId k = heads("attn_k", "attn_k_norm", d.kv_dim());
    const ValueId v = p.linear(x, "attn_v", d.kv_dim());
    const ValueId kv = p.append(windowed ? recent : full, k, v);
    const ValueId a =
        p.attention(q, kv, {.n_heads = d.n_heads, .scale = scale, .window = windowed ? window : 0});
    x = p.add(x, p.rms_norm(p.linear(a, "attn_output", d.n_embd), "post_attention_norm", eps));

    const ValueId f = p.gated_ffn(x, ActivationKind::kSilu, d.n_ff);
    x = p.add(x, p.rms_norm(f, "post_ffw_norm", eps));
    p.end_layer(x);
  }
  x = p.rms_norm(x, "output_norm", eps);
  return p.finish(p.linear(x, metadata.output_stem(), d.n_vocab));
}

}  // namespace pumice::families
