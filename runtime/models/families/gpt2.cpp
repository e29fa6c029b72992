// GPT-2: Radford et al., "Language Models are Unsupervised Multitask Learners", 2019. Learned
// positions, norms with mean and bias, a feed-forward without gate.
#include <cmath>

#include "models/families.hpp"

namespace pumice::families {

Result<Program> build_gpt2(const Metadata& metadata) {
  PUMICE_TRY(const ModelDimensions d, metadata.read_dimensions());
  PUMICE_TRY(const float eps, metadata.read_layer_norm_eps());

  ProgramBuilder p(d);
  constexpr auto kBias = ProgramBuilder::Bias::kAdded;
  const uint32_t cache = p.state_group("full", d.n_kv_heads, d.head_dim);
  const double scale = 1 / std::sqrt(d.head_dim);
  const uint32_t n_qkv = d.q_dim() + 2 * d.kv_dim();

  const ValueId token = p.embed("token_embd", d.n_embd, d.n_vocab);
  ValueId x = p.add(token, p.embed_position("position_embd", d.n_embd, d.context_length));
  for (uint32_t i = 0; i < d.n_layers; ++i) {
    p.begin_layer(x);
    const ValueId h = p.layer_norm(x, "attn_norm", eps);
    const ValueId q = p.linear_rows(h, "attn_qkv", n_qkv, 0, d.q_dim(), kBias);
    const ValueId k = p.linear_rows(h, "attn_qkv", n_qkv, d.q_dim(), d.kv_dim(), kBias);
    const ValueId v =
        p.linear_rows(h, "attn_qkv", n_qkv, d.q_dim() + d.kv_dim(), d.kv_dim(), kBias);
    const ValueId kv = p.append(cache, k, v);
    const ValueId a = p.attention(q, kv, {.n_heads = d.n_heads, .scale = scale});
    x = p.add(x, p.linear(a, "attn_output", d.n_embd, kBias));

    const ValueId f = p.layer_norm(x, "ffn_norm", eps);
    const ValueId up = p.gelu_tanh(p.linear(f, "ffn_up", d.n_ff, kBias));
    x = p.add(x, p.linear(up, "ffn_down", d.n_embd, kBias));
    p.end_layer(x);
  }
  x = p.layer_norm(x, "output_norm", eps);
  return p.finish(p.linear(x, metadata.output_stem(), d.n_vocab));
}

}  // namespace pumice::families
