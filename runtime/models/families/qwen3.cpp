// Qwen 3, dense: Yang et al., "Qwen3 Technical Report", 2025. Each head of q and k is normalised.
// Qwen 3 VL is the same where there is text only: the components of a position are equal then, so
// its rope turns as any, and its deep layers get nothing of an image.
#include <cmath>
#include <string_view>

#include "models/families.hpp"

namespace pumice::families {
namespace {

Result<Program> build(const ModelSource& source, std::string_view architecture) {
  const Metadata metadata(source, architecture);
  PUMICE_TRY(const ModelDimensions d, metadata.read_dimensions());
  PUMICE_TRY(const RopeSource rope, metadata.read_rope(d));
  PUMICE_TRY(const float eps, metadata.read_rms_eps());

  ProgramBuilder p(d);
  const auto positions = p.rotation(rope, d.head_dim, ProgramBuilder::Pairs::kHalves);
  const uint32_t cache = p.state_group("full", d.n_kv_heads, d.head_dim);
  const double scale = 1 / std::sqrt(d.head_dim);

  ValueId x = p.embed("token_embd", d.n_embd, d.n_vocab);
  for (uint32_t i = 0; i < d.n_layers; ++i) {
    p.begin_layer(x);
    const ValueId h = p.rms_norm(x, "attn_norm", eps);
    ValueId q = p.linear(h, "attn_q", d.q_dim());
    q = p.rope(p.head_norm(q, "attn_q_norm", d.head_dim, eps), positions);
    ValueId k = p.linear(h, "attn_k", d.kv_dim());
    k = p.rope(p.head_norm(k, "attn_k_norm", d.head_dim, eps), positions);
    const ValueId v = p.linear(h, "attn_v", d.kv_dim());
    const ValueId kv = p.append(cache, k, v);
    const ValueId a = p.attention(q, kv, {.n_heads = d.n_heads, .scale = scale});
    x = p.add(x, p.linear(a, "attn_output", d.n_embd));

    const ValueId f = p.rms_norm(x, "ffn_norm", eps);
    x = p.add(x, p.gated_ffn(f, ActivationKind::kSilu, d.n_ff));
    p.end_layer(x);
  }
  x = p.rms_norm(x, "output_norm", eps);
  return p.finish(p.linear(x, metadata.output_stem(), d.n_vocab));
}

}  // namespace

Result<Program> build_qwen3(const ModelSource& source) { return build(source, "qwen3"); }
Result<Program> build_qwen3vl(const ModelSource& source) { return build(source, "qwen3vl"); }

}  // namespace pumice::families
