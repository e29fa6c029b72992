// The decoder: one step of a model over a ragged batch, recorded from its lowered program. Knows no
// family.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "models/calls/bound_call.hpp"
#include "models/lowering.hpp"
#include "models/model_plan.hpp"
#include "models/step_args.hpp"
#include "models/weights.hpp"
#include "vk/recorder.hpp"

namespace pumice {

/// The arithmetic of one class's attention where `math` is the model's: of large scores (Gemma 4's)
/// fp16 would not be as precise as kAuto promises.
inline ops::Math attention_math(const AttentionClass& one, ops::Math math) {
  return math == ops::Math::kAuto && one.large_scores ? ops::Math::kF32 : math;
}

/// The arithmetic of products where `math` is the model's. A gated delta net subtracts what it
/// knows of a key from what it is told, and carries what rounding made of both from row to row:
/// with fp16 inputs that would not be as precise as kAuto promises.
inline ops::Math product_math(const Program& program, ops::Math math) {
  const bool carries = std::ranges::any_of(program.ops, [](const Op& op) {
    const auto* const recurrence = std::get_if<op::Recurrence>(&op.what);
    return recurrence != nullptr && recurrence->beta;
  });
  return math == ops::Math::kAuto && carries ? ops::Math::kF32 : math;
}

class Decoder {
 public:
  /// Declare pipelines of what the model's program is by these rules, and allocate activations and
  /// rope tables. `weights` must be the plan's and outlive the decoder. Errors: kDoesNotFit,
  /// kInvalidArgument (a shape no kernel takes, an arithmetic this device has no kernel for),
  /// those of ModelPlan::lowered.
  static Result<Decoder> plan(const std::shared_ptr<vk::Device>& device,
                              vk::PipelineLibrary& pipelines, const ModelPlan& model,
                              const ModelWeights& weights, KvTypes kv_type, ops::Math math,
                              const FusionRules& rules, const DecoderLimits& limits);

  /// Record with these from now on: the same weights, elsewhere. They stay as long as what is
  /// recorded with them.
  void use_weights(const ModelWeights& weights);

  /// Write attention's work lists for the rows of a step. `options` for all classes: tile size and
  /// window are the classes' own.
  void write_attention(std::span<const ops::SequenceChunk> chunks,
                       const ops::AttentionPlanOptions& options, StepArgs& step) const;
  /// What a recorded step depends on besides the numbers of rows: a bit for each attention class
  /// some rows of which are split.
  static uint32_t split_classes(const StepArgs& step);
  /// Whether the attention of a step's single rows is one dispatch in segments of that limit, and
  /// so can be recorded once for any context.
  bool rows_fit(const StepArgs& step, const vk::SegmentLimit& limit) const;

  /// Up to how many rows of a step a row's results are those that it has in a step of its own, to the
  /// last bit, if attention takes it as a chunk of one row in both; UINT32_MAX when invariant.
  uint32_t alike_rows() const;

  /// Record a step: KV of its rows is written, and logits() holds n_logit_rows rows. Every command
  /// has its part of the model and its layer as scope, whose names live as long as the decoder.
  void record(vk::Recorder& recorder, const StepArgs& step, const SequenceMemory& memory) const;

  /// float [logit_rows][n_vocab]
  const vk::BufferRange& logits() const { return shared_->buffers[shared_->lowered.logits]; }
  /// float [rows][width]: what op::GivenRows gives, written before each step; without one, none.
  std::optional<vk::BufferRange> given() const {
    const std::optional<BufferId>& id = shared_->lowered.given;
    return id ? std::optional(shared_->buffers[*id]) : std::nullopt;
  }
  /// float [rows][width]: the hidden rows of the step, with Program::gives_hidden; else none.
  std::optional<vk::BufferRange> hidden() const {
    const std::optional<BufferId>& id = shared_->lowered.hidden;
    return id ? std::optional(shared_->buffers[*id]) : std::nullopt;
  }
  /// Unless routing is kChosen: the routes of each router, in the program's order; see
  /// ops::Route::Args.
  std::span<const vk::BufferRange> routes() const { return routes_; }
  const StateLayout& state() const { return shared_->state; }
  std::span<const AttentionClass> attention_classes() const {
    return shared_->lowered.attention_classes;
  }

  /// What keys and values depend on besides tokens, weights, KV type and the engine's options: the
  /// arithmetic of each kind of product ("Q8_0 f16 attention f32"), as chosen for this device,
  /// whether ropes are those of long contexts, and fusion rules that were left out. With
  /// DecoderLimits::invariant, which promises bits, also which kernels they are, and whose compiler
  /// built them for which device.
  std::string arithmetic() const;

 private:
  Decoder(std::shared_ptr<vk::Device> device, std::unique_ptr<SharedByCalls> shared,
          vk::Arena arena)
      : device_(std::move(device)), shared_(std::move(shared)), arena_(std::move(arena)) {}

  Status fill(const Program& program, const DecoderLimits& limits);
  uint64_t linear_scratch_bytes(const DecoderLimits& limits) const;
  /// Where dispatch i is to write its rows as PlanesOfX too, for products that come next; empty: nowhere.
  vk::BufferRange planes_of_next(size_t i, uint32_t n_rows) const;
  /// Which of the step's chunks a class of attention computes.
  bool has_chunk(uint32_t attention_class, const ops::SequenceChunk& chunk) const;

  std::shared_ptr<vk::Device> device_;
  std::unique_ptr<SharedByCalls> shared_;
  vk::Arena arena_;  // of DecoderBuffers
  std::string rules_;
  bool makes_planes_ = false;  // FusionRule::kPlanes
  uint64_t tuned_ = 0;         // by rows of the device's own: vk::PipelineLibrary::preferred_hash
  bool long_rope_ = false;     // a rope takes its long_divisors

  std::vector<std::unique_ptr<BoundCall>> calls_;  // by dispatch
  std::vector<const WeightType*> types_;           // of products
  std::vector<vk::BufferRange> routes_;            // see routes()
};

}  // namespace pumice
