// ERNIE 4.5 with experts: Baidu, "ERNIE 4.5 Technical Report", 2025. The first layers are dense; of
// the others every so many have experts, chosen by a softmax with a bias, and one for all tokens.
#include <cmath>

#include "models/families.hpp"

namespace pumice::families {

Result<Program> build_ernie4_5_moe(const Metadata& metadata) {
  PUMICE_TRY(const ModelDimensions d, metadata.read_dimensions());
  PUMICE_TRY(const ExpertSource experts, metadata.read_experts(d));
  PUMICE_TRY(const uint32_t n_dense, metadata.read_dense_layers(d));
  PUMICE_TRY(const uint64_t period, metadata.get_or<uint64_t>("interleave_moe_layer_step", 1));
  PUMICE_TRY(const RopeSource rope, metadata.read_rope(d));
  PUMICE_TRY(const float eps, metadata.read_rms_eps());
  if (period == 0) {
    return make_error(ErrorCode::kBadFile, "ernie4_5-moe.interleave_moe_layer_step: 0");
  }

  ProgramBuilder p(d);
  const ProgramBuilder::SelfAttention attention{
      .state_group = p.state_group("full", d.n_kv_heads, d.head_dim),
      .attention = {.n_heads = d.n_heads, .scale = 1 / std::sqrt(d.head_dim)},
      .rotation = p.rotation(rope, d.head_dim, ProgramBuilder::Pairs::kNeighbours)};

  ValueId x = p.embed("token_embd", d.n_embd, d.n_vocab);
  for (uint32_t i = 0; i < d.n_layers; ++i) {
    p.begin_layer(x);
    x = p.add(x, p.self_attention(p.rms_norm(x, "attn_norm", eps), attention));

    const ValueId f = p.rms_norm(x, "ffn_norm", eps);
    const bool dense = i < n_dense || (i + 1) % period != 0;
    x = p.add(x, dense ? p.gated_ffn(f, ActivationKind::kSilu, d.n_ff)
                       : p.experts(f, {.source = experts, .selection_bias = "exp_probs_b"}));
    p.end_layer(x);
  }
  x = p.rms_norm(x, "output_norm", eps);
  return p.finish(p.linear(x, metadata.output_stem(), d.n_vocab));
}

}  // namespace pumice::families
