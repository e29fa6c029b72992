// Llama 1, 2 and 3, Mistral 7B and Nemo, Mixtral, TinyLlama and everything else that calls itself
// "llama": Touvron et al., "LLaMA", 2023; Jiang et al., "Mixtral of Experts", 2024.
#include "models/families.hpp"

namespace pumice::families {

Result<Program> build_llama(const Metadata& metadata) {
  PUMICE_TRY(const ModelDimensions d, metadata.read_dimensions());
  PUMICE_TRY(const ExpertSource experts, metadata.read_experts(d));
  PUMICE_TRY(const uint32_t n_dense, metadata.read_dense_layers(d));
  PUMICE_TRY(const RopeSource rope, metadata.read_rope(d));
  PUMICE_TRY(const float eps, metadata.read_rms_eps());
  // As llama.cpp does for this architecture.
  metadata.leave_out({"attention.sliding_window", "attention.sliding_window_pattern"});

  ProgramBuilder p(d);
  const auto attention = p.full_attention(d, rope, ProgramBuilder::Pairs::kNeighbours);

  ValueId x = p.embed("token_embd", d.n_embd, d.n_vocab);
  for (uint32_t i = 0; p.next_layer(x, i, d.n_layers); ++i) {
    x = p.add(x, p.self_attention(p.rms_norm(x, "attn_norm", eps), attention));

    const ValueId f = p.rms_norm(x, "ffn_norm", eps);
    const bool dense = i < n_dense || experts.n_experts == 0;
    x = p.add(x, dense ? p.gated_ffn(f, ActivationKind::kSilu, d.n_ff)
                       : p.experts(f, {.source = experts}));
  }
  return p.finish(x, metadata.output_stem(), eps);
}

}  // namespace pumice::families
