// Phi-3, Phi-3.5 and Phi-4, dense: Abdin et al., "Phi-3 Technical Report", 2024. q, k and v are one
// matrix, gate and up another; long contexts by LongRoPE.
#include "models/families.hpp"

namespace pumice::families {

Result<Program> build_phi3(const Metadata& metadata) {
  PUMICE_TRY(const ModelDimensions d, metadata.read_dimensions());
  PUMICE_TRY(const RopeSource rope, metadata.read_rope(d));
  PUMICE_TRY(const float eps, metadata.read_rms_eps());
  // As llama.cpp does for this architecture.
  metadata.leave_out({"attention.sliding_window", "attention.sliding_window_pattern"});

  ProgramBuilder p(d);
  auto attention = p.full_attention(d, rope, ProgramBuilder::Pairs::kHalves);
  attention.fused = true;

  ValueId x = p.embed("token_embd", d.n_embd, d.n_vocab);
  for (uint32_t i = 0; p.next_layer(x, i, d.n_layers); ++i) {
    x = p.add(x, p.self_attention(p.rms_norm(x, "attn_norm", eps), attention));

    const ValueId f = p.rms_norm(x, "ffn_norm", eps);
    const ValueId gate = p.silu(p.linear_rows(f, "ffn_up", 2 * d.n_ff, 0, d.n_ff));
    const ValueId up = p.linear_rows(f, "ffn_up", 2 * d.n_ff, d.n_ff, d.n_ff);
    x = p.add(x, p.linear(p.mul(gate, up), "ffn_down", d.n_embd));
  }
  return p.finish(x, metadata.output_stem(), eps);
}

}  // namespace pumice::families
