// What an engine has on a device beside weights, keys and values, and activations: each of its
// arenas written once, for plans of memory and for DeviceState.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/engine_options.hpp"
#include "engine/engine_sizes.hpp"
#include "models/step_args.hpp"
#include "vk/arena_layout.hpp"
#include "vk/memory.hpp"

namespace pumice {

struct EngineBuffers {
  /// Of one step under way.
  struct Ring {
    StepArgs args;
    vk::BufferRange sampling;            ///< ops::SamplingRow [logit_rows]
    vk::BufferRange sampled_readback;    ///< uint32 [logit_rows]
    vk::BufferRange log_prob_rows;       ///< ops::LogProbsRow [logit_rows]; not with greedy_only
    vk::BufferRange log_probs_readback;  ///< as log_probs
    vk::BufferRange logits_readback;     ///< float [logit_rows][n_vocab]; only with prompt_logits
    vk::BufferRange given;               ///< float [rows][given_width]; only where there are any
    vk::BufferRange hidden_readback;     ///< float [rows][hidden_width]; likewise
  };
  std::vector<Ring> rings;

  std::vector<vk::BufferRange> block_tables;  ///< by kind: uint64 [n_slots][table_stride]
  /// What sampling looks up, in one range: logit biases, uint32 pairs [n_slots][kMaxLogitBias], and,
  /// not with greedy_only, masks, uint32 [n_rings][logit_rows][mask_words].
  vk::BufferRange sampling_tables;
  vk::BufferRange token_counts;                ///< uint32 [n_slots][n_vocab]: for penalties
  std::vector<vk::BufferRange> staged_counts;  ///< by slot: uint32 [n_vocab]; not with greedy_only
  vk::BufferRange sampling_scratch;
  vk::BufferRange sampled;    ///< uint32 [n_rings][logit_rows]
  vk::BufferRange log_probs;  ///< ops::LogProbs::Entry [logit_rows][kLogProbsStride]; likewise
  /// Pages on their way between tiers; only where there are any.
  std::vector<vk::BufferRange> staged_pages;
  /// Pages on their way to a prefix store; only where there is one.
  std::vector<vk::BufferRange> stored_pages;

  /// All of this, arena by arena; those of one purpose are neighbours. The options are those that
  /// the sizes are of.
  std::vector<vk::ArenaLayout> lay_out(const EngineSizes& sizes, const EngineOptions& options,
                                       uint32_t n_vocab);
};

}  // namespace pumice
