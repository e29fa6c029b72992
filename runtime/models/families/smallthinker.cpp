// SmallThinker: Song et al., "SmallThinker: A Family of Efficient Large Language Models Natively
// Trained for Local Deployment", 2025. Experts are chosen by what the layer reads, before
// attention, so that they can be fetched meanwhile. The first of every four layers sees all,
// without rope.
#include "models/families.hpp"

namespace pumice::families {

Result<Program> build_smallthinker(const Metadata& metadata) {
  constexpr uint32_t kPeriod = 4;
  PUMICE_TRY(const ModelDimensions d, metadata.read_dimensions());
  PUMICE_TRY(const ExpertSource experts, metadata.read_experts(d, kSigmoidRouter));
  PUMICE_TRY(const uint32_t window, metadata.read_window(0));
  PUMICE_TRY(const RopeSource rope, metadata.read_rope(d));
  PUMICE_TRY(const float eps, metadata.read_rms_eps());

  ProgramBuilder p(d);
  auto full = p.full_attention(d, rope, ProgramBuilder::Pairs::kHalves);
  const auto recent = window > 0 ? p.in_window(full, window) : full;
  if (window > 0) full.rotation.reset();

  ValueId x = p.embed("token_embd", d.n_embd, d.n_vocab);
  for (uint32_t i = 0; p.next_layer(x, i, d.n_layers); ++i) {
    const ValueId input = x;
    const ValueId h = p.rms_norm(x, "attn_norm", eps);
    x = p.add(x, p.self_attention(h, i % kPeriod == 0 ? full : recent));

    const ValueId f = p.rms_norm(x, "ffn_norm", eps);
    x = p.add(
        x, p.experts(
               f, {.source = experts, .activation = ActivationKind::kRelu, .router_input = input}));
  }
  return p.finish(x, metadata.output_stem(), eps);
}

}  // namespace pumice::families
