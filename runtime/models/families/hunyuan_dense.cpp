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
  auto attention = p.full_attention(d, rope, ProgramBuilder::Pairs::kHalves);
  attention.head_norm_eps = eps;
  attention.head_norm = ProgramBuilder::HeadNorm::kTurned;

  ValueId x = p.embed("token_embd", d.n_embd, d.n_vocab);
  for (uint32_t i = 0; p.next_layer(x, i, d.n_layers); ++i) {
    x = p.add(x, p.self_attention(p.rms_norm(x, "attn_norm", eps), attention));

    const ValueId f = p.rms_norm(x, "ffn_norm", eps);
    x = p.add(x, p.gated_ffn(f, ActivationKind::kSilu, d.n_ff));
  }
  return p.finish(x, metadata.output_stem(), eps);
}

}  // namespace pumice::families
