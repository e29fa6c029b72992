// Phi-1, 1.5 and 2: Li et al., "Textbooks Are All You Need II: phi-1.5 technical report", 2023.
// Attention and feed-forward side by side after one norm, biases everywhere, the logits' too.
#include <cmath>

#include "models/families.hpp"

namespace pumice::families {

Result<Program> build_phi2(const Metadata& metadata) {
  PUMICE_TRY(const ModelDimensions d, metadata.read_dimensions());
  PUMICE_TRY(const RopeSource rope, metadata.read_rope(d));
  PUMICE_TRY(const float eps, metadata.read_layer_norm_eps());
  const bool fused = metadata.has_tensor("blk.0.attn_qkv.weight");

  ProgramBuilder p(d);
  constexpr auto kBias = ProgramBuilder::Bias::kAdded;
  const auto positions = p.rotation(rope, d.head_dim, ProgramBuilder::Pairs::kHalves);
  const uint32_t cache = p.state_group("full", d.n_kv_heads, d.head_dim);
  const double scale = 1 / std::sqrt(d.head_dim);
  const uint32_t n_qkv = d.q_dim() + 2 * d.kv_dim();

  ValueId x = p.embed("token_embd", d.n_embd, d.n_vocab);
  for (uint32_t i = 0; i < d.n_layers; ++i) {
    p.begin_layer(x);
    const ValueId h = p.layer_norm(x, "attn_norm", eps);
    const auto product = [&](std::string_view stem, uint32_t first_row, uint32_t n) {
      return fused ? p.linear_rows(h, "attn_qkv", n_qkv, first_row, n, kBias)
                   : p.linear(h, stem, n, kBias);
    };
    const ValueId q = p.rope(product("attn_q", 0, d.q_dim()), positions);
    const ValueId k = p.rope(product("attn_k", d.q_dim(), d.kv_dim()), positions);
    const ValueId v = product("attn_v", d.q_dim() + d.kv_dim(), d.kv_dim());
    const ValueId kv = p.append(cache, k, v);
    const ValueId a = p.attention(q, kv, {.n_heads = d.n_heads, .scale = scale});
    x = p.add(x, p.linear(a, "attn_output", d.n_embd, kBias));

    const ValueId up = p.gelu_tanh(p.linear(h, "ffn_up", d.n_ff, kBias));
    x = p.add(x, p.linear(up, "ffn_down", d.n_embd, kBias));
    p.end_layer(x);
  }
  x = p.layer_norm(x, "output_norm", eps);
  return p.finish(p.linear(x, "output", d.n_vocab, kBias));
}

}  // namespace pumice::families
