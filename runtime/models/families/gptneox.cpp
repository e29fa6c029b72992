// GPT-NeoX, Pythia, Dolly and RedPajama: Black et al., "GPT-NeoX-20B: An Open-Source Autoregressive
// Language Model", 2022. Attention and feed-forward side by side or one after the other, each with
// its own norm; a rope of a part of each head.
#include <cmath>

#include "models/families.hpp"

namespace pumice::families {

Result<Program> build_gptneox(const Metadata& metadata) {
  PUMICE_TRY(const ModelDimensions d, metadata.read_dimensions());
  PUMICE_TRY(const RopeSource rope, metadata.read_rope(d));
  PUMICE_TRY(const float eps, metadata.read_layer_norm_eps());
  PUMICE_TRY(const bool parallel, metadata.get<bool>("use_parallel_residual"));

  ProgramBuilder p(d);
  constexpr auto kBias = ProgramBuilder::Bias::kAdded;
  const auto positions = p.rotation(rope, d.head_dim, ProgramBuilder::Pairs::kHalves);
  const uint32_t cache = p.state_group("full", d.n_kv_heads, d.head_dim);
  const double scale = 1 / std::sqrt(d.head_dim);
  const uint32_t n_qk = d.q_dim() + d.kv_dim();
  const uint32_t n_qkv = n_qk + d.kv_dim();

  ValueId x = p.embed("token_embd", d.n_embd, d.n_vocab);
  for (uint32_t i = 0; i < d.n_layers; ++i) {
    p.begin_layer(x);
    const ValueId h = p.layer_norm(x, "attn_norm", eps);
    const ValueId q = p.rope(p.linear_rows(h, "attn_qkv", n_qkv, 0, d.q_dim(), kBias), positions);
    const ValueId k =
        p.rope(p.linear_rows(h, "attn_qkv", n_qkv, d.q_dim(), d.kv_dim(), kBias), positions);
    const ValueId v = p.linear_rows(h, "attn_qkv", n_qkv, n_qk, d.kv_dim(), kBias);
    const ValueId kv = p.append(cache, k, v);
    const ValueId a = p.attention(q, kv, {.n_heads = d.n_heads, .scale = scale});
    const ValueId attended = p.add(x, p.linear(a, "attn_output", d.n_embd, kBias));

    const ValueId f = p.layer_norm(parallel ? x : attended, "ffn_norm", eps);
    const ValueId up = p.gelu_tanh(p.linear(f, "ffn_up", d.n_ff, kBias));
    x = p.add(attended, p.linear(up, "ffn_down", d.n_embd, kBias));
    p.end_layer(x);
  }
  x = p.layer_norm(x, "output_norm", eps);
  return p.finish(p.linear(x, metadata.output_stem(), d.n_vocab));
}

}  // namespace pumice::families
