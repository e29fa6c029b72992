// SmallThinker: Song et al., "SmallThinker: A Family of Efficient Large Language Models Natively
// Trained for Local Deployment", 2025. Experts are chosen by what the layer reads, before
// attention, so that they can be fetched meanwhile. The first of every four layers sees all,
// without rope.
#include <cmath>

#include "models/families.hpp"

namespace pumice::families {

Result<Program> build_smallthinker(const Metadata& metadata) {
  constexpr uint32_t kPeriod = 4;
  PUMICE_TRY(const ModelDimensions d, metadata.read_dimensions());
  PUMICE_TRY(const ExpertSource experts,
             metadata.read_experts(d, {.probability = Router::Probability::kSigmoid}));
  PUMICE_TRY(const uint32_t window, metadata.read_window(0));
  PUMICE_TRY(const RopeSource rope, metadata.read_rope(d));
  PUMICE_TRY(const float eps, metadata.read_rms_eps());

  ProgramBuilder p(d);
  ProgramBuilder::SelfAttention full{
      .state_group = p.state_group("full", d.n_kv_heads, d.head_dim),
      .attention = {.n_heads = d.n_heads, .scale = 1 / std::sqrt(d.head_dim)}};
  ProgramBuilder::SelfAttention recent = full;
  recent.rotation = p.rotation(rope, d.head_dim, ProgramBuilder::Pairs::kHalves);
  if (window == 0) {
    full.rotation = recent.rotation;
  } else {
    recent.state_group = p.state_group("window", d.n_kv_heads, d.head_dim, window);
    recent.attention.window = window;
  }

  ValueId x = p.embed("token_embd", d.n_embd, d.n_vocab);
  for (uint32_t i = 0; i < d.n_layers; ++i) {
    p.begin_layer(x);
    const ValueId input = x;
    const ValueId h = p.rms_norm(x, "attn_norm", eps);
    x = p.add(x, p.self_attention(h, i % kPeriod == 0 ? full : recent));

    const ValueId f = p.rms_norm(x, "ffn_norm", eps);
    x = p.add(
        x, p.experts(
               f, {.source = experts, .activation = ActivationKind::kRelu, .router_input = input}));
    p.end_layer(x);
  }
  x = p.rms_norm(x, "output_norm", eps);
  return p.finish(p.linear(x, metadata.output_stem(), d.n_vocab));
}

}  // namespace pumice::families
