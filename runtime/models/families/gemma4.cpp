// Gemma 4, text: Google DeepMind, 2026. Gemma 3 whose window layers have heads of another size,
// whose last layers read the keys and values of earlier ones, and whose layers each get a small
// embedding of the token of their own. Scores are not scaled: the norms of q and k do that. Layers
// may have experts beside the dense feed-forward, each side with norms of its own; the router reads
// what neither of them does, x normed by itself.
#include <fmt/core.h>

#include <array>
#include <cmath>
#include <optional>
#include <vector>

#include "models/families.hpp"

namespace pumice::families {
namespace {

/// What layers of one kind, with a window or without, have in common.
struct Kind {
  uint32_t head_dim = 0;
  uint32_t window = 0;
  RopeSource rope;
};

struct Dimensions {
  ModelDimensions d;
  float eps = 0;
  Kind full;
  Kind windowed;
  std::vector<bool> is_windowed;  ///< of layers, as the next two
  std::vector<uint32_t> n_kv_heads;
  std::vector<uint32_t> n_ff;
  uint32_t n_shared = 0;     ///< layers, the last, without keys and values
  uint32_t n_per_layer = 0;  ///< width of a layer's own embedding; 0: none
  ExpertSource experts;
  double logit_cap = 0;
  std::vector<std::optional<ScalarSource>> output_scales;
};

Status read_kinds(const Metadata& metadata, Dimensions& all) {
  all.full.head_dim = all.d.head_dim;
  PUMICE_TRY(all.full.rope, metadata.read_rope(all.d));
  PUMICE_TRY(all.windowed.head_dim,
             metadata.read_head_dim("attention.key_length_swa", all.d.head_dim));
  PUMICE_TRY(all.windowed.window, metadata.read_window(512));
  PUMICE_TRY(const uint32_t dims,
             metadata.get_or<uint32_t>("rope.dimension_count_swa", all.windowed.head_dim));
  PUMICE_TRY(const float base, metadata.get_or<float>("rope.freq_base_swa", 10000));
  all.windowed.rope.config = {.dims = dims, .base = base};
  PUMICE_TRY(all.is_windowed,
             metadata.read_layer_flags("attention.sliding_window_pattern", all.d.n_layers));
  return {};
}

Result<Dimensions> read(const Metadata& metadata) {
  Dimensions all;
  PUMICE_TRY(all.d, metadata.read_dimensions(Metadata::Layers::kDiffer));
  const uint32_t n_layers = all.d.n_layers;
  PUMICE_TRY(all.eps, metadata.read_rms_eps());
  PUMICE_TRY_STATUS(read_kinds(metadata, all));
  PUMICE_TRY(all.n_kv_heads, metadata.read_layer_counts("attention.head_count_kv", n_layers));
  PUMICE_TRY(all.n_ff, metadata.read_layer_counts("feed_forward_length", n_layers));
  PUMICE_TRY(all.n_shared, metadata.get_or<uint32_t>("attention.shared_kv_layers", 0));
  PUMICE_TRY(all.n_per_layer, metadata.get_or<uint32_t>("embedding_length_per_layer_input", 0));
  if (all.n_shared >= n_layers || all.n_per_layer > all.d.n_embd) {
    return make_error(ErrorCode::kBadFile,
                      "gemma4: {} of {} layers share keys and values, embeddings of {} a layer",
                      all.n_shared, n_layers, all.n_per_layer);
  }
  PUMICE_TRY(all.experts, metadata.read_experts(all.d));
  if (metadata.has("final_logit_softcapping")) {
    PUMICE_TRY(all.logit_cap, metadata.read_positive("final_logit_softcapping", 30));
  }
  for (uint32_t i = 0; i < n_layers; ++i) {
    all.output_scales.emplace_back();
    const std::string name = fmt::format("blk.{}.layer_output_scale.weight", i);
    if (!metadata.has_tensor(name)) continue;
    PUMICE_TRY(all.output_scales.back(), metadata.read_scalar(name));
  }
  return all;
}

class Building {
 public:
  Building(const Metadata& metadata, const Dimensions& all)
      : metadata_(metadata), all_(all), d_(all.d), eps_(all.eps), p_(all.d) {
    for (const Kind* kind : {&all_.full, &all_.windowed}) {
      const size_t index = kind->window == 0 ? 0 : 1;
      positions_[index] = p_.rotation(kind->rope, kind->head_dim, ProgramBuilder::Pairs::kHalves);
    }
  }

  Result<Program> run() {
    ValueId x = p_.scale(p_.embed("token_embd", d_.n_embd, d_.n_vocab), std::sqrt(d_.n_embd));
    if (all_.n_per_layer > 0) per_layer_ = per_layer_inputs(x);
    for (uint32_t i = 0; p_.next_layer(x, i, d_.n_layers); ++i) {
      PUMICE_TRY(const ValueId a, attention(i, p_.rms_norm(x, "attn_norm", eps_)));
      x = p_.add(x, p_.rms_norm(a, "post_attention_norm", eps_));
      x = p_.add(x, p_.rms_norm(feed_forward(i, x), "post_ffw_norm", eps_));
      if (per_layer_) x = p_.add(x, per_layer_term(i, x));
      if (all_.output_scales[i]) x = p_.scale(x, *all_.output_scales[i]);
    }
    x = p_.rms_norm(x, "output_norm", eps_);
    x = p_.linear(x, metadata_.output_stem(), d_.n_vocab);
    return p_.finish(all_.logit_cap == 0 ? x : p_.soft_cap(x, all_.logit_cap));
  }

