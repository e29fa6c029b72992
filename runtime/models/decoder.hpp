// The decoder: one transformer step over a ragged batch, recorded from a ModelConfig. Every family
// runs through it.
#pragma once

#include <memory>

#include "base/result.hpp"
#include "models/model_config.hpp"
#include "models/weights.hpp"
#include "shaders/embedding/embedding.hpp"
#include "shaders/flash_attention/flash_attention.hpp"
#include "shaders/gated_activation/gated_activation.hpp"
#include "shaders/linear/linear.hpp"
#include "shaders/rms_norm/rms_norm.hpp"
#include "shaders/rope_kv/rope_kv.hpp"
#include "vk/recorder.hpp"

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
};

/// What one step works on. Ranges are device memory; see StepArgs for their contents.
struct DecoderStep {
  uint32_t n_rows = 0;
  uint32_t n_logit_rows = 0;
  vk::BufferRange tokens;
  vk::BufferRange sampled;
  vk::BufferRange positions;
  vk::BufferRange row_seq;
  vk::BufferRange logit_rows;
  vk::BufferRange block_table;
  uint32_t table_stride = 0;
  vk::BufferRange kv;  ///< stands for all of the KV memory

  // Attention work lists (ops::plan_attention). A list with `has_…` false is not recorded at all.
  // Grids are read by the GPU, so that a recording can be replayed with other lists.
  bool has_tiles = false;
  bool has_rows = false;
  bool has_reduce = false;
  vk::BufferRange tile_items, row_items, reduce_items;
  vk::BufferRange tile_grid, row_grid, reduce_grid;
  ops::AttentionPlan const* attention = nullptr;  ///< the lists' sizes, for declared costs
};

class Decoder {
 public:
  /// Declare pipelines and allocate activations and the rope table. `weights` must outlive the
  /// decoder. Errors: kDoesNotFit, kInvalidArgument (a shape no kernel takes, an arithmetic this
  /// device has no kernel for).
  static Result<Decoder> plan(const std::shared_ptr<vk::Device>& device,
                              vk::PipelineLibrary& pipelines, const ModelConfig& config,
                              const ModelWeights& weights, KvType kv_type, ops::Math math,
                              const DecoderLimits& limits);

  /// Record a step: KV of its rows is written, and logits() holds n_logit_rows rows. The recorder
  /// is cut at layer edges, and every command has its part of the model and its layer as scope.
  void record(vk::Recorder& recorder, const DecoderStep& step) const;

  /// float [logit_rows][n_vocab]
  const vk::BufferRange& logits() const { return logits_; }
  const ops::FlashAttention& attention() const { return attention_; }

  /// What keys and values depend on besides tokens, weights, KV type and the engine's options: the
  /// arithmetic of each kind of product ("Q8_0 f16 attention f32"), as chosen for this device. With
  /// DecoderLimits::invariant, which promises bits, also which kernels they are, and whose compiler
  /// built them for which device.
  std::string arithmetic() const;

  /// Device bytes `plan` will allocate at most.
  static uint64_t buffer_bytes(const ModelConfig& config, const DecoderLimits& limits);

 private:
  Decoder(std::shared_ptr<vk::Device> device, ModelConfig config, const ModelWeights& weights,
          KvType kv_type, vk::Arena arena)
      : device_(std::move(device)),
        config_(std::move(config)),
        weights_(&weights),
        kv_layout_(config_.kv_layout(kv_type)),
        arena_(std::move(arena)) {}

  Status allocate(const DecoderLimits& limits);
  Status fill_rope_table(const std::shared_ptr<vk::Device>& device, uint32_t n_positions);
  void record_layer(vk::Recorder& recorder, const DecoderStep& step, uint32_t layer) const;
  void record_attention(vk::Recorder& recorder, const DecoderStep& step, uint32_t layer) const;
  void record_stack(vk::Recorder& recorder, const StackedMatrices& stack, const vk::BufferRange& x,
                    const vk::BufferRange& y, uint32_t n_rows) const;

  std::shared_ptr<vk::Device> device_;
  ModelConfig config_;
  const ModelWeights* weights_;
  KvLayout kv_layout_;
  vk::Arena arena_;
  bool invariant_ = false;

  ops::Embedding embedding_;
  ops::RmsNorm rms_norm_;
  ops::Linear linear_;
  ops::RopeKv rope_kv_;
  ops::FlashAttention attention_;
  ops::GatedActivation gated_activation_;

  vk::BufferRange rope_table_;
  vk::BufferRange x_;                          // float [rows][n_embd]: the residual stream
  vk::BufferRange delta_;                      // float [rows][n_embd]: what a block adds to it
  vk::BufferRange normed_;                     // float [rows][n_embd]
  vk::BufferRange qkv_;                        // float [rows][q_dim + 2 kv_dim]
  vk::BufferRange context_;                    // float [rows][q_dim]: attention's output
  vk::BufferRange gate_up_;                    // float [rows][2 n_ff]
  vk::BufferRange gated_;                      // float [rows][n_ff]
  vk::BufferRange logits_;                     // float [logit_rows][n_vocab]
  vk::BufferRange partial_stats_, partial_y_;  // attention's split-KV scratch
  vk::BufferRange linear_scratch_;             // empty if linear_ needs none
};

}  // namespace pumice
