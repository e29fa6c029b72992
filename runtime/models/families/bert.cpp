// BERT (BGE, E5, GTE, MiniLM) and Nomic-BERT: Devlin et al., "BERT: Pre-training of Deep
// Bidirectional Transformers for Language Understanding", 2019. Every token sees every other, and
// norms come after the sums. Nomic-BERT: Nussbaum et al., "Nomic Embed: Training a Reproducible
// Long Context Text Embedder", 2024: a rope for learned positions, a gated feed-forward, q, k and v
// in one matrix, no biases.
#include <cmath>
#include <optional>
#include <utility>

#include "models/families.hpp"
#include "models/ranking.hpp"

namespace pumice::families {
namespace {

constexpr uint32_t kFirstSegment = 0;  // all of a text is one

/// Tokens, with what says that they are of the first segment where the model was trained with two.
Result<ValueId> embed_tokens(const Metadata& metadata, const ModelDimensions& d,
                             ProgramBuilder& p) {
  const ValueId tokens = p.embed("token_embd", d.n_embd, d.n_vocab);
  const GgufTensor* const types = metadata.file().find_tensor("token_types.weight");
  if (types == nullptr) return tokens;
  if (types->dims[1] > d.n_vocab) {
    return make_error(ErrorCode::kBadFile,
                      "token_types.weight: {} rows are more than there are tokens", types->dims[1]);
  }
  return p.add_row(tokens, "token_types", static_cast<uint32_t>(types->dims[1]), kFirstSegment);
}

}  // namespace

Result<Program> build_bert(const Metadata& metadata) {
  PUMICE_TRY(const ModelDimensions d, metadata.read_dimensions());
  PUMICE_TRY(const float eps, metadata.read_layer_norm_eps());
  PUMICE_TRY(const std::optional<Pooling> pooling, metadata.read_pooling());
  PUMICE_TRY_STATUS(metadata.expect_not_causal());

  ProgramBuilder p(d);
  constexpr auto kBias = ProgramBuilder::Bias::kAdded;
  const ProgramBuilder::SelfAttention attention{
      .state_group = p.state_group("text", d.n_kv_heads, d.head_dim),
      .attention = {.n_heads = d.n_heads,
                    .scale = 1 / std::sqrt(d.head_dim),
                    .ahead = op::kAllAhead},
      .bias = kBias,
      .output_bias = kBias};

  PUMICE_TRY(const ValueId tokens, embed_tokens(metadata, d, p));
  ValueId x = p.add(tokens, p.embed_position("position_embd", d.n_embd, d.context_length));
  x = p.layer_norm(x, "token_embd_norm", eps);
  for (uint32_t i = 0; p.next_layer(x, i, d.n_layers); ++i) {
    x = p.add(x, p.self_attention(x, attention));
    x = p.layer_norm(x, "attn_output_norm", eps);

    const ValueId up = p.gelu_tanh(p.linear(x, "ffn_up", d.n_ff, kBias));
    x = p.add(x, p.linear(up, "ffn_down", d.n_embd, kBias));
    x = p.layer_norm(x, "layer_output_norm", eps);
  }
  PUMICE_TRY(Program program, p.finish_embedding(x, pooling.value_or(Pooling::kMean)));
  return with_ranking_head(std::move(program), metadata);
}

Result<Program> build_nomic_bert(const Metadata& metadata) {
  PUMICE_TRY(const ModelDimensions d, metadata.read_dimensions());
  PUMICE_TRY(const RopeSource rope, metadata.read_rope(d));
  PUMICE_TRY(const float eps, metadata.read_layer_norm_eps());
  PUMICE_TRY(const std::optional<Pooling> pooling, metadata.read_pooling());
  PUMICE_TRY_STATUS(metadata.expect_not_causal());

  ProgramBuilder p(d);
  const ProgramBuilder::SelfAttention attention{
      .state_group = p.state_group("text", d.n_kv_heads, d.head_dim),
      .attention = {.n_heads = d.n_heads,
                    .scale = 1 / std::sqrt(d.head_dim),
                    .ahead = op::kAllAhead},
      .rotation = p.rotation(rope, d.head_dim, ProgramBuilder::Pairs::kHalves),
      .fused = true};

  PUMICE_TRY(const ValueId tokens, embed_tokens(metadata, d, p));
  ValueId x = p.layer_norm(tokens, "token_embd_norm", eps);
  for (uint32_t i = 0; p.next_layer(x, i, d.n_layers); ++i) {
    x = p.add(x, p.self_attention(x, attention));
    x = p.layer_norm(x, "attn_output_norm", eps);

    x = p.add(x, p.gated_ffn(x, ActivationKind::kSilu, d.n_ff));
    x = p.layer_norm(x, "layer_output_norm", eps);
  }
  PUMICE_TRY(Program program, p.finish_embedding(x, pooling.value_or(Pooling::kMean)));
  return with_ranking_head(std::move(program), metadata);
}

}  // namespace pumice::families
