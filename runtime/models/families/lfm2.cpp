// LFM2: Liquid AI, "LFM2 Technical Report", 2025. Most layers mix tokens by a short convolution
// between two gates instead of attention; those have no kv heads in the file. The larger ones have
// experts in all but the first layers, chosen by sigmoids.

#include "models/families.hpp"

namespace pumice::families {
namespace {

/// out · (c · conv(b · x)), where b, c and x are thirds of one product.
ValueId short_conv(ProgramBuilder& p, ValueId h, uint32_t width,
                   const ProgramBuilder::CausalConv& options) {
  const ValueId bcx = p.linear(h, "shortconv.in_proj", 3 * width);
  const ValueId b = p.split(bcx, 0, width);
  const ValueId c = p.split(bcx, width, width);
  const ValueId x = p.split(bcx, 2 * width, width);
  const ValueId mixed = p.causal_conv(p.mul(b, x), "shortconv.conv", options);
  return p.linear(p.mul(c, mixed), "shortconv.out_proj", width);
}

}  // namespace

Result<Program> build_lfm2(const Metadata& metadata) {
  constexpr auto kLayers = Metadata::Layers::kSomeHaveNone;
  PUMICE_TRY(const ModelDimensions d, metadata.read_dimensions(kLayers));
  PUMICE_TRY(const std::vector<uint32_t> kv_heads,
             metadata.read_layer_counts("attention.head_count_kv", d.n_layers, kLayers));
  PUMICE_TRY(const ExpertSource experts, metadata.read_experts(d, kSigmoidRouter));
  PUMICE_TRY(const uint32_t n_dense, metadata.read_dense_layers(d));
  PUMICE_TRY(const uint32_t taps, metadata.read_taps("shortconv.l_cache"));
  PUMICE_TRY(const RopeSource rope, metadata.read_rope(d));
  PUMICE_TRY(const float eps, metadata.read_rms_eps());

  ProgramBuilder p(d);
  auto attention = p.full_attention(d, rope, ProgramBuilder::Pairs::kHalves);
  attention.head_norm_eps = eps;
  const ProgramBuilder::CausalConv conv{.state_group = p.recurrent_group("conv"), .taps = taps};

  ValueId x = p.embed("token_embd", d.n_embd, d.n_vocab);
  for (uint32_t i = 0; p.next_layer(x, i, d.n_layers); ++i) {
    const ValueId h = p.rms_norm(x, "attn_norm", eps);
    PUMICE_TRY_STATUS(metadata.expect_kv_heads(kv_heads[i], d, i));
    x = p.add(x,
              kv_heads[i] == 0 ? short_conv(p, h, d.n_embd, conv) : p.self_attention(h, attention));

    const ValueId f = p.rms_norm(x, "ffn_norm", eps);
    const bool dense = experts.n_experts == 0 || i < n_dense;
    x = p.add(x, dense ? p.gated_ffn(f, ActivationKind::kSilu, d.n_ff)
                       : p.experts(f, {.source = experts, .selection_bias = "exp_probs_b"}));
  }
  x = p.rms_norm(x, "token_embd_norm", eps);  // what the file calls the norm before the output
  return p.finish(p.linear(x, metadata.output_stem(), d.n_vocab));
}

}  // namespace pumice::families
