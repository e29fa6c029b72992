// Falcon-H1: Zuo et al., "Falcon-H1: A Family of Hybrid-Head Language Models", 2025. Attention and
// Mamba-2 read the same in every layer, and both are added.
#include "models/families.hpp"
#include "models/families/mamba2.hpp"

namespace pumice::families {

Result<Program> build_falcon_h1(const Metadata& metadata) {
  PUMICE_TRY(const ModelDimensions d, metadata.read_dimensions());
  PUMICE_TRY(Mamba2 mamba, read_mamba2(metadata));
  PUMICE_TRY(const RopeSource rope, metadata.read_rope(d));
  PUMICE_TRY(const float eps, metadata.read_rms_eps());

  ProgramBuilder p(d);
  const auto attention = p.full_attention(d, rope, ProgramBuilder::Pairs::kHalves);
  mamba.state_group = p.recurrent_group("mamba");
  if (metadata.has_tensor("blk.0.ssm_norm.weight")) mamba.norm_eps = eps;

  ValueId x = p.embed("token_embd", d.n_embd, d.n_vocab);
  for (uint32_t i = 0; p.next_layer(x, i, d.n_layers); ++i) {
    const ValueId h = p.rms_norm(x, "attn_norm", eps);
    const ValueId attended = p.self_attention(h, attention);
    x = p.add(x, p.add(attended, mamba2(p, h, d.n_embd, mamba)));

    const ValueId f = p.bare_rms_norm(x, "ffn_norm", eps);  // as files have it
    x = p.add(x, p.gated_ffn(f, ActivationKind::kSilu, d.n_ff));
  }
  return p.finish(x, metadata.output_stem(), eps);
}

}  // namespace pumice::families
