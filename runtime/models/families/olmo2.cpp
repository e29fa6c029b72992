// OLMo 2: OLMo Team, "2 OLMo 2 Furious", 2025. Norms come after attention and after the
// feed-forward rather than before, and q and k are normalised over all heads at once.
#include <cmath>

#include "models/families.hpp"

namespace pumice::families {

Result<Program> build_olmo2(const Metadata& metadata) {
  PUMICE_TRY(const ModelDimensions d, metadata.read_dimensions());
  PUMICE_TRY(const RopeSource rope, metadata.read_rope(d));
  PUMICE_TRY(const float eps, metadata.read_rms_eps());

  ProgramBuilder p(d);
  const auto positions = p.rotation(rope, d.head_dim, ProgramBuilder::Pairs::kHalves);
  const uint32_t cache = p.state_group("full", d.n_kv_heads, d.head_dim);
  const double scale = 1 / std::sqrt(d.head_dim);

  ValueId x = p.embed("token_embd", d.n_embd, d.n_vocab);
  for (uint32_t i = 0; i < d.n_layers; ++i) {
    p.begin_layer(x);
    ValueId q = p.rms_norm(p.linear(x, "attn_q", d.q_dim()), "attn_q_norm", eps);
    q = p.rope(q, positions);
    ValueId k = p.rms_norm(p.linear(x, "attn_k", d.kv_dim()), "attn_k_norm", eps);
    k = p.rope(k, positions);
    const ValueId v = p.linear(x, "attn_v", d.kv_dim());
    const ValueId kv = p.append(cache, k, v);
    const ValueId a = p.attention(q, kv, {.n_heads = d.n_heads, .scale = scale});
    x = p.add(x, p.rms_norm(p.linear(a, "attn_output", d.n_embd), "post_attention_norm", eps));

    const ValueId f = p.gated_ffn(x, ActivationKind::kSilu, d.n_ff);
    x = p.add(x, p.rms_norm(f, "post_ffw_norm", eps));
    p.end_layer(x);
  }
  x = p.rms_norm(x, "output_norm", eps);
  return p.finish(p.linear(x, metadata.output_stem(), d.n_vocab));
}

}  // namespace pumice::families
