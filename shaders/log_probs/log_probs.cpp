#include "shaders/log_probs/log_probs.hpp"

#include "shaders/spirv.hpp"

namespace pumice::ops {

static_assert(sizeof(LogProbs::Entry) == 8 && sizeof(LogProbsRow) == 8, "GLSL strides by these");

Result<LogProbs> LogProbs::plan(vk::PipelineLibrary& pipelines) {
  LogProbs op;
  PUMICE_TRY(const vk::ShaderModule module, find_spirv("log_probs"));
  PUMICE_TRY(op.pipeline_, pipelines.declare({.module = module,
                                              .constants = vk::constants_of(LogProbsSpec{}),
                                              .push_bytes = sizeof(LogProbsPush),
                                              .seldom = true}));
  return op;
}

void LogProbs::record(vk::Recorder& recorder, const Args& args) const {
  LogProbsPush push;
  push.logits = args.logits.address();
  push.rows = args.rows.address();
  push.sampled = args.sampled.address();
  push.results = args.results.address();
  push.n_vocab = args.n_vocab;
  push.stride = args.stride;
  const uint64_t n_logits = uint64_t{args.n_rows} * args.n_vocab;
  recorder.dispatch(*pipeline_, push, {args.n_rows},
                    {vk::reads(args.logits), vk::reads(args.rows), vk::reads(args.sampled),
                     vk::writes(args.results)},
                    {.bytes = n_logits * 4, .flops = n_logits * 2});
}

}  // namespace pumice::ops
