// EmbeddingGemma: Vera et al., "EmbeddingGemma: Powerful and Lightweight Text Representations",
// 2025. Gemma 3 without a causal mask: windows reach to both sides. Two more products follow, which
// are the same before the mean over tokens as after it.
#include <cmath>
#include <optional>

#include "models/families.hpp"

namespace pumice::families {
namespace {

constexpr uint64_t kMostDense = 1 << 20;  // outputs of a product after the layers

/// One of the products after the layers, which files may leave out.
Result<ValueId> dense(const Metadata& metadata, ProgramBuilder& p, ValueId x,
                      std::string_view stem) {
  const GgufTensor* const tensor = metadata.file().find_tensor(fmt::format("{}.weight", stem));
  if (tensor == nullptr) return x;
  if (tensor->dims[1] > kMostDense) {
    return make_error(ErrorCode::kBadFile, "{}.weight: {} rows are more than {}", stem,
                      tensor->dims[1], kMostDense);
  }
  return p.linear(x, stem, static_cast<uint32_t>(tensor->dims[1]));
}

}  // namespace

Result<Program> build_gemma_embedding(const Metadata& metadata) {
  PUMICE_TRY(const ModelDimensions d, metadata.read_dimensions());
  PUMICE_TRY(const RopeSource rope, metadata.read_rope(d));
  PUMICE_TRY(const float local_base, metadata.get_or<float>("rope.freq_base_swa", 10000));
  PUMICE_TRY(const float eps, metadata.read_rms_eps());
  PUMICE_TRY(const uint32_t window, metadata.read_window(512));
  PUMICE_TRY(const uint32_t period, metadata.read_window_period(6));
  PUMICE_TRY(const std::optional<Pooling> pooling, metadata.read_pooling());
  PUMICE_TRY_STATUS(metadata.expect_not_causal());
  const double scale = 1 / std::sqrt(d.head_dim);
  const uint32_t half_window = window / 2;

  ProgramBuilder p(d);
  constexpr auto kHalves = ProgramBuilder::Pairs::kHalves;
  const RopeSource local_rope{{.dims = rope.config.dims, .base = local_base}};
  const uint32_t text = p.state_group("text", d.n_kv_heads, d.head_dim);
  const ProgramBuilder::SelfAttention near{.state_group = text,
                                           .attention = {.n_heads = d.n_heads,
                                                         .scale = scale,
                                                         .window = 2 * half_window + 1,
                                                         .ahead = half_window},
                                           .rotation = p.rotation(local_rope, d.head_dim, kHalves),
                                           .head_norm_eps = eps};
  const ProgramBuilder::SelfAttention full{
      .state_group = text,
      .attention = {.n_heads = d.n_heads, .scale = scale, .ahead = op::kAllAhead},
      .rotation = p.rotation(rope, d.head_dim, kHalves),
      .head_norm_eps = eps};

  ValueId x = p.scale(p.embed("token_embd", d.n_embd, d.n_vocab), std::sqrt(d.n_embd));
  for (uint32_t i = 0; p.next_layer(x, i, d.n_layers); ++i) {
    const ValueId h = p.rms_norm(x, "attn_norm", eps);
    const ValueId a = p.self_attention(h, i % period != period - 1 ? near : full);
    x = p.add(x, p.rms_norm(a, "post_attention_norm", eps));

    const ValueId f = p.rms_norm(x, "ffn_norm", eps);
    const ValueId down = p.gated_ffn(f, ActivationKind::kGeluTanh, d.n_ff);
    x = p.add(x, p.rms_norm(down, "post_ffw_norm", eps));
  }
  x = p.rms_norm(x, "output_norm", eps);
  PUMICE_TRY(x, dense(metadata, p, x, "dense_2"));
  PUMICE_TRY(x, dense(metadata, p, x, "dense_3"));
  return p.finish_embedding(x, pooling.value_or(Pooling::kMean));
}

}  // namespace pumice::families
