// The engine: requests in, tokens out. Three parts: what is known of requests (requests.hpp, the
// host's truth), what is kept on a device (device_state.hpp, which can be made again), and what is
// done there (stepper.hpp, a state machine).
//
// Threads: one thread at a time may call an engine, but for `wake` and `check`. Engines on
// different threads may share a device, its pipelines and a model.
#pragma once

#include <chrono>
#include <cstddef>
#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/check.hpp"
#include "base/result.hpp"
#include "cache/prefix_store.hpp"
#include "engine/device_state.hpp"
#include "engine/engine_options.hpp"
#include "engine/requests.hpp"
#include "engine/saved_sequence.hpp"
#include "engine/stepper.hpp"
#include "engine/waker.hpp"
#include "vk/heap_use.hpp"

namespace pumice {

/// Where an engine is with its memory.
struct MemoryStatus {
  uint64_t budget_bytes = UINT64_MAX;  ///< asked for; UINT64_MAX: none
  bool met = true;
  uint64_t used_bytes = 0;           ///< of the heap of the device's memory, by its ledger
  uint64_t kv_bytes = 0;             ///< of those, this engine's KV memory
  uint32_t kv_blocks = 0;            ///< pages in it
  uint32_t kv_blocks_all = 0;        ///< without a budget
  uint64_t weight_bytes_beside = 0;  ///< of the model, in memory beside the device's
  /// What the driver says, asked once a second at most; nothing where it does not.
  std::optional<vk::HeapUse> driver = {};
  /// With EngineOptions::yields_memory, from the first time on that the driver left too little: what
  /// it leaves of `used_bytes`, or would of more; UINT64_MAX: all.
  uint64_t granted_bytes = UINT64_MAX;
  /// Times since the engine was made that the driver was found to leave less than is used.
  uint32_t n_overcommitted = 0;
};

class Engine {
 public:
  /// Allocate everything steps need and, unless EngineOptions::prewarm is off, compile all
  /// pipelines (progress: done, total). Errors: kDoesNotFit, kInvalidArgument (also `profile`
  /// without timestamps), kBadFile (a prompt cache file that cannot be used, also one of another
  /// model, KV type or arithmetic).
  static Result<std::unique_ptr<Engine>> create(std::shared_ptr<vk::PipelineLibrary> pipelines,
                                                std::shared_ptr<const Model> model,
                                                const EngineOptions& options,
                                                const vk::PipelineLibrary::Progress& progress = {});

  /// Without EngineOptions::prewarm: compile pipelines for about `budget_s` seconds, at least one
  /// if any is left, on as many threads as the machine has cores; and how many of them are
  /// ready now. Not calling it again cancels it; once all is done it returns at once. Until then
  /// `poll` spends its budget on this, and `step` finishes it, before any work. Errors: those of
  /// the device.
  using Readiness = vk::PipelineLibrary::Readiness;
  Result<Readiness> prewarm(double budget_s, const vk::PipelineLibrary::Progress& progress = {});
  /// What would be a hitch: pipelines compiled, and device memory allocated how often, since
  /// prewarming was done. For this engine that is never; what others do who share its device
  /// (another engine made, a model loaded) counts too.
  uint64_t pipelines_compiled_after_prewarm() const;
  uint64_t allocations_after_prewarm() const;

  /// Queue a request. Errors: kInvalidArgument (empty prompt, token outside the vocabulary, sampler
  /// options), kDoesNotFit (a prompt beyond the window, saying by how much; with kStop also prompt
  /// + max_new_tokens).
  Result<RequestId> submit(GenerationRequest request);

  /// Go on without ever waiting for the device, and say what landed since the last call: for hosts
  /// with a frame to draw. As much is submitted as keeps all that the device has of this engine
  /// within `budget_s` by prediction, and at least one piece of work where it has none; pieces are
  /// about half the smallest budget of late (RecentBudgets), where kernels can be cut that far.
  /// Bytes that the cache keeps in files are read and written by the way, some pages a call.
  ///
  /// On an error no request has lost or gained anything, and the next call tries again. A request
  /// that ended while the failed step was planned (past its deadline, say) has ended: the next call
  /// delivers its event, before it tries anything that could fail. One that was preempted for that
  /// step waits, as after any preemption: it keeps its tokens, its KV is computed again or found in
  /// the cache, and no event tells of it, only RequestReport::preemptions. If the device did run
  /// the step, or one behind it, their tokens were not delivered and are sampled again, the same
  /// ones. Where the host was out of memory (kDoesNotFit) all requests begin again from their
  /// tokens, and what was cached is forgotten.
  Result<std::vector<StepEvent>> poll(double budget_s);

  /// The same without a budget, waiting until a step has landed, and for requests whose rate says
  /// that their next token must wait: its events. No event means that nothing is left to do.
  Result<std::vector<StepEvent>> step();

