#include "shaders/sampling/sampling.hpp"

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

Result<Sampling> Sampling::plan(vk::PipelineLibrary& pipelines, Variant variant) {
  PUMICE_TRY(const vk::ShaderModule module, find_spirv("sampling"));
  const bool greedy = variant == Variant::kGreedy;
  Sampling op;
  PUMICE_TRY(op.pipeline_, declare_kernel<SamplingPush>(
                               pipelines, module, SamplingSpec{.greedy_only = greedy ? 1u : 0u},
                               greedy ? "sampling.greedy" : "sampling"));
  return op;
}

void Sampling::record(vk::Recorder& recorder, const Args& args) const {
  SamplingPush push;
  push.logits = args.logits.address();
  push.rows = args.rows.address();
  push.sampled = args.sampled.address();
  push.scratch = args.scratch.address();
  push.n_vocab = args.n_vocab;
  recorder.dispatch(*pipeline_, push, {args.n_rows},
                    {vk::reads(args.logits), vk::reads(args.rows), vk::writes(args.sampled),
                     vk::writes(args.scratch), vk::updates(args.counts), vk::reads(args.tables)},
                    {.bytes = uint64_t{args.n_rows} * args.n_vocab * 4, .flops = 0});
}

}  // namespace pumice::ops
