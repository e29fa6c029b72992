// Nemotron-H: NVIDIA, "Nemotron-H: A Family of Accurate and Efficient Hybrid Mamba-Transformer
// Models", 2025. A layer is one of Mamba-2, attention without rope, or a feed-forward of squares.
#include <cmath>

#include "models/families.hpp"
#include "models/families/mamba2.hpp"

namespace pumice::families {

Result<Program> build_nemotron_h(const ModelSource& source) {
  constexpr auto kLayers = Metadata::Layers::kSomeHaveNone;
  const Metadata metadata(source, "nemotron_h");
  PUMICE_TRY(const ModelDimensions d, metadata.read_dimensions(kLayers));
  PUMICE_TRY(const std::vector<uint32_t> kv_heads,
             metadata.read_layer_counts("attention.head_count_kv", d.n_layers, kLayers));
  PUMICE_TRY(const std::vector<uint32_t> n_ff,
             metadata.read_layer_counts("feed_forward_length", d.n_layers, kLayers));
  PUMICE_TRY(Mamba2 mamba, read_mamba2(metadata));
  PUMICE_TRY(const float eps, metadata.read_rms_eps());

  ProgramBuilder p(d);
  const ProgramBuilder::SelfAttention attention{
      .state_group = p.state_group("full", d.n_kv_heads, d.head_dim),
      .attention = {.n_heads = d.n_heads, .scale = 1 / std::sqrt(d.head_dim)}};
  mamba.state_group = p.recurrent_group("mamba");
  mamba.norm_eps = eps;

  ValueId x = p.embed("token_embd", d.n_embd, d.n_vocab);
  for (uint32_t i = 0; i < d.n_layers; ++i) {
    p.begin_layer(x);
    const ValueId h = p.rms_norm(x, "attn_norm", eps);
    PUMICE_TRY_STATUS(metadata.expect_kv_heads(kv_heads[i], d, i));
    if (n_ff[i] > 0) {
      const ValueId up = p.relu(p.linear(h, "ffn_up", n_ff[i]));
      x = p.add(x, p.linear(p.mul(up, up), "ffn_down", d.n_embd));
    } else if (kv_heads[i] > 0) {
      x = p.add(x, p.self_attention(h, attention));
    } else {
      x = p.add(x, mamba2(p, h, d.n_embd, mamba));
    }
    p.end_layer(x);
  }
  x = p.rms_norm(x, "output_norm", eps);
  return p.finish(p.linear(x, metadata.output_stem(), d.n_vocab));
}

}  // namespace pumice::families
