// Granite 3, dense or with experts: Granite Team, "Granite 3.0 Language Models", 2024. Llama with
// factors: of embeddings, of scores, of what a block adds to the residual, and logits are divided
// by one. Some have no rope.
#include <cmath>
#include <string_view>

#include "models/families.hpp"

namespace pumice::families {
namespace {

Result<Program> granite(const ModelSource& source, std::string_view architecture) {
  const Metadata metadata(source, architecture);
  PUMICE_TRY(const ModelDimensions d, metadata.read_dimensions());
  PUMICE_TRY(const ExpertSource experts, metadata.read_experts(d));
  PUMICE_TRY(const RopeSource rope, metadata.read_rope(d));
  PUMICE_TRY(const float eps, metadata.read_rms_eps());
  PUMICE_TRY(const double embedding_scale, metadata.read_positive("embedding_scale", 1));
  PUMICE_TRY(const double residual_scale, metadata.read_positive("residual_scale", 1));
  PUMICE_TRY(const double logit_divisor, metadata.read_positive("logit_scale", 1));
  PUMICE_TRY(const double scale,
             metadata.read_positive("attention.scale", 1 / std::sqrt(d.head_dim)));
  PUMICE_TRY(const bool turns, metadata.get_or<bool>("rope.scaling.finetuned", true));

  ProgramBuilder p(d);
  ProgramBuilder::SelfAttention attention{
      .state_group = p.state_group("full", d.n_kv_heads, d.head_dim),
      .attention = {.n_heads = d.n_heads, .scale = scale},
      .rotation = p.rotation(rope, d.head_dim, ProgramBuilder::Pairs::kNeighbours)};
  if (!turns) attention.rotation.reset();

  ValueId x = p.scale(p.embed("token_embd", d.n_embd, d.n_vocab), embedding_scale);
  for (uint32_t i = 0; i < d.n_layers; ++i) {
    p.begin_layer(x);
    const ValueId h = p.rms_norm(x, "attn_norm", eps);
    x = p.add(x, p.scale(p.self_attention(h, attention), residual_scale));

    const ValueId f = p.rms_norm(x, "ffn_norm", eps);
    const ValueId down = experts.n_experts == 0 ? p.gated_ffn(f, ActivationKind::kSilu, d.n_ff)
                                                : p.experts(f, {.source = experts});
    x = p.add(x, p.scale(down, residual_scale));
    p.end_layer(x);
  }
  x = p.rms_norm(x, "output_norm", eps);
  return p.finish(p.scale(p.linear(x, metadata.output_stem(), d.n_vocab), 1 / logit_divisor));
}

}  // namespace

Result<Program> build_granite(const ModelSource& source) { return granite(source, "granite"); }
Result<Program> build_granitemoe(const ModelSource& source) {
  return granite(source, "granitemoe");
}

}  // namespace pumice::families
