#include "shaders/sampling/sampling.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "shaders/common/tuning.hpp"
#include "shaders/spirv.hpp"

namespace pumice::ops {
static_assert(sizeof(SamplingRow) == 96, "GLSL strides by this");

SamplingRow sampling_row(const SamplerConstants& constants, uint64_t token_index, uint32_t place) {
  return {.repeat = constants.repeat,
          .inverse_repeat = constants.inverse_repeat,
          .frequency = constants.frequency,
          .presence = constants.presence,
          .inverse_temperature = constants.inverse_temperature,
          .top_k = constants.top_k,
          .top_p_q32 = constants.top_p_q32,
          .min_p_q24 = constants.min_p_q24,
          .seed_low = constants.seed_low,
          .seed_high = constants.seed_high,
          .index_low = static_cast<uint32_t>(token_index),
          .index_high = static_cast<uint32_t>(token_index >> 32),
          .place = place};
}

bool Sampling::is_plain_greedy(const SamplingRow& row) {
  return row.inverse_temperature == 0 && row.counts == 0 && row.mask == 0 && row.n_bias == 0;
}

Sampling::Tuning Sampling::tuned(const vk::PipelineLibrary& pipelines, uint32_t n_vocab) {
  const vk::DevicePlan& device = pipelines.device()->plan();
  const uint32_t most = std::min(device.max_workgroup_invocations, device.max_workgroup_size[0]);
  const vk::TuningRow& row =
      take_row(pipelines, "sampling", vk::TuningFacts().set("vocab", n_vocab),
               [&](const vk::TuningRow& one) {
                 if (one.number("workgroup_size") > most) return "its workgroups are too large";
                 const bool fits = one.number("slices") == 1 || n_vocab / one.number("slices") >= 4;
                 return fits ? "" : "its slices of the vocabulary are too small";
               });
  return {.workgroup_size = row.number("workgroup_size"),
          .flight = row.number("flight"),
          .n_slices = row.number("slices")};
}

Result<Sampling> Sampling::plan(vk::PipelineLibrary& pipelines, Variant variant,
                                const Tuning& tuning) {
  const SamplingSpec spec{.workgroup_size = tuning.workgroup_size, .flight = tuning.flight};
  const std::string name = variant == Variant::kGreedy ? "sampling.greedy" : "sampling";
  const auto declare = [&](std::string_view part,
                           std::string_view label) -> Result<const vk::Pipeline*> {
    PUMICE_TRY(const vk::ShaderModule module, find_spirv(fmt::format("{}.{}", name, part)));
    return declare_kernel<SamplingPush>(pipelines, module, spec, fmt::format("{}{}", name, label));
  };
  Sampling op;
  op.n_slices_ = tuning.n_slices;
  if (tuning.n_slices > 1) {
    PUMICE_TRY(op.slices_, declare("slice", ".slice"));
  }
  PUMICE_TRY(op.choice_, declare(tuning.n_slices > 1 ? "choice" : "whole", ""));
  return op;
}

void Sampling::record(vk::Recorder& recorder, const Args& args) const {
  SamplingPush push;
  push.logits = args.logits.address();
  push.rows = args.rows.address();
  push.sampled = args.sampled.address();
  push.scratch = args.scratch.address();
  push.n_vocab = args.n_vocab;
  push.n_slices = n_slices_;
  vk::Cost cost{.bytes = uint64_t{args.n_rows} * args.n_vocab * 4, .flops = 0};
  if (slices_ != nullptr) {
    PUMICE_CHECK(args.n_vocab / n_slices_ >= 4, "sampling: slices hold what they leave");
    recorder.dispatch(*slices_, push, {n_slices_, args.n_rows},
                      {vk::reads(args.logits), vk::reads(args.rows), vk::writes(args.scratch),
                       vk::reads(args.counts), vk::reads(args.tables)},
                      cost);
    cost.bytes = uint64_t{args.n_rows} * n_slices_ * 8;
  }
  recorder.dispatch(*choice_, push, {args.n_rows},
                    {vk::reads(args.logits), vk::reads(args.rows), vk::writes(args.sampled),
                     slices_ != nullptr ? vk::updates(args.scratch) : vk::writes(args.scratch),
                     vk::updates(args.counts), vk::reads(args.tables)},
                    cost);
}

}  // namespace pumice::ops
