// Arcee Trinity: Arcee AI, "Trinity", 2025. Norms come before and after each block, sigmoids of
// what attention reads are factors of what it gives; three layers of four have a window and rope,
// the fourth sees all, without rope.
#include <cmath>

#include "models/families.hpp"

namespace pumice::families {

Result<Program> build_afmoe(const Metadata& metadata) {
  PUMICE_TRY(const ModelDimensions d, metadata.read_dimensions());
  PUMICE_TRY(const ExpertSource experts, metadata.read_experts(d, kPlainSigmoidRouter));
  PUMICE_TRY(const uint32_t n_dense, metadata.read_dense_layers(d));
  PUMICE_TRY(const uint32_t window, metadata.read_window(0));
  PUMICE_TRY(const uint32_t period, metadata.read_window_period(4));
  PUMICE_TRY(const RopeSource rope, metadata.read_rope(d));
  PUMICE_TRY(const float eps, metadata.read_rms_eps());

  ProgramBuilder p(d);
  auto full = p.full_attention(d);
  full.head_norm_eps = eps;
  full.n_gates = d.q_dim();
  auto recent = window > 0 ? p.in_window(full, window) : full;
  recent.rotation = p.rotation(rope, d.head_dim, ProgramBuilder::Pairs::kHalves);

  ValueId x = p.scale(p.embed("token_embd", d.n_embd, d.n_vocab), std::sqrt(d.n_embd));
  for (uint32_t i = 0; p.next_layer(x, i, d.n_layers); ++i) {
    const bool sees_all = (i + 1) % period == 0;
    const ValueId a = p.self_attention(p.rms_norm(x, "attn_norm", eps), sees_all ? full : recent);
    x = p.add(x, p.rms_norm(a, "post_attention_norm", eps));

    const ValueId f = p.rms_norm(x, "ffn_norm", eps);
    const ValueId y = i < n_dense
                          ? p.gated_ffn(f, ActivationKind::kSilu, d.n_ff)
                          : p.experts(f, {.source = experts, .selection_bias = "exp_probs_b"});
    x = p.add(x, p.rms_norm(y, "post_ffw_norm", eps));
  }
  return p.finish(x, metadata.output_stem(), eps);
}

}  // namespace pumice::families
