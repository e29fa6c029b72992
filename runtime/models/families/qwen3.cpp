// Qwen 3, dense, Qwen 3 VL (text) and Qwen3-Embedding: Yang et al., "Qwen3 Technical Report", 2025.
// Each head of q and k is normalised. Qwen 3 VL is the same where there is only text: the
// components of a position are equal then, so its rope turns like any other, and its deep layers get
// nothing of an image.
#include <cmath>
#include <string_view>

#include "models/families.hpp"

namespace pumice::families {

Result<Program> build_qwen3(const Metadata& metadata) {
  PUMICE_TRY(const ModelDimensions d, metadata.read_dimensions());
  PUMICE_TRY(const RopeSource rope, metadata.read_rope(d));
  PUMICE_TRY(const float eps, metadata.read_rms_eps());

  ProgramBuilder p(d);
  const ProgramBuilder::SelfAttention attention{
      .state_group = p.state_group("full", d.n_kv_heads, d.head_dim),
      .attention = {.n_heads = d.n_heads, .scale = 1 / std::sqrt(d.head_dim)},
      .rotation = p.rotation(rope, d.head_dim, ProgramBuilder::Pairs::kHalves),
      .head_norm_eps = eps};

  ValueId x = p.embed("token_embd", d.n_embd, d.n_vocab);
  for (uint32_t i = 0; i < d.n_layers; ++i) {
    p.begin_layer(x);
    x = p.add(x, p.self_attention(p.rms_norm(x, "attn_norm", eps), attention));

    const ValueId f = p.rms_norm(x, "ffn_norm", eps);
    x = p.add(x, p.gated_ffn(f, ActivationKind::kSilu, d.n_ff));
    p.end_layer(x);
  }
  x = p.rms_norm(x, "output_norm", eps);
  return p.finish(p.linear(x, metadata.output_stem(), d.n_vocab));
}

}  // namespace pumice::families
