// The engine: requests in, tokens out. Ties the scheduler's plans to KV memory and to the decoder's
// recorded steps on one device.
//
// Two steps are under way at a time: while the device runs step N, step N + 1 is planned, recorded
// and submitted behind it, and takes the tokens of step N from the device's memory. What it
// computes for a request that step N turns out to have ended is discarded.
//
// Threads: one thread at a time may call an engine. Engines on different threads may share a
// device, its pipelines and a model.
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "engine/kv_block_store.hpp"
#include "engine/kv_memory.hpp"
#include "engine/replays.hpp"
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

/// What happens to a request that fills its window while it generates.
enum class OverflowPolicy {
  kStop,            ///< it ends, for reason kWindow
  kShift,           ///< the first `keep_tokens` stay, the older half of the rest goes
  kTruncateOldest,  ///< like kShift with nothing kept; prompts beyond the window lose their start
};

struct EngineOptions {
  KvType kv_type = KvType::kF16;
  ops::Math math = ops::Math::kAuto;  ///< arithmetic of matrix products
  FusionRules fusion = {};
  uint32_t context_tokens = 0;  ///< positions of one sequence; 0: what the model was trained for
  uint32_t n_sequences = 1;     ///< requests that run at once
  uint32_t kv_blocks = 0;       ///< of KV, each a page of every state group; 0: enough for all
                                ///< sequences at full length
  uint32_t token_budget = 512;  ///< tokens in a step
  uint32_t chunk_tokens = 512;  ///< tokens of one prompt in a step
  double tpot_target_s = 0;     ///< shrinks chunks beside decoding requests; 0: never
  uint32_t max_partial_prefills = 4;
  std::array<uint32_t, kServiceClasses> reserved_decode_tokens = {};
  OverflowPolicy overflow = OverflowPolicy::kStop;
  uint32_t keep_tokens = 1;       ///< of kShift
  bool prefix_cache = true;       ///< reuse the KV of prefixes seen before
  uint64_t cache_host_bytes = 0;  ///< host memory for KV that leaves the device
  std::filesystem::path cache_file =
      {};  ///< prompt cache file to read, and to keep KV in; empty: none
  uint64_t cache_file_bytes = uint64_t{4} << 30;  ///< most to keep in it
  CostModel cost = {};                            ///< what steps cost, if known from an earlier run
  /// Results identical to the bit for every chunking, batch and cache hit on one device; slower,
  /// and always fp32.
  bool invariant = false;
  bool run_ahead = true;        ///< keep two steps under way; never with prompt_logits or profile
  bool prompt_logits = false;   ///< requests may ask for the logits of every position
  uint32_t split_tokens = 256;  ///< contexts longer than this are attended to in parallel splits
  bool greedy_only = false;     ///< compile no more of sampling than greedy requests need
  bool profile = false;  ///< time every kernel by itself, replay nothing (slower; see `profiler`)
  Logger logger = {};
};

/// What to generate.
struct GenerationRequest {
  std::vector<TokenId> prompt;
  uint32_t max_new_tokens = 0;
  SamplerOptions sampling = {};
  /// Whether a token ends the request; it is then the last one reported.
  std::function<bool(TokenId)> ends = {};
  ServiceClass service_class = ServiceClass::kNormal;
  int32_t priority = 0;
  double timeout_s = std::numeric_limits<double>::infinity();  ///< from now
  std::string salt = {};  ///< prefixes are shared only between requests of one salt
  /// Receives the logits of positions, in order, while `step` runs. Needs
  /// EngineOptions::prompt_logits.
  std::function<void(uint32_t position, std::span<const float> logits)> on_logits = {};
  /// Which: of every prompt position, none of which then comes from the cache; or of whatever is
  /// computed, generated positions and those computed again after a preemption included.
  enum class Logits { kPrompt, kComputed } logits = Logits::kPrompt;
};

/// What is known of a request once it has ended. Times in seconds on Engine::now().
struct RequestReport {
  EndReason end_reason = EndReason::kNone;
  uint32_t prompt_tokens = 0;
  uint32_t generated_tokens = 0;
  CacheReport cache;
  RequestTimes times;
  uint32_t prefill_iterations = 0;
  uint32_t preemptions = 0;
  uint32_t shifts = 0;            ///< times the window was full and made room
  uint32_t truncated_tokens = 0;  ///< of the prompt's start, dropped on submission
};

/// What a step brought for one request.
struct StepEvent {
  RequestId request = 0;
  std::optional<TokenId> token = {};  ///< the next token; none while the prompt is still being read
  uint32_t computed_tokens = 0;       ///< positions computed so far
  bool finished = false;              ///< the last event of this request
  std::optional<RequestReport> report = {};  ///< when finished
};

