// Hunyuan, dense: Tencent, 2025. Heads of q and k are normalised after they turn, and the rope's
// base grows with a factor of the context ("NTK-aware" scaling).
#include <cmath>

#include "models/families.hpp"

namespace pumice::families {

Result<Program> build_hunyuan_dense(const Metadata& metadata) {
  PUMICE_TRY(const ModelDimensions d, metadata.read_dimensions());
  PUMICE_TRY(RopeSource rope, metadata.read_rope(d));
  PUMICE_TRY(const float eps, metadata.read_rms_eps());
  PUMICE_TRY(const double alpha, metadata.read_positive("rope.scaling.alpha", 1));
  rope.config.base *= std::pow(alpha, d.head_dim / (d.head_dim - 2.0));

  ProgramBuilder p(d);
  const auto positions = p.rotation(rope, d.head_dim, ProgramBuilder::Pairs::kHalves);
  const uint32_t cache = p.state_group("full", d.n_kv_heads, d.head_dim);
  const double scale = 1 / std::sqrt(d.head_dim);

  ValueId x = p.embed("token_embd", d.n_embd, d.n_vocab);
  for (uint32_t i = 0; i < d.n_layers; ++i) {
    p.begin_layer(x);
    const ValueId h = p.rms_norm(x, "attn_norm", eps);
    ValueId q = p.rope(p.linear(h, "attn_q", d.q_dim()), positions);
    q = p.head_norm(q, "attn_q_norm", d.head_dim, eps);
    ValueId k = p.rope(p.linear(h, "attn_k", d.kv_dim()), positions);
    k = p.head_norm(k, "attn_k_norm", d.head_dim, eps);
    const ValueId v = p.linear(h, "attn_v", d.kv_dim());
    const ValueId kv = p.append(cache, k, v);
    const ValueId a = p.attention(q, kv, {.n_heads = d.n_heads, .scale = scale});
    x = p.add(x, p.linear(a, "attn_output", d.n_embd));

    const ValueId f = p.rms_norm(x, "ffn_norm", eps);
    x = p.add(x, p.gated_ffn(f, ActivationKind::kSilu, d.n_ff));
    p.end_layer(x);
  }
  x = p.rms_norm(x, "output_norm", eps);
  return p.finish(p.linear(x, metadata.output_stem(), d.n_vocab));
}

}  // namespace pumice::families
