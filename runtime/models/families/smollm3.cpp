// SmolLM3: Hugging Face, "SmolLM3: smol, multilingual, long-context reasoner", 2025. Llama whose
// every fourth layer has no rope: Yang et al., "Rope to Nope and Back Again", 2025.
#include "models/families.hpp"

namespace pumice::families {

Result<Program> build_smollm3(const Metadata& metadata) {
  PUMICE_TRY(const ModelDimensions d, metadata.read_dimensions());
  PUMICE_TRY(const RopeSource rope, metadata.read_rope(d));
  PUMICE_TRY(const float eps, metadata.read_rms_eps());

  ProgramBuilder p(d);
  const auto turning = p.full_attention(d, rope, ProgramBuilder::Pairs::kNeighbours);
  ProgramBuilder::SelfAttention still = turning;
  still.rotation.reset();

  ValueId x = p.embed("token_embd", d.n_embd, d.n_vocab);
  for (uint32_t i = 0; p.next_layer(x, i, d.n_layers); ++i) {
    const ValueId h = p.rms_norm(x, "attn_norm", eps);
    x = p.add(x, p.self_attention(h, i % 4 != 3 ? turning : still));

    const ValueId f = p.rms_norm(x, "ffn_norm", eps);
    x = p.add(x, p.gated_ffn(f, ActivationKind::kSilu, d.n_ff));
  }
  return p.finish(x, metadata.output_stem(), eps);
}

}  // namespace pumice::families