/// What a step was and when its stages ended, on Engine::now().
struct StepTrace {
  uint64_t id = 0;
  uint32_t decode_rows = 0;
  uint32_t prefill_tokens = 0;
  double planned_s = 0;   ///< when planning began
  double prepared_s = 0;  ///< 0 of a replayed step; likewise the next
  double recorded_s = 0;
  double submitted_s = 0;
  double ended_s = 0;
};

class Engine {
 public:
  /// Compile pipelines (progress: done, total) and allocate everything steps need. Errors:
  /// kDoesNotFit, kInvalidArgument (also `profile` without timestamps), kBadFile (a prompt cache
  /// file that cannot be used, also one of another model, KV type or arithmetic).
  static Result<std::unique_ptr<Engine>> create(std::shared_ptr<vk::PipelineLibrary> pipelines,
                                                std::shared_ptr<const Model> model,
                                                const EngineOptions& options,
                                                const vk::PipelineLibrary::Progress& progress = {});
  ~Engine();

  /// Queue a request. Errors: kInvalidArgument (empty prompt, token outside the vocabulary, sampler
  /// options), kDoesNotFit (a prompt beyond the window, saying by how much; with kStop also prompt
  /// + max_new_tokens).
  Result<RequestId> submit(GenerationRequest request);

  /// The events of the next step: at most `token_budget` tokens of as many requests as it holds. No
  /// event means that nothing is left to do.
  ///
  /// On an error no request has lost or gained anything, and the next call tries again. A request
  /// that ended while the failed step was planned (past its deadline, say) has ended: the next call
  /// delivers its event, before it tries anything that could fail. One that was preempted for that
  /// step waits, as after any preemption: it keeps its tokens, its KV is computed again or found in
  /// the cache, and no event tells of it, only RequestReport::preemptions. If the device did run
  /// the step, or one behind it, their tokens were not delivered and are sampled again, the same
  /// ones.
  Result<std::vector<StepEvent>> step();

  /// End a request in any state and free all it holds. No event of it follows, not even one that a
  /// failed step left. Nothing if its last event was delivered.
  std::optional<RequestReport> cancel(RequestId id);

  /// Nothing is left to do, nor any event to be delivered.
  bool idle() const { return scheduler_->idle() && events_.empty(); }
  /// Seconds since the engine was made.
  double now() const;

  /// Run a few steps of made-up tokens and learn what steps cost here, for `tpot_target_s`. Only
  /// while idle. Takes about a second. Errors: those of `step`.
  Status calibrate();

  /// Replace the prompt cache file by what is cached now. Needs EngineOptions::cache_file.
  Status save_prompt_cache();

  const Scheduler& scheduler() const { return *scheduler_; }
  const EngineOptions& options() const { return options_; }
  uint64_t kv_bytes_per_token() const;
  /// Labels of every kernel recorded so far.
  const std::set<std::string>& variants() const { return variants_; }
  const vk::Profiler& profiler() const { return profiler_; }
  /// Barriers in the last recorded step.
  size_t last_barrier_count() const { return last_barrier_count_; }
  /// Rows (tokens) of all steps dispatched so far.
  uint64_t dispatched_rows() const { return dispatched_rows_; }
  /// The last steps that ended, at most a few thousand.
  const std::deque<StepTrace>& trace() const { return trace_; }

  /// For profiles and tests: told of each step that has ended, with its commands; none is replayed
  /// meanwhile. Only while nothing is under way.
  using Observer = std::function<void(const StepTrace&, const vk::RecordedWork&)>;
  void set_observer(Observer observer) { observer_ = std::move(observer); }

  /// For tests: how steps are recorded from now on. Only while nothing is under way.
  void set_recorder_options(const vk::RecorderOptions& options);
  enum class StepStage {
    kSubmit,  ///< before a step is recorded and submitted
    kLand,    ///< after the device has run it, before its tokens count
  };
  /// For tests: called at each of these stages; an error makes the step fail there.
  using Fault = std::function<Status(StepStage)>;
  void set_fault(Fault fault) { fault_ = std::move(fault); }
  /// For tests. Errors: kInternal when requests, slots, steps under way and scheduler disagree.
  Status check_integrity() const;
  /// For tests: recorded steps kept to be submitted again.
  size_t n_replays() const { return replays_.size(); }

