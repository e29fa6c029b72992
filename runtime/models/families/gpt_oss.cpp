// gpt-oss: OpenAI, "gpt-oss-120b & gpt-oss-20b Model Card", 2025. Every other layer, from the first
// on, has a window; each head has a sink; experts have biases, and their gates and what those
// multiply are limited.
#include <string_view>

#include "models/families.hpp"

namespace pumice::families {
namespace {

constexpr double kLimit = 7;
constexpr double kSteepness = 1.702;  // of the sigmoid

ValueId experts(ProgramBuilder& p, ValueId x, const ExpertSource& source, uint32_t n_embd) {
  constexpr auto kBias = ProgramBuilder::Bias::kAdded;
  const uint32_t n = source.n_experts;
  const ValueId to = p.route(p.linear(x, "ffn_gate_inp", n, kBias), source.n_used, source.router);
  const auto product = [&](std::string_view stem) {
    return p.expert_linear(x, to, stem, {n_embd, source.n_ff, n}, kBias);
  };
  const ValueId gate = p.at_most(product("ffn_gate_exps"), kLimit);
  const ValueId up = p.within(product("ffn_up_exps"), kLimit);
  const ValueId gated = p.mul(gate, p.sigmoid(p.scale(gate, kSteepness)));
  const ValueId y = p.add(gated, p.mul(gated, up));  // gated (up + 1)
  return p.combine(p.expert_linear(y, to, "ffn_down_exps", {source.n_ff, n_embd, n}, kBias), to);
}

}  // namespace

Result<Program> build_gpt_oss(const Metadata& metadata) {
  PUMICE_TRY(const ModelDimensions d, metadata.read_dimensions());
  PUMICE_TRY(const ExpertSource expert_source,
             metadata.read_experts(d, {}, Metadata::SharedExperts::kNone));
  PUMICE_TRY(const uint32_t window, metadata.read_window(128));
  PUMICE_TRY(const uint32_t period, metadata.read_window_period(2));
  PUMICE_TRY(const RopeSource rope, metadata.read_rope(d));
  PUMICE_TRY(const float eps, metadata.read_rms_eps());

  ProgramBuilder p(d);
  auto full = p.full_attention(d, rope, ProgramBuilder::Pairs::kHalves);
  full.attention.sinks = "attn_sinks";
  full.bias = full.output_bias = ProgramBuilder::Bias::kAdded;
  const auto recent = p.in_window(full, window);

  ValueId x = p.embed("token_embd", d.n_embd, d.n_vocab);
  for (uint32_t i = 0; p.next_layer(x, i, d.n_layers); ++i) {
    const bool sees_all = (i + 1) % period == 0;
    x = p.add(x, p.self_attention(p.rms_norm(x, "attn_norm", eps), sees_all ? full : recent));
    x = p.add(x, experts(p, p.rms_norm(x, "post_attention_norm", eps), expert_source, d.n_embd));
  }
  return p.finish(x, metadata.output_stem(), eps);
}

}  // namespace pumice::families
