// EXAONE 4: LG AI Research, "EXAONE 4.0: Unified Large Language Models", 2025. Norms come after
// attention and after the feed-forward only, and on the heads of q and k. The 32B, which its 64
// layers tell, has a window and rope on three layers of four; the fourth sees all, without rope.

#include "models/families.hpp"

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
    PUMICE_TRY(period, metadata.read_window_period(period));
  } else {  // as llama.cpp does
    metadata.leave_out({"attention.sliding_window", "attention.sliding_window_pattern"});
  }

  ProgramBuilder p(d);
  auto full = p.full_attention(d, rope, ProgramBuilder::Pairs::kHalves);
  full.head_norm_eps = eps;
  const auto recent = has_windows ? p.in_window(full, window) : full;
  if (has_windows) full.rotation.reset();

  ValueId x = p.embed("token_embd", d.n_embd, d.n_vocab);
  for (uint32_t i = 0; p.next_layer(x, i, d.n_layers); ++i) {
    const ValueId a = p.self_attention(x, i % period != period - 1 ? recent : full);
    x = p.add(x, p.rms_norm(a, "post_attention_norm", eps));

    const ValueId f = p.gated_ffn(x, ActivationKind::kSilu, d.n_ff);
    x = p.add(x, p.rms_norm(f, "post_ffw_norm", eps));
  }
  return p.finish(x, metadata.output_stem(), eps);
}

}  // namespace pumice::families
