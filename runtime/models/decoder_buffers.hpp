// What a decoder has on a device beside weights: its one arena written once, for plans of memory
// and for the decoder.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "models/latent_expansion.hpp"
#include "models/lowering.hpp"
#include "vk/arena_layout.hpp"
#include "vk/memory.hpp"

namespace pumice {

/// The most a decoder's buffers hold.
struct DecoderLimits {
  uint32_t rows = 0;            ///< tokens in a step
  uint32_t logit_rows = 0;      ///< rows whose logits are computed
  uint32_t context_tokens = 0;  ///< positions of a sequence
  uint64_t attention_partials = 0;
  /// A row's results do not depend on its batch, to the last bit: fp32 kernels of one family for
  /// every number of rows. Attention must be planned with every row split alike.
  bool invariant = false;
  Routing routing = Routing::kChosen;

  uint64_t rows_of(const Buffer& buffer) const;
};

/// Where each buffer lies in one piece of memory: buffers that are never in use at once may share.
struct ActivationPlan {
  std::vector<uint64_t> offsets;  ///< bytes, multiples of 256, by BufferId
  uint64_t bytes = 0;
};
ActivationPlan plan_activations(const Lowered& lowered, const DecoderLimits& limits);

/// Of those classes of attention whose latents are expanded.
std::map<uint32_t, ExpansionSizes> expansion_sizes(const Lowered& lowered,
                                                   const DecoderLimits& limits,
                                                   uint64_t slab_bytes);

struct DecoderBuffers {
  vk::BufferRange activations;                 ///< as plan_activations divides them
  std::map<BufferId, vk::BufferRange> routes;  ///< unless they are chosen: beside the activations
  vk::BufferRange partial_stats;               ///< attention's split-KV scratch
  vk::BufferRange partial_y;
  vk::BufferRange carried;         ///< what attention's workgroups keep between dispatches
  vk::BufferRange linear_scratch;  ///< of products
  std::map<uint32_t, ExpansionBuffers> expanded;  ///< by attention class
  std::vector<vk::BufferRange> rope_tables;       ///< by rope of the program

  /// All of this. Where devices differ in what their kernels want, the most that any does, but no
  /// more than a slab.
  vk::ArenaLayout lay_out(const Lowered& lowered, const Program& program,
                          const DecoderLimits& limits, uint64_t slab_bytes);
};

}  // namespace pumice
