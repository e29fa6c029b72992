// The ops of a decoder but for linear, rope and attention, planned in each of their kinds.
#pragma once

#include <vector>

#include "base/result.hpp"
#include "format/weight_type.hpp"
#include "shaders/causal_conv/causal_conv.hpp"
#include "shaders/elementwise/elementwise.hpp"
#include "shaders/embedding/embedding.hpp"
#include "shaders/expert_gemm/expert_gemm.hpp"
#include "shaders/experts/experts.hpp"
#include "shaders/gated_activation/gated_activation.hpp"
#include "shaders/head_linear/head_linear.hpp"
#include "shaders/latent/latent.hpp"
#include "shaders/layer_norm/layer_norm.hpp"
#include "shaders/log_probs/log_probs.hpp"
#include "shaders/lora/lora.hpp"
#include "shaders/recurrence/recurrence.hpp"
#include "shaders/rms_norm/rms_norm.hpp"
#include "shaders/sampling/sampling.hpp"
#include "vk/pipeline.hpp"

namespace pumice::test {

/// Declares their pipelines, with weights of these types. The first error.
inline Status plan_small_ops(vk::PipelineLibrary& pipelines,
                             const std::vector<const WeightType*>& types) {
  for (const WeightType* type : types) {
    PUMICE_TRY_STATUS(ops::Embedding::plan(pipelines, *type));
    PUMICE_TRY_STATUS(ops::ExpertLinear::plan(pipelines, *type, false));
    PUMICE_TRY_STATUS(ops::HeadTranspose::plan(pipelines, *type));
    for (const bool transposed : {false, true}) {
      PUMICE_TRY_STATUS(ops::HeadLinear::plan(pipelines, *type, transposed));
    }
  }
  for (const auto math : {ops::Math::kAuto, ops::Math::kF32}) {
    PUMICE_TRY_STATUS(ops::ExpertGemm::plan(pipelines, types, math,
                                            ops::tuned_x_route(pipelines.device()->plan())));
  }
  PUMICE_TRY_STATUS(ops::RmsNorm::plan(pipelines));
  PUMICE_TRY_STATUS(ops::LayerNorm::plan(pipelines));
  PUMICE_TRY_STATUS(ops::LogProbs::plan(pipelines));
  PUMICE_TRY_STATUS(ops::Lora::plan(pipelines));
  for (const KvType type : {KvType::kF32, KvType::kF16}) {
    PUMICE_TRY_STATUS(ops::LatentRows::plan(pipelines, 576, type));
    PUMICE_TRY_STATUS(ops::LatentHeads::plan(
        pipelines, {.n_heads = 16, .n_still = 128, .n_turned = 64, .v_dim = 128, .type = type}));
  }
  using Gated = ops::GatedActivation::Kind;
  for (const auto kind :
       {Gated::kSilu, Gated::kGelu, Gated::kGeluTanh, Gated::kSigmoid, Gated::kRelu}) {
    PUMICE_TRY_STATUS(ops::GatedActivation::plan(pipelines, kind));
  }
  using Elementwise = ops::Elementwise::Kind;
  for (const auto kind :
       {Elementwise::kAdd, Elementwise::kMul, Elementwise::kAddBias, Elementwise::kSilu,
        Elementwise::kGelu, Elementwise::kGeluTanh, Elementwise::kScale, Elementwise::kSoftCap,
        Elementwise::kCopy, Elementwise::kCopyGroups, Elementwise::kXielu, Elementwise::kMulGroups,
        Elementwise::kSigmoid, Elementwise::kRelu, Elementwise::kAtMost, Elementwise::kWithin}) {
    PUMICE_TRY_STATUS(ops::Elementwise::plan(pipelines, kind));
  }
  using Probability = ops::Route::Kind::Probability;
  for (const auto probability : {Probability::kSoftmax, Probability::kSigmoid}) {
    for (const bool chosen_otherwise : {false, true}) {
      PUMICE_TRY_STATUS(ops::Route::plan(
          pipelines,
          {.probability = probability, .biased = chosen_otherwise, .grouped = chosen_otherwise}));
    }
  }
  for (const bool silu : {false, true}) {
    PUMICE_TRY_STATUS(ops::CausalConv::plan(pipelines, {.taps = 4, .silu = silu}));
  }
  const auto plan_recurrence = [&](const ops::Recurrence::Shape& shape) -> Status {
    PUMICE_TRY_STATUS(
        ops::Recurrence::plan(pipelines, shape, ops::Recurrence::tuned(pipelines, shape)));
    return {};
  };
  for (const bool delta : {false, true}) {
    PUMICE_TRY_STATUS(plan_recurrence({.n_heads = 4,
                                       .n_key_heads = 2,
                                       .key_dim = 128,
                                       .value_dim = delta ? 128u : 64u,
                                       .by_remainder = delta,
                                       .delta = delta,
                                       .has_d = !delta}));
  }
  PUMICE_TRY_STATUS(plan_recurrence({.n_heads = 4,
                                     .n_key_heads = 4,
                                     .key_dim = 128,
                                     .value_dim = 128,
                                     .delta = true,
                                     .decay = ops::Recurrence::Decay::kKey}));
  PUMICE_TRY_STATUS(plan_recurrence({.n_heads = 1,
                                     .n_key_heads = 1,
                                     .key_dim = 16,
                                     .value_dim = 8192,
                                     .has_d = true,
                                     .decay = ops::Recurrence::Decay::kState}));
  PUMICE_TRY_STATUS(ops::Combine::plan(pipelines));
  for (const uint32_t n_vocab : {512u, 128256u}) {
    const auto tuning = ops::Sampling::tuned(pipelines, n_vocab);
    for (const auto variant : {ops::Sampling::Variant::kGreedy, ops::Sampling::Variant::kFull}) {
      PUMICE_TRY_STATUS(ops::Sampling::plan(pipelines, variant, tuning));
    }
  }
  return {};
}

}  // namespace pumice::test
