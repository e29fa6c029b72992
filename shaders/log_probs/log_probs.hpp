// Log probabilities of tokens under a row of logits: of one token, and of the best.
#pragma once

#include "base/result.hpp"
#include "shaders/log_probs/log_probs.h"
#include "vk/memory.hpp"
#include "vk/pipeline.hpp"
#include "vk/recorder.hpp"

namespace pumice::ops {

using ::LogProbsRow;

class LogProbs {
 public:
  /// A token with this bit set stands for `sampled[token & ~kFromSampled]`.
  static constexpr uint32_t kFromSampled = 0x80000000u;

  /// (token, bits of a float).
  struct Entry {
    uint32_t token = 0;
    float log_prob = 0;
  };

  struct Args {
    vk::BufferRange logits;   ///< float [n_rows][n_vocab]; any values, taken as canonical()
    vk::BufferRange rows;     ///< LogProbsRow [n_rows], 8-byte aligned; n_results at most `stride`
                              ///< and 1 + n_vocab
    vk::BufferRange sampled;  ///< uint32 [*]; empty if no row refers to it
    vk::BufferRange results;  ///< Entry [n_rows][stride], 8-byte aligned: the row's token, then the
                              ///< best by falling logit, equal ones by rising id; what is not
                              ///< wanted of a row is not written
    uint32_t n_rows = 0;
    uint32_t n_vocab = 0;  ///< n_rows * n_vocab below 2^32
    uint32_t stride = 0;
  };

  static Result<LogProbs> plan(vk::PipelineLibrary& pipelines);

  /// log p = x - log(sum of exp(x)) of the row, within 1e-5 + 2^-22 |log p|; -inf where the logit is.
  void record(vk::Recorder& recorder, const Args& args) const;

 private:
  const vk::Pipeline* pipeline_ = nullptr;
};

}  // namespace pumice::ops
