// All that an engine has on a device: kernels, pages for what sequences keep, tables, and the
// arguments and results of steps. Nothing in it is the truth: it is made from a model and options,
// and can be dropped and made again, after which requests begin again from their tokens.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/result.hpp"
#include "cache/kv_cache.hpp"
#include "engine/engine_buffers.hpp"
#include "engine/engine_options.hpp"
#include "engine/engine_sizes.hpp"
#include "engine/kv_memory.hpp"
#include "engine/kv_page_store.hpp"
#include "engine/step_input.hpp"
#include "models/decoder.hpp"
#include "models/model.hpp"
#include "models/step_args.hpp"
#include "sampling/options.hpp"
#include "scheduler/scheduler.hpp"
#include "shaders/log_probs/log_probs.hpp"
#include "shaders/sampling/sampling.hpp"
#include "text/vocabulary.hpp"
#include "vk/pipeline.hpp"

namespace pumice {

/// Not thread-safe. Steps use a ring of memory each; a slot is a row of the tables of what running
/// requests have on the device, given out by the scheduler.
class DeviceState {
 public:
  /// Allocates everything that steps need and, unless the options leave that to `prewarm`, compiles
  /// pipelines (progress: done, total). The options are checked ones. `kv_blocks`: pages of KV memory
  /// at first; none: all. Errors: kDoesNotFit, kInvalidArgument.
  static Result<std::unique_ptr<DeviceState>> create(std::shared_ptr<vk::PipelineLibrary> pipelines,
                                                     std::shared_ptr<const Model> model,
                                                     const EngineOptions& options,
                                                     const vk::PipelineLibrary::Progress& progress,
                                                     std::optional<uint32_t> kv_blocks = {});
  /// Waits for the device.
  ~DeviceState();
  DeviceState(const DeviceState&) = delete;
  DeviceState& operator=(const DeviceState&) = delete;

  const std::shared_ptr<vk::Device>& device() const { return device_; }
  const Model& model() const { return *model_; }
  const Program& program() const { return model_->program; }
  const Decoder& decoder() const { return *decoder_; }
  /// What a cache must be to stand for these pages.
  KvCacheOptions cache_options() const;
  KvPageStore& pages() { return *page_store_; }
  /// For pages on their way to a prefix store; none without one.
  std::span<const vk::BufferRange> stored_pages() const { return buffers_.stored_pages; }

  // ---- memory

  KvMemory& kv() { return *kv_; }
  const KvMemory& kv() const { return *kv_; }
  /// The fewest pages with which anything can run.
  uint32_t fewest_kv_blocks() const;
  /// What of the device's memory is to be used.
  struct MemoryTarget {
    uint32_t kv_blocks = 0;
    uint32_t weight_pieces = 0;  ///< on the device; the rest beside it
  };
  /// For a ledger of `budget_bytes`: KV memory goes first, then weights, and those come back first.
  /// Errors: kDoesNotFit, with the smallest that can be.
  Result<MemoryTarget> memory_within(uint64_t budget_bytes) const;
  /// The least that can be.
  MemoryTarget least_memory() const;
  /// The same with KV memory for one sequence of all positions at least: no error.
  MemoryTarget memory_to_go_on_within(uint64_t budget_bytes) const;

  WeightPlacement& placement() const { return *model_->weights; }
  /// Steps are recorded with these weights.
  const std::shared_ptr<const ModelWeights>& weights() const { return weights_; }
  /// From now on with those of where they lie now; whether they lie elsewhere.
  bool follow_weights();

  uint32_t n_rings() const { return static_cast<uint32_t>(buffers_.rings.size()); }

  // ---- readiness

  /// See Engine::prewarm. Steps may be recorded once it says that all is done.
  Result<vk::PipelineLibrary::Readiness> prewarm(double budget_s,
                                                 const vk::PipelineLibrary::Progress& progress);
  bool is_warm() const { return warm_.has_value(); }
  /// See Engine::pipelines_compiled_after_prewarm and the other.
  uint64_t pipelines_compiled_after_prewarm() const;
  uint64_t allocations_after_prewarm() const;

  // ---- slots

  /// Whether the slot's sampling state is that of the request that has it.
  bool is_set_up(uint32_t slot) const { return slots_[slot] != SlotState::kUnknown; }
  /// Write what sampling needs to know of a request: biases, and with penalties how often it has
  /// which token. No step under way uses the slot. Holds once the prologue of the step being
  /// prepared was queued (`commit_slots`).
  void set_up(uint32_t slot, const SlotInput& input);
  void forget(uint32_t slot) { slots_[slot] = SlotState::kUnknown; }
  /// What `set_up` wrote since the last of these two is queued for the device, or will not be.
  void commit_slots();
  void drop_slots();
  /// No slot is set up any more.
  void forget_all();

  /// Write entries of the block table; `kind` of the state's layout. Behind a window (kNoPage)
  /// they stay what they are: no kernel reads them.
  void write_pages(uint32_t slot, uint32_t kind, const TableInput& table);

  // ---- steps

  /// Where a recurrent page of a chunk's sequence is and goes; `kind` of the state's layout.
  void set_state(uint32_t ring, uint32_t chunk, uint32_t kind, const StateInput& state);