  /// Between two polls: sleep until `poll` has something to do, `wake` is called or `most_s` have
  /// passed. So until the device has finished the next piece of what was submitted, or `next_due_s`
  /// has come; at once where an event waits or something can be planned. While a host holds its
  /// queue and nothing is under way: until it is time to try again (Submitter::wait_next), and
  /// while memory that a budget needs is others', kMemoryInterval_s at most. Without a device:
  /// until `wake`. May return early. Errors: kDeviceLost, within the hang timeout; `poll` then says
  /// more.
  Status wait(double most_s);
  static constexpr double kMemoryInterval_s = 0.05;
  /// From any thread, at any time while the engine exists: end the `wait` that is under way, within
  /// Submitter::kWakeInterval, or the next one at once. Calls before a `wait` count once.
  void wake() { waker_.wake(); }

  /// What `submit` would refuse whatever else runs. Any thread: it reads what never changes.
  Status check(const GenerationRequest& request) const { return requests_->check(request); }

  /// How this engine shares its device with others, from the next call on; kFast at first. That its
  /// queue yields to others' is a matter of the device: DeviceRequest::low_priority.
  void set_mode(EngineMode mode);

  /// How many requests run or wait with each of Program::adapters.
  std::vector<AdapterUse> adapter_use() const { return requests_->adapter_use(); }

  /// End a request in any state and free all it holds. No event of it follows, not even one that a
  /// failed step left. Nothing if its last event was delivered.
  std::optional<RequestReport> cancel(RequestId id);

  /// Nothing is left to do, nor any event to be delivered.
  bool idle() const { return requests_->idle(); }
  /// Seconds since the engine was made.
  double now() const;
  /// Until when, on `now`, `poll` has nothing to do unless something is asked of the engine: 0
  /// while steps are under way or may be planned or memory changes, the time of the first token
  /// that must wait (GenerationRequest::max_tokens_per_s) or of a request's timeout, infinite while
  /// idle.
  double next_due_s() const;

  /// Run a few steps of made-up tokens and learn what steps cost here, for `tpot_target_s`. Only
  /// while idle. Takes about a second. Errors: those of `step`.
  Status calibrate();

  /// Replace the prompt cache file by what is cached now. Needs EngineOptions::cache_file. Waits
  /// for the device, as `save` does. Errors, with the old file as it was: kInvalidArgument without
  /// a file, kInternal, those of `step`.
  Status save_prompt_cache();

  /// A prompt of requests with such an adapter (GenerationRequest::adapter), as the cache knows it.
  HashedPrompt hash_prompt(std::span<const TokenId> prompt, std::string_view salt,
                           uint32_t adapter) const {
    return requests_->hash_prompt(prompt, salt, adapter);
  }
  /// What keys and values of requests with such an adapter depend on besides tokens.
  const ModelFingerprint& fingerprint_of(uint32_t adapter) const {
    return requests_->fingerprint_of(adapter);
  }
  /// Begin to read from the prefix store what a request with this prompt could go on from and the
  /// cache does not have. Null: nothing can be, as with a salt or an adapter. Ends a `wait` once it is done.
  std::shared_ptr<PrefixStore::Reading> read_stored(std::span<const TokenId> prompt,
                                                    std::string_view salt, uint32_t adapter = 0);
  /// What was read for this prompt is findable from now on, as far as host memory has room.
  void adopt_stored(std::span<const TokenId> prompt, PrefixStore::Reading& reading);
  /// Wait until all that is findable now is in the prefix store, but for what had no room. While no
  /// request is under way. Errors: those of `step`.
  Status finish_storing();
  /// Null without EngineOptions::prefix_store.
  const PrefixStore* prefix_store() const { return store_.get(); }

  /// From now on let all that the device's ledger has in the heap of the device's memory, of this
  /// engine, its model and any others there, be at most `bytes`; UINT64_MAX: no budget, as at
  /// first. Returns at once: `poll` and `step` work towards it, also while no request is there, and
  /// `memory` says when it is met; from then on the ledger stays within it, unless others on the
  /// device take more. What is cached least recently goes first, to host memory where there is a
  /// tier for it; requests that are served last wait again if need be, and one that can never fit
  /// any more fails with kDoesNotFit (RequestReport::failure). Then weights of the last layers go
  /// to memory beside the device's, where there is such memory: steps are slower, and compute the
  /// same. With a higher budget they come back and KV memory grows again. Errors, with nothing
  /// changed: kDoesNotFit with the smallest budget that can be met, kDeviceLost.
  Status set_memory_budget(uint64_t bytes);
  /// Of the last `poll`, `step` or `set_memory_budget`.
  const MemoryStatus& memory() const { return memory_; }

