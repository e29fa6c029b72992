// StarCoder 2: Lozhkov et al., "StarCoder 2 and The Stack v2", 2024. GPT-2 with a rope and kv heads
// that queries share. Its window of 4096 keys is in no key of its files, and left out by llama.cpp.
#include "models/families.hpp"

namespace pumice::families {

Result<Program> build_starcoder2(const Metadata& metadata) {
  PUMICE_TRY(const ModelDimensions d, metadata.read_dimensions());
  PUMICE_TRY(const RopeSource rope, metadata.read_rope(d));
  PUMICE_TRY(const float eps, metadata.read_layer_norm_eps());

  ProgramBuilder p(d);
  constexpr auto kBias = ProgramBuilder::Bias::kAdded;
  auto attention = p.full_attention(d, rope, ProgramBuilder::Pairs::kHalves);
  attention.bias = attention.output_bias = kBias;

  ValueId x = p.embed("token_embd", d.n_embd, d.n_vocab);
  for (uint32_t i = 0; p.next_layer(x, i, d.n_layers); ++i) {
    x = p.add(x, p.self_attention(p.layer_norm(x, "attn_norm", eps), attention));

    const ValueId f = p.layer_norm(x, "ffn_norm", eps);
    const ValueId up = p.gelu_tanh(p.linear(f, "ffn_up", d.n_ff, kBias));
    x = p.add(x, p.linear(up, "ffn_down", d.n_embd, kBias));
  }
  x = p.layer_norm(x, "output_norm", eps);
  return p.finish(p.linear(x, metadata.output_stem(), d.n_vocab));
}

}  // namespace pumice::families
