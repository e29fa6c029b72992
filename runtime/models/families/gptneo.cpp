// GPT-Neo and TinyStories: Black et al., "GPT-Neo: Large Scale Autoregressive Language Modeling
// with Mesh-Tensorflow", 2021. GPT-2 whose scores are not scaled and some of whose layers see a
// window. No other program writes such files; tools/convert_gpt_neo.py does.
#include "models/families.hpp"

namespace pumice::families {

Result<Program> build_gptneo(const Metadata& metadata) {
  PUMICE_TRY(const ModelDimensions d, metadata.read_dimensions());
  PUMICE_TRY(const float eps, metadata.read_layer_norm_eps());
  PUMICE_TRY(const uint32_t window, metadata.read_window(256));
  PUMICE_TRY(const std::vector<bool> windowed,
             metadata.read_layer_flags("attention.sliding_window_pattern", d.n_layers));

  ProgramBuilder p(d);
  constexpr auto kBias = ProgramBuilder::Bias::kAdded;
  const ProgramBuilder::SelfAttention recent{
      .state_group = p.state_group("window", d.n_kv_heads, d.head_dim, window),
      .attention = {.n_heads = d.n_heads, .scale = 1, .window = window},
      .output_bias = kBias};
  ProgramBuilder::SelfAttention full = recent;
  full.state_group = p.state_group("full", d.n_kv_heads, d.head_dim);
  full.attention.window = 0;

  const ValueId token = p.embed("token_embd", d.n_embd, d.n_vocab);
  ValueId x = p.add(token, p.embed_position("position_embd", d.n_embd, d.context_length));
  for (uint32_t i = 0; p.next_layer(x, i, d.n_layers); ++i) {
    const ValueId h = p.layer_norm(x, "attn_norm", eps);
    x = p.add(x, p.self_attention(h, windowed[i] ? recent : full));

    const ValueId f = p.layer_norm(x, "ffn_norm", eps);
    const ValueId up = p.gelu_tanh(p.linear(f, "ffn_up", d.n_ff, kBias));
    x = p.add(x, p.linear(up, "ffn_down", d.n_embd, kBias));
  }
  x = p.layer_norm(x, "output_norm", eps);
  return p.finish(p.linear(x, metadata.output_stem(), d.n_vocab));
}

}  // namespace pumice::families
