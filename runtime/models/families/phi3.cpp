// Phi-3, Phi-3.5 and Phi-4, dense: Abdin et al., "Phi-3 Technical Report", 2024. q, k and v are one
// matrix, gate and up another; long contexts by LongRoPE.
#include <cmath>

#include "models/families.hpp"

namespace pumice::families {

Result<Program> build_phi3(const Metadata& metadata) {
  PUMICE_TRY(const ModelDimensions d, metadata.read_dimensions());
  PUMICE_TRY(const RopeSource rope, metadata.read_rope(d));
  PUMICE_TRY(const float eps, metadata.read_rms_eps());
  // As llama.cpp does for this architecture.
  metadata.leave_out({"attention.sliding_window", "attention.sliding_window_pattern"});

  ProgramBuilder p(d);
  const auto positions = p.rotation(rope, d.head_dim, ProgramBuilder::Pairs::kHalves);
  const uint32_t cache = p.state_group("full", d.n_kv_heads, d.head_dim);
  const double scale = 1 / std::sqrt(d.head_dim);
  const uint32_t n_qkv = d.q_dim() + 2 * d.kv_dim();

  ValueId x = p.embed("token_embd", d.n_embd, d.n_vocab);
  for (uint32_t i = 0; i < d.n_layers; ++i) {
    p.begin_layer(x);
    const ValueId h = p.rms_norm(x, "attn_norm", eps);
    const auto rows = [&](uint32_t first, uint32_t n) {
      return p.linear_rows(h, "attn_qkv", n_qkv, first, n);
    };
    const ValueId q = p.rope(rows(0, d.q_dim()), positions);
    const ValueId k = p.rope(rows(d.q_dim(), d.kv_dim()), positions);
    const ValueId v = rows(d.q_dim() + d.kv_dim(), d.kv_dim());
    const ValueId kv = p.append(cache, k, v);
    const ValueId a = p.attention(q, kv, {.n_heads = d.n_heads, .scale = scale});
    x = p.add(x, p.linear(a, "attn_output", d.n_embd));

    const ValueId f = p.rms_norm(x, "ffn_norm", eps);
    const ValueId gate = p.silu(p.linear_rows(f, "ffn_up", 2 * d.n_ff, 0, d.n_ff));
    const ValueId up = p.linear_rows(f, "ffn_up", 2 * d.n_ff, d.n_ff, d.n_ff);
    x = p.add(x, p.linear(p.mul(gate, up), "ffn_down", d.n_embd));
    p.end_layer(x);
  }
  x = p.rms_norm(x, "output_norm", eps);
  return p.finish(p.linear(x, metadata.output_stem(), d.n_vocab));
}

}  // namespace pumice::families
