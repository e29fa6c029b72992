// Step 3.5: StepFun, "Step 3.5 Flash", 2026. Layers with a window have other numbers of heads and
// another rope than those that see all, of whose heads half turns; a sigmoid for each head is its
// factor. Of some layers' feed-forwards what is multiplied is limited.
#include <cstdint>
#include <vector>

#include "models/families.hpp"

namespace pumice::families {
namespace {

struct Layers {
  std::vector<bool> windowed;
  std::vector<uint32_t> n_heads;
  std::vector<double> limits;  ///< of experts
  std::vector<double> shared_limits;
};

Result<Layers> read_layers(const Metadata& metadata, uint32_t n_blocks) {
  Layers layers;
  PUMICE_TRY(layers.windowed,
             metadata.read_layer_flags("attention.sliding_window_pattern", n_blocks));
  PUMICE_TRY(layers.n_heads, metadata.read_layer_counts("attention.head_count", n_blocks));
  PUMICE_TRY(layers.limits, metadata.read_layer_numbers("swiglu_clamp_exp", n_blocks, 0));
  PUMICE_TRY(layers.shared_limits, metadata.read_layer_numbers("swiglu_clamp_shexp", n_blocks, 0));
  return layers;
}

}  // namespace

Result<Program> build_step35(const Metadata& metadata, ModelPart part) {
  PUMICE_TRY(ModelDimensions d, metadata.read_dimensions(Metadata::Layers::kDiffer));
  PUMICE_TRY(const Layers layers, read_layers(metadata, d.n_layers));
  PUMICE_TRY(const Blocks blocks, metadata.read_blocks(d, part));
  PUMICE_TRY(const ExpertSource experts, metadata.read_experts(d, kPlainSigmoidRouter));
  PUMICE_TRY(const uint32_t n_dense, metadata.read_dense_layers(d));
  PUMICE_TRY(const uint32_t window, metadata.read_window(512));
  PUMICE_TRY(const float eps, metadata.read_rms_eps());
  PUMICE_TRY(RopeSource rope, metadata.read_rope(d));
  PUMICE_TRY(const float recent_base,
             metadata.get_or<float>("rope.freq_base_swa", static_cast<float>(rope.config.base)));
  const RopeSource recent_rope{.config = {.dims = rope.config.dims, .base = recent_base}};
  rope.config.dims = rope.config.dims / 4 * 2;
  if (!rope.config.freq_divisors.empty()) rope.config.freq_divisors.resize(rope.config.dims / 2);

  ProgramBuilder p(d);
  auto full = p.full_attention(d, rope, ProgramBuilder::Pairs::kHalves);
  full.head_norm_eps = eps;
  auto recent = p.in_window(full, window);
  recent.rotation = p.rotation(recent_rope, d.head_dim, ProgramBuilder::Pairs::kHalves);

  ValueId x = p.input(blocks, d.n_embd, eps);
  for (uint32_t i = blocks.first; p.next_layer(x, i, blocks.end); ++i) {
    ProgramBuilder::SelfAttention attention = layers.windowed[i] ? recent : full;
    attention.attention.n_heads = attention.n_gates = layers.n_heads[i];
    x = p.add(x, p.self_attention(p.rms_norm(x, "attn_norm", eps), attention));

    const ValueId f = p.rms_norm(x, "ffn_norm", eps);
    const bool dense = i < n_dense || (blocks.predicts() &&
                                       !metadata.has_tensor(blocks.tensor("ffn_gate_inp.weight")));
    x = p.add(x, dense ? p.gated_ffn(f, ActivationKind::kSilu, d.n_ff)
                       : p.experts(f, {.source = experts,
                                       .selection_bias = "exp_probs_b",
                                       .limit = layers.limits[i],
                                       .shared_limit = layers.shared_limits[i]}));
  }
  return p.finish(x, blocks, eps);
}

}  // namespace pumice::families
