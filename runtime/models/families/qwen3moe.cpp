// Qwen 3 and Qwen 3 VL (text) with experts: Yang et al., "Qwen3 Technical Report", 2025. Every layer
// has experts; attention is Qwen 3's, and Qwen 3 VL's is the same where there is only text.

#include "models/families.hpp"

namespace pumice::families {

Result<Program> build_qwen3moe(const Metadata& metadata) {
  PUMICE_TRY(const ModelDimensions d, metadata.read_dimensions());
  PUMICE_TRY(const ExpertSource experts, metadata.read_experts(d));
  PUMICE_TRY(const RopeSource rope, metadata.read_rope(d));
  PUMICE_TRY(const float eps, metadata.read_rms_eps());

  ProgramBuilder p(d);
  auto attention = p.full_attention(d, rope, ProgramBuilder::Pairs::kHalves);
  attention.head_norm_eps = eps;

  ValueId x = p.embed("token_embd", d.n_embd, d.n_vocab);
  for (uint32_t i = 0; p.next_layer(x, i, d.n_layers); ++i) {
    x = p.add(x, p.self_attention(p.rms_norm(x, "attn_norm", eps), attention));

    const ValueId f = p.rms_norm(x, "ffn_norm", eps);
    x = p.add(x, p.experts(f, {.source = experts}));
  }
  return p.finish(x, metadata.output_stem(), eps);
}

}  // namespace pumice::families
