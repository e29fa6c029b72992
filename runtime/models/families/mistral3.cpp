// Ministral 3 and other Mistral 3: Mistral AI, 2025. Llama with YaRN and, beyond the context that
// it was trained for first, an attention temperature on q.
#include <cmath>

#include "models/families.hpp"

namespace pumice::families {

Result<Program> build_mistral3(const Metadata& metadata) {
  PUMICE_TRY(const ModelDimensions d, metadata.read_dimensions());
  PUMICE_TRY(RopeSource rope, metadata.read_rope(d));
  PUMICE_TRY(const float eps, metadata.read_rms_eps());
  PUMICE_TRY(const float temperature, metadata.get_or<float>("attention.temperature_scale", 0));
  PUMICE_TRY(const float multiplier, metadata.get_or<float>("rope.scaling.yarn_log_multiplier", 0));
  if (rope.config.scaling == ops::RopeScaling::kYarn && rope.config.ext_factor != 0) {
    rope.config.attn_factor /= 1 + 0.1 * multiplier * std::log(rope.config.factor);
  }
  RopeSource q_rope = rope;
  q_rope.config.temperature = temperature;
  PUMICE_TRY(
      q_rope.config.temperature_tokens,
      metadata.get_or<uint32_t>("attention.temperature_length", rope.config.original_context));

  ProgramBuilder p(d);
  constexpr auto kNeighbours = ProgramBuilder::Pairs::kNeighbours;
  auto attention = p.full_attention(d, rope, kNeighbours);
  if (temperature != 0) attention.q_rotation = p.rotation(q_rope, d.head_dim, kNeighbours);

  ValueId x = p.embed("token_embd", d.n_embd, d.n_vocab);
  for (uint32_t i = 0; p.next_layer(x, i, d.n_layers); ++i) {
    x = p.add(x, p.self_attention(p.rms_norm(x, "attn_norm", eps), attention));

    const ValueId f = p.rms_norm(x, "ffn_norm", eps);
    x = p.add(x, p.gated_ffn(f, ActivationKind::kSilu, d.n_ff));
  }
  return p.finish(x, metadata.output_stem(), eps);
}

}  // namespace pumice::families