 private:
  /// The token's embeddings for all layers, side by side.
  ValueId per_layer_inputs(ValueId x) {
    const uint32_t n = all_.n_per_layer * d_.n_layers;
    const ValueId rows =
        p_.scale(p_.embed("per_layer_token_embd", n, d_.n_vocab), std::sqrt(all_.n_per_layer));
    ValueId of_x = p_.scale(p_.linear(x, "per_layer_model_proj", n), 1 / std::sqrt(d_.n_embd));
    of_x = p_.head_norm(of_x, "per_layer_proj_norm", all_.n_per_layer, eps_);
    return p_.scale(p_.add(of_x, rows), 1 / std::sqrt(2));
  }

  ValueId per_layer_term(uint32_t layer, ValueId x) {
    const ValueId gate = p_.gelu_tanh(p_.linear(x, "inp_gate", all_.n_per_layer));
    const ValueId own = p_.split(*per_layer_, layer * all_.n_per_layer, all_.n_per_layer);
    return p_.rms_norm(p_.linear(p_.mul(gate, own), "proj", d_.n_embd), "post_norm", eps_);
  }

  ValueId feed_forward(uint32_t layer, ValueId x) {
    constexpr auto kGelu = ActivationKind::kGeluTanh;
    const ValueId dense = p_.gated_ffn(p_.rms_norm(x, "ffn_norm", eps_), kGelu, all_.n_ff[layer]);
    const bool has_experts = all_.experts.n_experts > 0 &&
                             metadata_.has_tensor(fmt::format("blk.{}.ffn_gate_inp.weight", layer));
    if (!has_experts) return dense;
    const ValueId to_router =
        p_.scale(p_.bare_rms_norm(x, "ffn_gate_inp.scale", eps_), 1 / std::sqrt(d_.n_embd));
    const ValueId routed =
        p_.experts(p_.rms_norm(x, "pre_ffw_norm_2", eps_), {.source = all_.experts,
                                                            .activation = kGelu,
                                                            .router_input = to_router,
                                                            .gain = "ffn_down_exps",
                                                            .merged = true});
    return p_.add(p_.rms_norm(dense, "post_ffw_norm_1", eps_),
                  p_.rms_norm(routed, "post_ffw_norm_2", eps_));
  }

  Result<ValueId> attention(uint32_t layer, ValueId h) {
    const bool windowed = all_.is_windowed[layer];
    const Kind& kind = windowed ? all_.windowed : all_.full;
    ValueId q = p_.linear(h, "attn_q", d_.n_heads * kind.head_dim);
    q = p_.rope(p_.head_norm(q, "attn_q_norm", kind.head_dim, eps_), positions_[windowed]);
    std::optional<ValueId>& kv = kv_[windowed];
    if (layer < d_.n_layers - all_.n_shared) {
      PUMICE_TRY(kv, append(layer, h, windowed));
    } else if (!kv) {
      return make_error(ErrorCode::kBadFile,
                        "gemma4.attention.shared_kv_layers: no layer before layer {} has keys and "
                        "values of its kind",
                        layer);
    }
    const ValueId a =
        p_.attention(q, *kv, {.n_heads = d_.n_heads, .scale = 1, .window = kind.window});
    return p_.linear(a, "attn_output", d_.n_embd);
  }

  /// Keys and values, which are alike where there is no matrix for values.
  Result<ValueId> append(uint32_t layer, ValueId h, bool windowed) {
    const Kind& kind = windowed ? all_.windowed : all_.full;
    const uint32_t n_kv_heads = all_.n_kv_heads[layer];
    std::optional<uint32_t>& group = groups_[windowed];
    if (!group) {
      group = p_.state_group(windowed ? "window" : "full", n_kv_heads, kind.head_dim, kind.window);
    }
    const ValueId raw = p_.linear(h, "attn_k", n_kv_heads * kind.head_dim);
    const bool has_v = metadata_.has_tensor(fmt::format("blk.{}.attn_v.weight", layer));
    const ValueId raw_v = has_v ? p_.linear(h, "attn_v", n_kv_heads * kind.head_dim) : raw;
    const ValueId k =
        p_.rope(p_.head_norm(raw, "attn_k_norm", kind.head_dim, eps_), positions_[windowed]);
    const ValueId v = p_.plain_head_norm(raw_v, kind.head_dim, eps_);
    return p_.append(*group, k, v);
  }

  const Metadata& metadata_;
  const Dimensions& all_;
  const ModelDimensions& d_;
  const float eps_;
  ProgramBuilder p_;
  // By whether a layer has a window.
  std::array<ProgramBuilder::Rotation, 2> positions_ = {};
  std::array<std::optional<uint32_t>, 2> groups_;
  std::array<std::optional<ValueId>, 2> kv_;  // of the last layer that has its own
  std::optional<ValueId> per_layer_;
};

}  // namespace

Result<Program> build_gemma4(const Metadata& metadata) {
  PUMICE_TRY(const Dimensions all, read(metadata));
  return Building(metadata, all).run();
}

}  // namespace pumice::families
