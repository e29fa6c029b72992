// MiMo-V2: LLM-Core Xiaomi, "MiMo-V2-Flash Technical Report", 2026. Values are smaller than keys,
// and a part of each head turns. Most layers have a window, more kv heads than those that see all,
// another rope, and a sink for each head. The first layer is dense; the others have experts chosen
// by sigmoids.
#include <fmt/core.h>

#include <array>
#include <cmath>
#include <string_view>
#include <vector>

#include "models/families.hpp"

namespace pumice::families {
namespace {

/// Kv heads of layers without a window and with one, which are alike in each kind.
Result<std::array<uint32_t, 2>> read_kv_heads(const Metadata& metadata, const ModelDimensions& d,
                                              const std::vector<bool>& windowed) {
  PUMICE_TRY(const std::vector<uint32_t> of_layers,
             metadata.read_layer_counts("attention.head_count_kv", d.n_layers));
  std::array<uint32_t, 2> of_kinds = {0, 0};
  for (uint32_t i = 0; i < d.n_layers; ++i) {
    uint32_t& of_kind = of_kinds.at(windowed[i] ? 1 : 0);
    if (of_kind == 0) of_kind = of_layers[i];
    if (of_kind != of_layers[i]) {
      return make_error(ErrorCode::kBadFile,
                        "mimo2.attention.head_count_kv: {} in layer {}, {} in another {} a window; "
                        "not supported",
                        of_layers[i], i, of_kind, windowed[i] ? "with" : "without");
    }
  }
  return of_kinds;
}

}  // namespace

Result<Program> build_mimo2(const Metadata& metadata, ModelPart part) {
  PUMICE_TRY(ModelDimensions d,
             metadata.read_dimensions(Metadata::Layers::kDiffer, Metadata::Values::kSmaller));
  PUMICE_TRY(const std::vector<bool> windowed,
             metadata.read_layer_flags("attention.sliding_window_pattern", d.n_layers));
  PUMICE_TRY(const auto n_kv_heads, read_kv_heads(metadata, d, windowed));
  PUMICE_TRY(const uint32_t recent_value_dim,
             metadata.read_head_dim("attention.value_length_swa", d.value_dim));
  PUMICE_TRY(const Blocks blocks, metadata.read_blocks(d, part));
  PUMICE_TRY(const ExpertSource experts, metadata.read_experts(d, kSigmoidRouter));
  PUMICE_TRY(const uint32_t n_dense, metadata.read_dense_layers(d));
  PUMICE_TRY(const uint32_t window, metadata.read_window(128));
  PUMICE_TRY(const double value_scale, metadata.read_positive("attention.value_scale", 1));
  PUMICE_TRY(const float eps, metadata.read_rms_eps());
  PUMICE_TRY(const RopeSource rope, metadata.read_rope(d));
  PUMICE_TRY(const float recent_base,
             metadata.get_or<float>("rope.freq_base_swa", static_cast<float>(rope.config.base)));
  const RopeSource recent_rope{.config = {.dims = rope.config.dims, .base = recent_base}};

  ProgramBuilder p(d);
  const ProgramBuilder::SelfAttention full{
      .state_group = p.state_group("full", n_kv_heads[0], d.head_dim, 0, d.value_dim),
      .attention = {.n_heads = d.n_heads, .scale = 1 / std::sqrt(d.head_dim)},
      .rotation = p.rotation(rope, d.head_dim, ProgramBuilder::Pairs::kHalves)};
  ProgramBuilder::SelfAttention recent = full;
  recent.state_group = p.state_group("window", n_kv_heads[1], d.head_dim, window, recent_value_dim);
  recent.attention.window = window;
  recent.rotation = p.rotation(recent_rope, d.head_dim, ProgramBuilder::Pairs::kHalves);

  ValueId x = p.input(blocks, d.n_embd, eps);
  for (uint32_t i = blocks.first; p.next_layer(x, i, blocks.end); ++i) {
    const auto has = [&](std::string_view name) {
      return metadata.has_tensor(fmt::format("blk.{}.{}.weight", i, name));
    };
    ProgramBuilder::SelfAttention attention = windowed[i] ? recent : full;
    if (has("attn_sinks")) attention.attention.sinks = "attn_sinks";
    attention.fused = has("attn_qkv");
    ValueId a = p.self_attention(p.rms_norm(x, "attn_norm", eps), attention);
    if (value_scale != 1) a = p.scale(a, value_scale);  // of values, so of what they add up to
    x = p.add(x, a);

    const ValueId f = p.rms_norm(x, "ffn_norm", eps);
    const bool dense = i < n_dense || !has("ffn_gate_inp");
    x = p.add(x, dense ? p.gated_ffn(f, ActivationKind::kSilu, d.n_ff)
                       : p.experts(f, {.source = experts, .selection_bias = "exp_probs_b"}));
  }
  return p.finish(x, blocks, eps);
}

}  // namespace pumice::families