  StepArgs& args(uint32_t ring) { return buffers_.rings[ring].args; }
  /// A row of logits chooses the token of that index in the output of the slot's request, or only
  /// pads the batch.
  void set_sampling(uint32_t ring, uint32_t logit_row, const RowSampling& sampling,
                    uint64_t output_index, uint32_t slot);
  void set_no_sampling(uint32_t ring, uint32_t logit_row);
  /// The tokens that a row of RowSampling::has_mask may choose, before its sampling is submitted; the
  /// words that are missing allow none.
  void write_mask(uint32_t ring, uint32_t logit_row, std::span<const uint32_t> mask);
  /// What rows of a step are given (op::GivenRows), before it is submitted: float [rows][width].
  /// Empty: its program reads none.
  std::span<float> given_rows(uint32_t ring) const;
  /// Rows of logits from `first` on, which have counts for penalties, are those of a draft: each is
  /// chosen with what the rows before it chose counted, up to the first that chooses something else
  /// than the draft has there. Those behind it choose nothing.
  void follow_draft(uint32_t ring, uint32_t first, std::span<const TokenId> draft);
  /// The log probability of a token under a row of logits is wanted (none given: of what the row
  /// chooses), and of so many best; or nothing of that row.
  void set_log_probs(uint32_t ring, uint32_t logit_row, uint32_t n_best,
                     std::optional<TokenId> token = {});
  void set_no_log_probs(uint32_t ring, uint32_t logit_row);
  /// What a row of logits has chosen is what ops::Embedding::kFromSampled | place stands for, until
  /// the ring is used again.
  uint32_t sampled_place(uint32_t ring, uint32_t logit_row) const {
    return ring * sizes_.limits.logit_rows + logit_row;
  }

  /// What comes before a step on the queue: what `set_up` wrote, then copies of pages. Null if
  /// there is nothing to do.
  Result<std::shared_ptr<const vk::RecordedWork>> record_prologue(std::span<const PageCopy> copies);

  /// What is recorded of a step besides its rows.
  struct StepWork {
    bool samples = false;
    bool greedy_only = true;  ///< all rows that sample are
    bool log_probs = false;   ///< of some rows are wanted
    bool reads_logits = false;
    /// Rows of logits that are sampled once more, each as the next row behind those of the forward
    /// pass: norms of the last layer add to their rows in place, so that none is computed twice.
    std::vector<uint32_t> copied_rows = {};
  };
  /// A step on the queue, in this order.
  struct Recording {
    std::shared_ptr<const vk::RecordedWork> forward;
    /// What is done with the logits. Apart, as it may have to wait for what the forward pass need
    /// not; none where nothing is done with them, or `forward` has it.
    std::shared_ptr<const vk::RecordedWork> sampling;
  };
  /// `in_one`: all of it is in `forward`, for observers of the times of whole steps.
  Result<Recording> record(uint32_t ring, const StepWork& step, const vk::RecorderOptions& options,
                           bool in_one) const;

  /// Results of a step that has run.
  TokenId sampled(uint32_t ring, uint32_t logit_row) const;
  TokenLogProbs log_probs(uint32_t ring, uint32_t logit_row, uint32_t n_best) const;
  std::span<const float> logits(uint32_t ring, uint32_t logit_row) const;
  /// The hidden row of a row of the step, with Program::gives_hidden.
  std::span<const float> hidden(uint32_t ring, uint32_t row) const;

 private:
  enum class SlotState : uint8_t { kUnknown, kWritten, kReady };
  DeviceState(std::shared_ptr<vk::PipelineLibrary> pipelines, std::shared_ptr<const Model> model,
              const EngineOptions& options);
  Status plan_memory(std::optional<uint32_t> kv_blocks);
  Status allocate();
  void record_sampling(uint32_t ring, const StepWork& step, vk::Recorder& recorder) const;
  vk::BufferRange counts_of(uint32_t slot) const;
  vk::BufferRange mask_of(uint32_t ring, uint32_t logit_row) const;
  uint64_t bytes_that_stay() const;
  uint64_t pages_to_go_on() const;
  /// On this device, by any engine.
  struct Made {
    uint64_t pipelines = 0;
    uint64_t allocations = 0;
  };
  Made made() const;

  std::shared_ptr<vk::PipelineLibrary> pipelines_;
  std::shared_ptr<vk::Device> device_;
  std::shared_ptr<const Model> model_;
  EngineOptions options_;

  EngineSizes sizes_;
  uint32_t first_kv_blocks_ = 0;
  vk::PipelineLibrary::Readiness readiness_;  // when it was last asked for
  std::optional<Made> warm_;                  // when prewarming was done

  std::shared_ptr<const ModelWeights> weights_;
  std::optional<Decoder> decoder_;
  std::optional<KvMemory> kv_;
  std::optional<KvPageStore> page_store_;
  ops::Sampling greedy_sampling_;
  ops::Sampling full_sampling_;  // not with greedy_only
  ops::LogProbs log_probs_op_;   // likewise

  EngineBuffers buffers_;
  std::vector<vk::Arena> arenas_;  // where they are
  std::vector<SlotState> slots_;
  std::vector<uint32_t> new_counts_;  // slots whose staged counts are to be copied
};

}  // namespace pumice