  /// What a request under way could be saved as: the tokens that have landed. Errors:
  /// kInvalidArgument if it has ended.
  Result<SavedSequence> sequence(RequestId id) const;

  /// A conversation as bytes, with the state of the positions that are cached, as many as a request
  /// that begins with these tokens would find (of one that still runs, its full blocks). Requests
  /// go on; the call waits for the device, not for requests. Errors, with nothing changed:
  /// kInvalidArgument; those of `step`.
  Result<std::vector<std::byte>> save(SavedSequence sequence);
  /// What `save` gave, here or elsewhere. Its state is cached, if there is room for all of it
  /// without taking from requests (state_tokens says of how many positions): a request that begins
  /// with its tokens (`continuation`) computes only what follows. Waits as `save` does. Errors,
  /// with nothing changed: open_saved_sequence's; those of `step`.
  Result<SavedSequence> restore(std::span<const std::byte> bytes,
                                const RestoreOptions& options = {});

  /// Let go of all that this engine has on a device: it was lost, say, and another engine's memory
  /// must go before there is room for either again. `poll` and `step` are errors until `rebuild`
  /// has succeeded. Requests wait with their tokens.
  void drop_device();

  /// `drop_device`, then make all of it anew: after the loss of the device, say, with
  /// pipelines and a model on one that was opened since. Requests go on from their tokens, and what
  /// the cache has in host memory or its file stays. Errors: those of `create`; kInvalidArgument if
  /// the model or its arithmetic there is not what keys and values were computed with. The engine
  /// then has no device: `poll` and `step` are errors until this succeeds.
  Status rebuild(std::shared_ptr<vk::PipelineLibrary> pipelines, std::shared_ptr<const Model> model,
                 const vk::PipelineLibrary::Progress& progress = {});

  /// Null after `drop_device`, or a `rebuild` that failed.
  std::shared_ptr<vk::Device> device() const {
    return device_ != nullptr ? device_->device() : nullptr;
  }
  const Scheduler& scheduler() const { return requests_->scheduler(); }
  const EngineOptions& options() const { return options_; }
  uint64_t kv_bytes_per_token() const;
  /// Labels of every kernel recorded so far.
  const std::set<std::string>& variants() const { return stepper().variants(); }
  const vk::Profiler& profiler() const { return stepper().profiler(); }
  /// Barriers in the last recorded step.
  size_t last_barrier_count() const { return stepper().last_barrier_count(); }
  /// Rows (tokens) of all steps dispatched so far.
  uint64_t dispatched_rows() const { return stepper().dispatched_rows(); }
  /// The last steps that ended, at most a few thousand.
  const std::deque<StepTrace>& trace() const { return stepper().trace(); }
  /// How long work takes here, for EngineOptions::pace of the next run; nothing if too little is
  /// known yet.
  std::optional<PaceRates> learned_pace() const {
    return stepper_ != nullptr ? stepper_->learned_pace() : options_.pace;
  }
  /// Submitter::take_slice_times: what `poll` submitted, asked and measured.
  std::vector<SliceTime> take_slice_times() { return stepper().take_slice_times(); }

  /// For profiles and tests.
  void set_hooks(StepHooks hooks);
  /// For tests. Errors: kInternal when requests, steps under way and scheduler disagree.
  Status check_integrity() const;
  /// For tests: of EngineOptions::routing.
  std::span<const vk::BufferRange> routes() const { return device_->decoder().routes(); }
  /// For tests: recorded steps kept to be submitted again.
  size_t n_replays() const { return stepper().n_replays(); }
  /// For tests: pages move between the device and the cache's tiers.
  bool moves_blocks() const { return stepper().moving(); }

 private:
  explicit Engine(const EngineOptions& options) : options_(options) {}
  template <typename Body>
  auto guarded(const Body& body) -> decltype(body());
  Status repair();
  Status check_device() const;
  SavedBinding saved_binding(uint32_t adapter) const;
  Stepper& stepper() const {
    PUMICE_CHECK(stepper_ != nullptr, "the engine has no device");
    return *stepper_;
  }
  void start_stepper();
  void look_at_memory();
  void ask_driver();

  EngineOptions options_;
  EngineMode mode_ = EngineMode::kFast;
  std::chrono::steady_clock::time_point created_ = std::chrono::steady_clock::now();
  MemoryStatus memory_;
  std::chrono::steady_clock::time_point memory_looked_at_ = {};
  std::optional<Requests> requests_;
  StepHooks hooks_;
  Waker waker_;
  std::unique_ptr<PrefixStore> store_;  // its threads wake
  bool broken_ = false;  // an exception left something in the middle: `repair` comes next
  std::unique_ptr<DeviceState> device_;  // none after a `rebuild` that failed; so is stepper_
  std::unique_ptr<Stepper> stepper_;
};

}  // namespace pumice
