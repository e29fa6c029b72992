// Granite 3, dense or with experts: Granite Team, "Granite 3.0 Language Models", 2024. Llama with
// factors: of embeddings, of scores, of what a block adds to the residual, and logits are divided
// by one. Some have no rope.
#include <cmath>

#include "models/families.hpp"
#include "models/families/mamba2.hpp"

namespace pumice::families {
namespace {

Result<Program> granite(const Metadata& metadata, bool hybrid) {
  const auto layers = hybrid ? Metadata::Layers::kSomeHaveNone : Metadata::Layers::kAlike;
  PUMICE_TRY(const ModelDimensions d, metadata.read_dimensions(layers));
  PUMICE_TRY(const ExpertSource experts,
             metadata.read_experts(d, {}, Metadata::SharedExperts::kOfWidth));
  PUMICE_TRY(const RopeSource rope, metadata.read_rope(d));
  PUMICE_TRY(const float eps, metadata.read_rms_eps());
  PUMICE_TRY(const double embedding_scale, metadata.read_positive("embedding_scale", 1));
  PUMICE_TRY(const double residual_scale, metadata.read_positive("residual_scale", 1));
  PUMICE_TRY(const double logit_divisor, metadata.read_positive("logit_scale", 1));
  PUMICE_TRY(const double scale,
             metadata.read_positive("attention.scale", 1 / std::sqrt(d.head_dim)));
  PUMICE_TRY(const bool turns, metadata.get_or<bool>("rope.scaling.finetuned", true));

  std::vector<uint32_t> kv_heads(d.n_layers, d.n_kv_heads);
  Mamba2 mamba;
  if (hybrid) {
    PUMICE_TRY(kv_heads, metadata.read_layer_counts("attention.head_count_kv", d.n_layers, layers));
    PUMICE_TRY(mamba, read_mamba2(metadata));
    mamba.norm_eps = eps;
  }

  ProgramBuilder p(d);
  auto attention = p.full_attention(d, rope, ProgramBuilder::Pairs::kNeighbours);
  attention.attention.scale = scale;
  if (!turns) attention.rotation.reset();
  if (hybrid) mamba.state_group = p.recurrent_group("mamba");

  ValueId x = p.scale(p.embed("token_embd", d.n_embd, d.n_vocab), embedding_scale);
  for (uint32_t i = 0; p.next_layer(x, i, d.n_layers); ++i) {
    const ValueId h = p.rms_norm(x, "attn_norm", eps);
    PUMICE_TRY_STATUS(metadata.expect_kv_heads(kv_heads[i], d, i));
    const ValueId mixed =
        kv_heads[i] == 0 ? mamba2(p, h, d.n_embd, mamba) : p.self_attention(h, attention);
    x = p.add(x, p.scale(mixed, residual_scale));

    const ValueId f = p.rms_norm(x, "ffn_norm", eps);
    const ValueId down = experts.n_experts == 0 ? p.gated_ffn(f, ActivationKind::kSilu, d.n_ff)
                                                : p.experts(f, {.source = experts});
    x = p.add(x, p.scale(down, residual_scale));
  }
  x = p.rms_norm(x, "output_norm", eps);
  return p.finish(p.scale(p.linear(x, metadata.output_stem(), d.n_vocab), 1 / logit_divisor));
}

}  // namespace

Result<Program> build_granite(const Metadata& metadata) { return granite(metadata, false); }
Result<Program> build_granitehybrid(const Metadata& metadata) { return granite(metadata, true); }

}  // namespace pumice::families