 private:
  struct ActiveRequest {
    GenerationRequest request;
    std::vector<TokenId> tokens;  ///< of the sequence: prompt and output, less what was shifted out
    uint32_t n_generated = 0;
    uint32_t n_prompt = 0;         ///< of `tokens`, from the start, that are the prompt's
    std::optional<uint32_t> slot;  ///< row of the block table while running
    uint32_t epoch = 0;            ///< of the scheduler's request, for which `slot` holds
    uint32_t shifts = 0;
    uint32_t truncated_tokens = 0;
  };
  /// One of the steps under way: its arguments, what it is about, what comes back.
  struct Flight {
    uint32_t ring = 0;  ///< index of args, readbacks and replays
    StepPlan plan;
    uint32_t n_rows = 0;
    uint32_t n_logit_rows = 0;
    bool samples = false;
    bool greedy_only = true;
    bool replayable = true;  ///< single rows only
    std::vector<ops::SequenceChunk> chunks;
    std::vector<uint32_t> slots;  ///< of the plan's chunks
    struct LogitsWanted {
      RequestId request;
      uint32_t position;
      uint32_t logit_row;
    };
    std::vector<LogitsWanted> logits_wanted;
    std::vector<ops::AttentionPlan> attention;  ///< by attention class
    std::optional<vk::RecordedWork> copies;
    std::optional<vk::RecordedWork> work;  ///< unless it is a replay
    Submitter::Ticket ticket;
    StepTrace trace;
  };
  /// Memory of one step under way.
  struct Ring {
    StepArgs args;
    vk::BufferRange sampled_readback;
    vk::BufferRange logits_readback;  // only with prompt_logits
  };

  Engine(std::shared_ptr<vk::PipelineLibrary> pipelines, std::shared_ptr<const Model> model,
         const EngineOptions& options);
  Status allocate();
  ops::AttentionPlanOptions attention_options(uint32_t tile_tokens, uint32_t window) const;
  uint32_t depth() const;

  // A step: launched (planned, recorded, submitted), then landed (waited for, committed).
  Result<bool> launch();
  Status move_blocks(Flight& flight, TransferFailures& failures);
  Status prepare(Flight& flight);
  Status submit(Flight& flight);
  Result<double> wait(const Flight& flight);
  Status land();
  void abandon_flights();

  Status start(ActiveRequest& active, const Request& scheduled);
  void write_block_tables(uint32_t slot, RequestId id, uint32_t first, uint32_t end);
  void add_chunk(Flight& flight, const StepChunk& chunk);
  void add_logit_row(Flight& flight, uint32_t row, const ActiveRequest& active,
                     const StepChunk* sampling_chunk);
  void fill_attention(Flight& flight, size_t attention_class);
  static uint32_t classes_that_reduce(const Flight& flight);
  Result<vk::RecordedWork> record(const Flight& flight) const;
  void deliver_logits(const Flight& flight);
  void shift_window(RequestId id, ActiveRequest& active);
  RequestReport report_of(RequestId id) const;
  RequestReport release(RequestId id);
  void free_slot(ActiveRequest& active);
  void free_stale_slots();

  std::shared_ptr<vk::PipelineLibrary> pipelines_;
  std::shared_ptr<vk::Device> device_;
  std::shared_ptr<const Model> model_;
  EngineOptions options_;
  std::chrono::steady_clock::time_point created_ = std::chrono::steady_clock::now();
  std::optional<Scheduler> scheduler_;
  std::map<RequestId, ActiveRequest> requests_;
  uint64_t n_private_salts_ = 0;  // of requests that share nothing

  // A freed slot may still be read by steps under way: it is free again when they have landed.
  std::vector<uint32_t> free_slots_;
  std::deque<std::pair<uint64_t, uint32_t>> cooling_slots_;  // (plan id, slot)

  std::optional<KvMemory> kv_;
  std::optional<KvBlockStore> block_store_;
  std::optional<Decoder> decoder_;
  ops::Sampling greedy_sampling_;
  ops::Sampling full_sampling_;  // not with greedy_only
  Submitter submitter_;

  std::optional<vk::Arena> upload_arena_;
  std::optional<vk::Arena> device_arena_;
  std::optional<vk::Arena> readback_arena_;
  uint32_t n_slots_ = 0;
  uint32_t table_stride_ = 0;
  std::vector<vk::BufferRange> block_tables_;  // by page of the state's layout: uint64
                                               // [n_slots_][table_stride_]
  vk::BufferRange token_counts_;               // uint32 [n_slots_][n_vocab]: for penalties
  vk::BufferRange logit_bias_;                 // uint32 pairs [n_slots_][kMaxBias]
  vk::BufferRange sampling_scratch_;
  vk::BufferRange sampled_;  // uint32 [n_slots_]

  std::vector<Ring> rings_;
  std::vector<uint32_t> free_rings_;
  std::deque<Flight> flights_;
  Replays replays_;
  std::vector<StepEvent> events_;  // not delivered yet
  vk::RecorderOptions recorder_options_;
  vk::Profiler profiler_;
  std::set<std::string> variants_;
  size_t last_barrier_count_ = 0;
  uint64_t dispatched_rows_ = 0;
  std::deque<StepTrace> trace_;
  Fault fault_;
  Observer observer_;
};

}  // namespace pumice
