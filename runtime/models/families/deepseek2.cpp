// DeepSeek V2, V3 and R1, Kimi K2, GLM 4.7 Flash and Mistral 4: DeepSeek-AI, "DeepSeek-V3 Technical
// Report", 2024; Mistral AI, 2026. Attention by latents; after the first layers experts, and one
// for all tokens. Mistral 4 has a temperature on q and experts chosen by a softmax.
#include <fmt/core.h>

#include <cmath>

#include "models/families.hpp"

namespace pumice::families {
namespace {

/// What YaRN makes of scores and of what turns.
struct YarnScales {
  double scores = 1;
  double rope = 1;
};

/// `multiplier` is a tenth of what the papers call mscale_all_dim; 0: plain YaRN. DeepSeek's
/// mscale equals it wherever it is not 1, so that nothing is left for the rope.
YarnScales yarn_scales(const ops::RopeConfig& rope, double multiplier, bool is_deepseek) {
  if (rope.scaling != ops::RopeScaling::kYarn || rope.ext_factor == 0 || multiplier == 0) return {};
  const double growth = std::log(rope.factor);
  const double magnitude = 1 + multiplier * growth;
  const double own = 1 + 0.1 * growth;  // rope_frequencies multiplies by that
  const bool cancels = is_deepseek && std::abs(multiplier - 0.1) > 1e-6;
  return {.scores = magnitude * magnitude, .rope = cancels ? 1 / own : 1 / magnitude};
}

Result<Program> build(const Metadata& metadata, const Router& router, bool is_deepseek,
                      ModelPart part) {
  LatentSource latent;
  PUMICE_TRY(ModelDimensions d, metadata.read_latent_dimensions(latent));
  PUMICE_TRY(const Blocks blocks, metadata.read_blocks(d, part));
  PUMICE_TRY(const ExpertSource experts, metadata.read_experts(d, router));
  PUMICE_TRY(const uint32_t n_dense, metadata.read_dense_layers(d));
  PUMICE_TRY(RopeSource rope, metadata.read_rope(d));
  PUMICE_TRY(const float eps, metadata.read_rms_eps());
  PUMICE_TRY(const float multiplier, metadata.get_or<float>("rope.scaling.yarn_log_multiplier", 0));
  PUMICE_TRY(const float temperature, metadata.get_or<float>("attention.temperature_scale", 0));
  const YarnScales yarn = yarn_scales(rope.config, multiplier, is_deepseek);
  rope.config.attn_factor *= yarn.rope;
  PUMICE_TRY(
      const uint32_t temperature_tokens,
      metadata.get_or<uint32_t>("attention.temperature_length", rope.config.original_context));
  if (temperature != 0) {
    rope.config.temperature = temperature;
    rope.config.temperature_tokens = temperature_tokens;
  }
  const bool biased = metadata.has_tensor(fmt::format("blk.{}.exp_probs_b.bias", n_dense));

  ProgramBuilder p(d);
  const uint32_t state = p.latent_group("latent", latent.rank + latent.n_turning, latent.rank);
  const ProgramBuilder::LatentAttention attention{.source = latent,
                                                  .n_heads = d.n_heads,
                                                  .scale = yarn.scores / std::sqrt(d.head_dim),
                                                  .norm_eps = eps,
                                                  .rope = rope};

  ValueId x = p.input(blocks, d.n_embd, eps);
  for (uint32_t i = blocks.first; p.next_layer(x, i, blocks.end); ++i) {
    x = p.add(x, p.latent_attention(p.rms_norm(x, "attn_norm", eps), state, attention));

    const ValueId f = p.rms_norm(x, "ffn_norm", eps);
    x = p.add(
        x, i < n_dense || experts.n_experts == 0
               ? p.gated_ffn(f, ActivationKind::kSilu, d.n_ff)
               : p.experts(f, {.source = experts, .selection_bias = biased ? "exp_probs_b" : ""}));
  }
  return p.finish(x, blocks, eps);
}

}  // namespace

Result<Program> build_deepseek2(const Metadata& metadata, ModelPart part) {
  return build(metadata, {.renormalised = false}, true, part);
}

Result<Program> build_mistral4(const Metadata& metadata, ModelPart part) {
  return build(metadata, {.renormalised = true}, false, part);
}

}  // namespace pumice::families
