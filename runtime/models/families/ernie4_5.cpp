// ERNIE 4.5, dense: Baidu, "ERNIE 4.5 Technical Report", 2025. Llama; heads need not add up to the
// embedding's width, and files may have biases on all of attention.
#include <fmt/format.h>

#include <cmath>
#include <string_view>

#include "models/families.hpp"

namespace pumice::families {

Result<Program> build_ernie4_5(const ModelSource& source) {
  const Metadata metadata(source, "ernie4_5");
  PUMICE_TRY(const ModelDimensions d, metadata.read_dimensions());
  PUMICE_TRY(const RopeSource rope, metadata.read_rope(d));
  PUMICE_TRY(const float eps, metadata.read_rms_eps());

  ProgramBuilder p(d);
  const auto positions = p.rotation(rope, d.head_dim, ProgramBuilder::Pairs::kNeighbours);
  const uint32_t cache = p.state_group("full", d.n_kv_heads, d.head_dim);
  const double scale = 1 / std::sqrt(d.head_dim);

  ValueId x = p.embed("token_embd", d.n_embd, d.n_vocab);
  for (uint32_t i = 0; i < d.n_layers; ++i) {
    p.begin_layer(x);
    const auto biased = [&](ValueId of, std::string_view stem, uint32_t n) {
      const bool has = metadata.has_tensor(fmt::format("blk.{}.{}.bias", i, stem));
      return p.linear(of, stem, n,
                      has ? ProgramBuilder::Bias::kAdded : ProgramBuilder::Bias::kNone);
    };
    const ValueId h = p.rms_norm(x, "attn_norm", eps);
    const ValueId q = p.rope(biased(h, "attn_q", d.q_dim()), positions);
    const ValueId k = p.rope(biased(h, "attn_k", d.kv_dim()), positions);
    const ValueId v = biased(h, "attn_v", d.kv_dim());
    const ValueId kv = p.append(cache, k, v);
    const ValueId a = p.attention(q, kv, {.n_heads = d.n_heads, .scale = scale});
    x = p.add(x, biased(a, "attn_output", d.n_embd));

    const ValueId f = p.rms_norm(x, "ffn_norm", eps);
    x = p.add(x, p.gated_ffn(f, ActivationKind::kSilu, d.n_ff));
    p.end_layer(x);
  }
  x = p.rms_norm(x, "output_norm", eps);
  return p.finish(p.linear(x, metadata.output_stem(), d.n_vocab));
}

}  // namespace pumice::families
