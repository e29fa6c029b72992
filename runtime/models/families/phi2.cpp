// Phi-1, 1.5 and 2: Li et al., "Textbooks Are All You Need II: phi-1.5 technical report", 2023.
// Attention and feed-forward side by side after one norm, biases everywhere, the logits' too.
#include "models/families.hpp"

namespace pumice::families {

Result<Program> build_phi2(const Metadata& metadata) {
  PUMICE_TRY(const ModelDimensions d, metadata.read_dimensions());
  PUMICE_TRY(const RopeSource rope, metadata.read_rope(d));
  PUMICE_TRY(const float eps, metadata.read_layer_norm_eps());

  ProgramBuilder p(d);
  constexpr auto kBias = ProgramBuilder::Bias::kAdded;
  auto attention = p.full_attention(d, rope, ProgramBuilder::Pairs::kHalves);
  attention.bias = attention.output_bias = kBias;
  attention.fused = metadata.has_tensor("blk.0.attn_qkv.weight");

  ValueId x = p.embed("token_embd", d.n_embd, d.n_vocab);
  for (uint32_t i = 0; p.next_layer(x, i, d.n_layers); ++i) {
    const ValueId h = p.layer_norm(x, "attn_norm", eps);
    x = p.add(x, p.self_attention(h, attention));

    const ValueId up = p.gelu_tanh(p.linear(h, "ffn_up", d.n_ff, kBias));
    x = p.add(x, p.linear(up, "ffn_down", d.n_embd, kBias));
  }
  x = p.layer_norm(x, "output_norm", eps);
  return p.finish(p.linear(x, "output", d.n_vocab, kBias));
}

}  // namespace pumice::families
