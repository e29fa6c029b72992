// Apertus: Swiss AI Initiative, "Apertus: Democratizing Open and Compliant LLMs for Global Language
// Environments", 2025. A feed-forward without gate whose activation, xIELU, each layer has learned:
// Huang and Schlag, "Deriving Activation Functions Using Integration", 2024.
#include <algorithm>
#include <cmath>
#include <string_view>
#include <vector>

#include "models/families.hpp"

namespace pumice::families {
namespace {

/// One for all layers, or one for each.
Result<std::vector<float>> of_layers(const Metadata& metadata, std::string_view key,
                                     uint32_t n_layers) {
  PUMICE_TRY(std::vector<float> values, metadata.file().get_vector<float>(key, n_layers));
  if (values.size() == 1) values.resize(n_layers, values[0]);
  if (values.size() != n_layers) {
    return make_error(ErrorCode::kBadFile, "{}: {} numbers for {} layers", key, values.size(),
                      n_layers);
  }
  return values;
}

float softplus(float x) {
  return static_cast<float>(std::max(double{x}, 0.0) + std::log1p(std::exp(-std::abs(double{x}))));
}

/// All but the values that they are of. Files have alphas before they are made positive.
Result<std::vector<op::Xielu>> read_xielu(const Metadata& metadata, uint32_t n_layers) {
  PUMICE_TRY(const std::vector<float> alpha_p, of_layers(metadata, "xielu.alpha_p", n_layers));
  PUMICE_TRY(const std::vector<float> alpha_n, of_layers(metadata, "xielu.alpha_n", n_layers));
  PUMICE_TRY(const std::vector<float> beta, of_layers(metadata, "xielu.beta", n_layers));
  PUMICE_TRY(const std::vector<float> eps, of_layers(metadata, "xielu.eps", n_layers));
  std::vector<op::Xielu> layers;
  for (uint32_t i = 0; i < n_layers; ++i) {
    layers.push_back({.x = {},
                      .alpha_p = softplus(alpha_p[i]),
                      .alpha_n = beta[i] + softplus(alpha_n[i]),
                      .beta = beta[i],
                      .eps = eps[i]});
    const op::Xielu& l = layers.back();
    if (!std::isfinite(l.alpha_p) || !std::isfinite(l.alpha_n) || !std::isfinite(l.eps)) {
      return make_error(ErrorCode::kBadFile, "xielu: constants of layer {} are not finite", i);
    }
  }
  return layers;
}

}  // namespace

Result<Program> build_apertus(const Metadata& metadata) {
  PUMICE_TRY(const ModelDimensions d, metadata.read_dimensions());
  PUMICE_TRY(const RopeSource rope, metadata.read_rope(d));
  PUMICE_TRY(const float eps, metadata.read_rms_eps());
  PUMICE_TRY(auto xielu, read_xielu(metadata, d.n_layers));

  ProgramBuilder p(d);
  auto attention = p.full_attention(d, rope, ProgramBuilder::Pairs::kHalves);
  attention.head_norm_eps = eps;

  ValueId x = p.embed("token_embd", d.n_embd, d.n_vocab);
  for (uint32_t i = 0; p.next_layer(x, i, d.n_layers); ++i) {
    x = p.add(x, p.self_attention(p.rms_norm(x, "attn_norm", eps), attention));

    const ValueId f = p.rms_norm(x, "ffn_norm", eps);
    xielu[i].x = p.linear(f, "ffn_up", d.n_ff);
    x = p.add(x, p.linear(p.each(xielu[i]), "ffn_down", d.n_embd));
  }
  return p.finish(x, metadata.output_stem(), eps);
}

}  // namespace pumice::families
