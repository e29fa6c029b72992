// Choosing the next token of each row of logits on the GPU: the same id as the CPU's definition,
// sampling/reference_sampler.hpp, bit for bit.
#pragma once

#include "base/result.hpp"
#include "sampling/options.hpp"
#include "shaders/sampling/sampling.h"
#include "vk/memory.hpp"
#include "vk/pipeline.hpp"
#include "vk/recorder.hpp"

namespace pumice::ops {

using ::SamplingRow;

/// A row that samples with `constants` the token of that index in its request's output. Without
/// `counts`, `mask` and `bias`, which the caller may fill in; penalties need counts.
SamplingRow sampling_row(const SamplerConstants& constants, uint64_t token_index, uint32_t place);

class Sampling {
 public:
  /// kGreedy is smaller to compile and for steps in which every row is `is_plain_greedy`.
  enum class Variant { kGreedy, kFull };
  static bool is_plain_greedy(const SamplingRow& row);

  /// What may be tuned (sampling.tune).
  struct Tuning {
    uint32_t workgroup_size = 128;  ///< a power of two
    uint32_t flight = 1;            ///< 4 * flight tokens are loaded at a time by a lane, at most 4
    /// Workgroups among which the vocabulary of a row is shared in a first stage, a dispatch of its
    /// own, that leaves a second one few tokens to choose among; 1: one stage. Of at least 4 tokens.
    uint32_t n_slices = 1;
  };

  struct Args {
    vk::BufferRange logits;   ///< float [n_rows][n_vocab]; any values. 16-byte aligned, and memory
                              ///< up to a multiple of as much
    vk::BufferRange rows;     ///< SamplingRow [n_rows], 8-byte aligned; places all different
    vk::BufferRange sampled;  ///< uint32 [*]: receives each row's id at its place
    vk::BufferRange scratch;  ///< uint32 [n_rows][n_vocab], likewise; may be empty if no row has
                              ///< counts, mask or bias, and there is one stage
    vk::BufferRange counts;   ///< holds whatever the rows' `counts` point to; no two rows the same
                              ///< that do not follow one another
    vk::BufferRange tables;   ///< holds whatever the rows' `mask` and `bias` point to
    uint32_t n_rows = 0;
    uint32_t n_vocab = 0;  ///< at most kMaxSampledVocabulary; n_rows * n_vocab below 2^32
  };

  static Tuning tuned(const vk::PipelineLibrary& pipelines, uint32_t n_vocab);
  static Result<Sampling> plan(vk::PipelineLibrary& pipelines, Variant variant,
                               const Tuning& tuning);

  void record(vk::Recorder& recorder, const Args& args) const;

 private:
  uint32_t n_slices_ = 1;
  const vk::Pipeline* slices_ = nullptr;  ///< if there are several
  const vk::Pipeline* choice_ = nullptr;
};

}  // namespace pumice::ops
