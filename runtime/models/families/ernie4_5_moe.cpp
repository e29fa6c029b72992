// ERNIE 4.5 with experts: Baidu, "ERNIE 4.5 Technical Report", 2025. The first layers are dense; of
// the others every so many have experts, chosen by a softmax with a bias, and one for all tokens.
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
  const auto attention = p.full_attention(d, rope, ProgramBuilder::Pairs::kNeighbours);

  ValueId x = p.embed("token_embd", d.n_embd, d.n_vocab);
  for (uint32_t i = 0; p.next_layer(x, i, d.n_layers); ++i) {
    x = p.add(x, p.self_attention(p.rms_norm(x, "attn_norm", eps), attention));

    const ValueId f = p.rms_norm(x, "ffn_norm", eps);
    const bool dense = i < n_dense || (i + 1) % period != 0;
    x = p.add(x, dense ? p.gated_ffn(f, ActivationKind::kSilu, d.n_ff)
                       : p.experts(f, {.source = experts, .selection_bias = "exp_probs_b"}));
  }
  return p.finish(x, metadata.output_stem(), eps);
}

}  // namespace pumice::families
