// GPT-NeoX, Pythia, Dolly and RedPajama: Black et al., "GPT-NeoX-20B: An Open-Source Autoregressive
// Language Model", 2022. Attention and feed-forward side by side or one after the other, each with
// its own norm; a rope of a part of each head.
#include "models/families.hpp"

namespace pumice::families {

Result<Program> build_gptneox(const Metadata& metadata) {
  PUMICE_TRY(const ModelDimensions d, metadata.read_dimensions());
  PUMICE_TRY(const RopeSource rope, metadata.read_rope(d));
  PUMICE_TRY(const float eps, metadata.read_layer_norm_eps());
  PUMICE_TRY(const bool parallel, metadata.get<bool>("use_parallel_residual"));

  ProgramBuilder p(d);
  constexpr auto kBias = ProgramBuilder::Bias::kAdded;
  auto attention = p.full_attention(d, rope, ProgramBuilder::Pairs::kHalves);
  attention.bias = attention.output_bias = kBias;
  attention.fused = true;

  ValueId x = p.embed("token_embd", d.n_embd, d.n_vocab);
  for (uint32_t i = 0; p.next_layer(x, i, d.n_layers); ++i) {
    const ValueId attended =
        p.add(x, p.self_attention(p.layer_norm(x, "attn_norm", eps), attention));

    const ValueId f = p.layer_norm(parallel ? x : attended, "ffn_norm", eps);
    const ValueId up = p.gelu_tanh(p.linear(f, "ffn_up", d.n_ff, kBias));
    x = p.add(attended, p.linear(up, "ffn_down", d.n_embd, kBias));
  }
  x = p.layer_norm(x, "output_norm", eps);
  return p.finish(p.linear(x, metadata.output_stem(), d.n_vocab));
}

}  // namespace pumice::families
