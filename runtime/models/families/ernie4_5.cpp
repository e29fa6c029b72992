// ERNIE 4.5, dense: Baidu, "ERNIE 4.5 Technical Report", 2025. Llama; heads need not add up to the
// embedding's width, and files may have biases on all of attention.
#include "models/families.hpp"

namespace pumice::families {

Result<Program> build_ernie4_5(const Metadata& metadata) {
  PUMICE_TRY(const ModelDimensions d, metadata.read_dimensions());
  PUMICE_TRY(const RopeSource rope, metadata.read_rope(d));
  PUMICE_TRY(const float eps, metadata.read_rms_eps());

  ProgramBuilder p(d);
  auto attention = p.full_attention(d, rope, ProgramBuilder::Pairs::kNeighbours);
  if (metadata.has_tensor("blk.0.attn_q.bias")) {
    attention.bias = attention.output_bias = ProgramBuilder::Bias::kAdded;
  }

  ValueId x = p.embed("token_embd", d.n_embd, d.n_vocab);
  for (uint32_t i = 0; p.next_layer(x, i, d.n_layers); ++i) {
    x = p.add(x, p.self_attention(p.rms_norm(x, "attn_norm", eps), attention));

    const ValueId f = p.rms_norm(x, "ffn_norm", eps);
    x = p.add(x, p.gated_ffn(f, ActivationKind::kSilu, d.n_ff));
  }
  return p.finish(x, metadata.output_stem(), eps);
}

}  // namespace pumice::families
