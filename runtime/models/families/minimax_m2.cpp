// MiniMax M2: MiniMax, "MiniMax-M2", 2025. q and k are normalised over all heads at once, half of a
// head turns, and every layer has experts chosen by sigmoids.
#include <cmath>

#include "models/families.hpp"

namespace pumice::families {

Result<Program> build_minimax_m2(const Metadata& metadata) {
  PUMICE_TRY(const ModelDimensions d, metadata.read_dimensions());
  PUMICE_TRY(const ExpertSource experts,
             metadata.read_experts(d, {.probability = Router::Probability::kSigmoid}));
  PUMICE_TRY(const RopeSource rope, metadata.read_rope(d));
  PUMICE_TRY(const float eps, metadata.read_rms_eps());

  ProgramBuilder p(d);
  const auto positions = p.rotation(rope, d.head_dim, ProgramBuilder::Pairs::kHalves);
  const uint32_t cache = p.state_group("full", d.n_kv_heads, d.head_dim);
  const double scale = 1 / std::sqrt(d.head_dim);

  ValueId x = p.embed("token_embd", d.n_embd, d.n_vocab);
  for (uint32_t i = 0; i < d.n_layers; ++i) {
    p.begin_layer(x);
    const ValueId h = p.rms_norm(x, "attn_norm", eps);
    const ValueId q = p.rms_norm(p.linear(h, "attn_q", d.q_dim()), "attn_q_norm", eps);
    const ValueId turned = p.rope(q, positions);
    const ValueId k = p.rms_norm(p.linear(h, "attn_k", d.kv_dim()), "attn_k_norm", eps);
    const ValueId v = p.linear(h, "attn_v", d.kv_dim());
    const ValueId kv = p.append(cache, p.rope(k, positions), v);
    const ValueId a = p.attention(turned, kv, {.n_heads = d.n_heads, .scale = scale});
    x = p.add(x, p.linear(a, "attn_output", d.n_embd));

    const ValueId f = p.rms_norm(x, "ffn_norm", eps);
    x = p.add(x, p.experts(f, {.source = experts, .selection_bias = "exp_probs_b"}));
    p.end_layer(x);
  }
  x = p.rms_norm(x, "output_norm", eps);
  return p.finish(p.linear(x, metadata.output_stem(), d.n_vocab));
}

}  // namespace pumice::families
