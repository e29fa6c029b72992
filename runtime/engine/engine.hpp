// The engine: requests in, tokens out. Ties the scheduler's plans to KV memory and to the decoder's
// recorded steps on one device.
//
// Threads: one thread at a time may call an engine. Engines share pipelines and weights freely.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "engine/kv_memory.hpp"
#include "engine/step_args.hpp"
#include "engine/submitter.hpp"
#include "models/decoder.hpp"
#include "models/model.hpp"
#include "sampling/options.hpp"
#include "scheduler/scheduler.hpp"
#include "shaders/sampling/sampling.hpp"
#include "text/vocabulary.hpp"
#include "vk/pipeline.hpp"
#include "vk/profiler.hpp"

namespace pumice {

struct EngineOptions {
  KvType kv_type = KvType::kF16;
  ops::Math math = ops::Math::kAuto;  ///< arithmetic of matrix products
  uint32_t context_tokens = 0;  ///< positions of one sequence; 0: what the model was trained for
  uint32_t n_sequences = 1;     ///< requests that run at once
  uint32_t token_budget = 512;  ///< tokens in a step
  uint32_t chunk_tokens = 512;  ///< tokens of one prompt in a step
  bool prompt_logits = false;   ///< requests may ask for the logits of every position
  uint32_t split_tokens = 256;  ///< contexts longer than this are attended to in parallel splits
  bool greedy_only = false;     ///< compile no more of sampling than greedy requests need
  bool profile = false;         ///< time every kernel (slower; see `profiler`)
};

/// What to generate.
struct GenerationRequest {
  std::vector<TokenId> prompt;
  uint32_t max_new_tokens = 0;
  SamplerOptions sampling;
  /// Receives the logits of every prompt position, in order, while `step` runs. Needs
  /// EngineOptions::prompt_logits.
  std::function<void(uint32_t position, std::span<const float> logits)> on_logits;
};

/// What a step brought for one request.
struct StepEvent {
  RequestId request = 0;
  std::optional<TokenId> token;  ///< the next token; none while the prompt is still being read
  uint32_t computed_tokens = 0;  ///< positions computed so far
  bool finished = false;         ///< the last event of this request
};

class Engine {
 public:
  /// Compile pipelines (progress: done, total) and allocate everything steps need. Errors:
  /// kDoesNotFit, kInvalidArgument.
  static Result<std::unique_ptr<Engine>> create(std::shared_ptr<vk::PipelineLibrary> pipelines,
                                                std::shared_ptr<const Model> model,
                                                const EngineOptions& options,
                                                const vk::PipelineLibrary::Progress& progress = {});
  ~Engine();

  /// Queue a request. Errors: kInvalidArgument (empty prompt, token outside the vocabulary, sampler
  /// options), kDoesNotFit (prompt + max_new_tokens beyond the context, saying by how much).
  Result<RequestId> submit(GenerationRequest request);

  /// Run one step: at most `token_budget` tokens of as many requests as it holds. No event means
  /// that nothing is left to do. On an error nothing has changed.
  Result<std::vector<StepEvent>> step();

  /// End a request in any state and free all it holds.
  void cancel(RequestId id);

  bool idle() const { return scheduler_.idle(); }
  const Scheduler& scheduler() const { return scheduler_; }
  const EngineOptions& options() const { return options_; }
  /// Labels of every kernel recorded so far.
  const std::set<std::string>& variants() const { return variants_; }
  const vk::Profiler& profiler() const { return profiler_; }
  /// Barriers in the last recorded step.
  size_t last_barrier_count() const { return last_barrier_count_; }

  /// For tests: how steps are recorded from now on.
  void set_recorder_options(const vk::RecorderOptions& options);

 private:
  struct ActiveRequest {
    GenerationRequest request;
    std::vector<TokenId> tokens;   ///< prompt and output
    std::optional<uint32_t> slot;  ///< row of the block table while running
  };
  /// A step being built: what goes where, beside what StepArgs holds.
  struct Batch {
    uint32_t n_rows = 0;
    uint32_t n_logit_rows = 0;
    bool samples = false;
    bool greedy_only = true;
    bool replayable = true;  ///< single rows only
    std::vector<ops::SequenceChunk> chunks;
    struct LogitsWanted {
      RequestId request;
      uint32_t position;
      uint32_t logit_row;
    };
    std::vector<LogitsWanted> logits_wanted;
    ops::AttentionPlan attention;
  };
  /// What a recording depends on besides the contents of its StepArgs.
  using ReplayKey = std::tuple<uint32_t, uint32_t, bool, bool>;  // rows, logit rows, has_reduce,
                                                                 // greedy_only

  Engine(std::shared_ptr<vk::PipelineLibrary> pipelines, std::shared_ptr<const Model> model,
         const EngineOptions& options);
  Status allocate();
  ops::AttentionPlanOptions attention_options() const;

  Status start(ActiveRequest& active, const Request& scheduled);
  void fill_batch(const StepPlan& plan);
  void add_chunk(const StepChunk& chunk);
  void add_logit_row(uint32_t row, const ActiveRequest& active, const StepChunk* sampling_chunk);
  void fill_attention();
  Result<vk::RecordedWork> record_batch() const;
  Status run_batch();
  void deliver_logits();
  std::vector<StepEvent> commit(const StepPlan& plan);
  void release(RequestId id);

  std::shared_ptr<vk::PipelineLibrary> pipelines_;
  std::shared_ptr<vk::Device> device_;
  std::shared_ptr<const Model> model_;
  EngineOptions options_;
  Scheduler scheduler_;
  std::map<RequestId, ActiveRequest> requests_;
  std::vector<uint32_t> free_slots_;

  std::optional<KvMemory> kv_;
  std::optional<StepArgs> args_;
  std::optional<Decoder> decoder_;
  ops::Sampling greedy_sampling_;
  ops::Sampling full_sampling_;  // not with greedy_only
  Submitter submitter_;

  std::optional<vk::Arena> upload_arena_;
  std::optional<vk::Arena> device_arena_;
  std::optional<vk::Arena> readback_arena_;
  uint32_t table_stride_ = 0;
  vk::BufferRange block_table_;   // uint64 [n_sequences][table_stride_]
  vk::BufferRange token_counts_;  // uint32 [n_sequences][n_vocab]: for penalties
  vk::BufferRange logit_bias_;    // uint32 pairs [n_sequences][kMaxBias]
  vk::BufferRange sampling_scratch_;
  vk::BufferRange sampled_;  // uint32 [n_sequences]
  vk::BufferRange sampled_readback_;
  vk::BufferRange logits_readback_;  // only with prompt_logits

  Batch batch_;
  std::map<ReplayKey, vk::RecordedWork> replays_;
  vk::RecorderOptions recorder_options_;
  vk::Profiler profiler_;
  std::set<std::string> variants_;
  size_t last_barrier_count_ = 0;
};

}  // namespace pumice
