#include "engine/engine.hpp"

#include <xxhash.h>

#include <algorithm>
#include <numeric>

#include "engine/engine_limits.hpp"
#include "shaders/spirv.hpp"

namespace pumice {
namespace {

constexpr size_t kTraceSteps = 4096;
constexpr uint32_t kMaxDepth = 2;
constexpr uint64_t kKvLayoutVersion = 1;  // of KvLayout's arrangement, for prompt cache files

SchedulerOptions scheduler_options(const EngineOptions& options) {
  return {.token_budget = options.token_budget,
          .chunk_tokens = options.chunk_tokens,
          .tpot_target_s = options.tpot_target_s,
          .max_running = options.n_sequences,
          .max_partial_prefills = options.max_partial_prefills,
          .window_tokens = options.context_tokens,
          .reserved_decode_tokens = options.reserved_decode_tokens,
          .stop_at_window = options.overflow == OverflowPolicy::kStop};
}

/// What cached KV bytes depend on besides tokens.
ModelFingerprint cache_fingerprint(const Model& model, const KvLayout& layout, bool invariant) {
  const uint64_t facts[] = {
      model.fingerprint[0],        model.fingerprint[1], static_cast<uint64_t>(layout.type),
      layout.block_bytes(),        layout.n_kv_heads,    layout.head_dim,
      invariant ? spirv_hash() : 0};
  const XXH128_hash_t hash = XXH3_128bits(facts, sizeof facts);
  return {hash.low64, hash.high64};
}

}  // namespace

Result<std::unique_ptr<Engine>> Engine::create(std::shared_ptr<vk::PipelineLibrary> pipelines,
                                               std::shared_ptr<const Model> model,
                                               const EngineOptions& options,
                                               const vk::PipelineLibrary::Progress& progress) {
  EngineOptions checked = options;
  if (checked.context_tokens == 0) checked.context_tokens = model->config().context_length;
  if (checked.n_sequences == 0 || checked.token_budget == 0 || checked.chunk_tokens == 0) {
    return make_error(ErrorCode::kInvalidArgument,
                      "sequences, token budget and chunk size must be positive");
  }
  if (checked.split_tokens == 0 || checked.split_tokens % kKvBlockTokens != 0) {
    return make_error(ErrorCode::kInvalidArgument, "split_tokens must be a multiple of {}",
                      kKvBlockTokens);
  }
  if (checked.profile && pipelines->device()->plan().timestamp_valid_bits == 0) {
    return make_error(ErrorCode::kInvalidArgument,
                      "kernels cannot be timed: this device has no timestamps");
  }
  checked.chunk_tokens = std::min(checked.chunk_tokens, checked.token_budget);
  std::unique_ptr<Engine> engine(new Engine(std::move(pipelines), std::move(model), checked));
  PUMICE_TRY_STATUS(engine->allocate());
  PUMICE_TRY_STATUS(engine->pipelines_->compile(progress));
  engine->pipelines_->save();
  return engine;
}

Engine::Engine(std::shared_ptr<vk::PipelineLibrary> pipelines, std::shared_ptr<const Model> model,
               const EngineOptions& options)
    : pipelines_(std::move(pipelines)),
      device_(pipelines_->device()),
      model_(std::move(model)),
      options_(options),
      submitter_(device_),
      n_slots_(options.n_sequences * kMaxDepth) {
  free_slots_.resize(n_slots_);
  std::iota(free_slots_.rbegin(), free_slots_.rend(), 0u);
}

Engine::~Engine() { device_->wait_idle(); }

double Engine::now() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - created_).count();
}

uint32_t Engine::depth() const {
  return options_.run_ahead && !options_.prompt_logits && !options_.profile ? kMaxDepth : 1;
}

uint32_t Engine::n_kv_blocks() const {
  return options_.kv_blocks != 0 ? options_.kv_blocks
                                 : options_.n_sequences * kv_blocks_of(options_.context_tokens);
}

uint64_t Engine::kv_bytes_per_token() const { return kv_->layout().block_bytes() / kKvBlockTokens; }

Status Engine::allocate() {
  const ModelConfig& config = model_->config();
  const KvLayout kv_layout = config.kv_layout(options_.kv_type);
  const uint32_t max_rows =
      std::min(options_.token_budget, options_.n_sequences * options_.context_tokens);
  // Split rows: those of short chunks, of which each sequence has one in a step.
  const ops::AttentionPlanOptions attention = attention_options(1);
  const uint64_t most_split = uint64_t{options_.n_sequences} * attention.max_split_rows;
  const auto split_rows = static_cast<uint32_t>(std::min<uint64_t>(max_rows, most_split));
  const uint32_t n_splits = options_.context_tokens / options_.split_tokens + 1;
  const DecoderLimits limits{
      .rows = max_rows,
      .logit_rows = options_.prompt_logits ? max_rows : std::min(max_rows, options_.n_sequences),
      .context_tokens = options_.context_tokens,
      .attention_partials =
          ops::max_attention_partials(split_rows, options_.context_tokens, attention),
      .invariant = options_.invariant};
  const StepCapacity capacity{.rows = limits.rows,
                              .logit_rows = limits.logit_rows,
                              .attention_items = limits.rows + split_rows * n_splits};

  table_stride_ = kv_blocks_of(options_.context_tokens);
  const uint64_t vocab_bytes = uint64_t{config.n_vocab} * 4;
  const uint64_t table_bytes = uint64_t{n_slots_} * table_stride_ * 8;
  const uint64_t scratch_bytes = uint64_t{limits.logit_rows} * vocab_bytes;
  const uint64_t counts_bytes = options_.greedy_only ? 4 : n_slots_ * vocab_bytes;
  const uint64_t bias_bytes = uint64_t{n_slots_} * kMaxLogitBias * 8;
  const uint64_t device_bytes = counts_bytes + scratch_bytes + uint64_t{n_slots_} * 4 + 4096;
  PUMICE_TRY_STATUS(device_->check_fits(
      n_kv_blocks() * kv_layout.block_bytes() + Decoder::buffer_bytes(config, limits) +
          device_bytes,
      fmt::format("a context of {} tokens and its buffers", options_.context_tokens)));

  KvCacheOptions cache{.n_blocks = n_kv_blocks(),
                       .block_tokens = kKvBlockTokens,
                       .reuse = options_.prefix_cache,
                       .model = cache_fingerprint(*model_, kv_layout, options_.invariant),
                       .layout = kKvLayoutVersion,
                       .block_bytes = kv_layout.block_bytes(),
                       .host_bytes = options_.cache_host_bytes};
  PUMICE_TRY(scheduler_, Scheduler::create(scheduler_options(options_), cache, options_.cost));

  if (!options_.cache_file.empty()) {
    PUMICE_TRY_STATUS(
        scheduler_->cache().open_prompt_cache(options_.cache_file, options_.cache_file_bytes));
  }
  PUMICE_TRY(kv_, KvMemory::create(device_, kv_layout, n_kv_blocks()));
  block_store_.emplace(device_, *kv_);
  PUMICE_TRY(decoder_, Decoder::plan(device_, *pipelines_, config, model_->weights,
                                     options_.kv_type, options_.math, limits));
  PUMICE_TRY(greedy_sampling_, ops::Sampling::plan(*pipelines_, ops::Sampling::Variant::kGreedy));
  if (!options_.greedy_only) {
    PUMICE_TRY(full_sampling_, ops::Sampling::plan(*pipelines_, ops::Sampling::Variant::kFull));
  }

  upload_arena_.emplace(device_, MemoryDomain::kUpload, "block tables",
                        table_bytes + bias_bytes + 512);
  PUMICE_TRY(block_table_, upload_arena_->allocate(table_bytes));
  PUMICE_TRY(logit_bias_, upload_arena_->allocate(bias_bytes));
  device_arena_.emplace(device_, MemoryDomain::kDevice, "sampling", device_bytes);
  PUMICE_TRY(token_counts_, device_arena_->allocate(counts_bytes));
  PUMICE_TRY(sampling_scratch_, device_arena_->allocate(scratch_bytes));
  PUMICE_TRY(sampled_, device_arena_->allocate(uint64_t{n_slots_} * 4));
  const uint64_t logits_bytes = options_.prompt_logits ? scratch_bytes : 0;
  readback_arena_.emplace(device_, MemoryDomain::kReadback, "readback",
                          depth() * (logits_bytes + 4096));
  for (uint32_t i = 0; i < depth(); ++i) {
    PUMICE_TRY(StepArgs args, StepArgs::create(device_, capacity));
    Ring ring{.args = std::move(args), .sampled_readback = {}, .logits_readback = {}};
    PUMICE_TRY(ring.sampled_readback, readback_arena_->allocate(sampled_.size_bytes));
    if (options_.prompt_logits) {
      PUMICE_TRY(ring.logits_readback, readback_arena_->allocate(logits_bytes));
    }
    rings_.push_back(std::move(ring));
    free_rings_.push_back(i);
  }
  return {};
}

// ---- requests

Result<RequestId> Engine::submit(GenerationRequest request) {
  const ModelConfig& config = model_->config();
  PUMICE_TRY_STATUS(request.sampling.validate(config.n_vocab));
  if (options_.greedy_only && !is_plain_greedy(request.sampling)) {
    return make_error(ErrorCode::kInvalidArgument, "this engine was made for greedy requests only");
  }
  if (request.sampling.logit_bias.size() > kMaxLogitBias) {
    return make_error(ErrorCode::kInvalidArgument, "{} logit biases exceed {}",
                      request.sampling.logit_bias.size(), kMaxLogitBias);
  }
  for (const TokenId token : request.prompt) {
    if (token >= config.n_vocab) {
      return make_error(ErrorCode::kInvalidArgument, "token {} is outside the vocabulary of {}",
                        token, config.n_vocab);
    }
  }
  if (request.on_logits && !options_.prompt_logits) {
    return make_error(ErrorCode::kInvalidArgument, "this engine was not made for prompt logits");
  }
  const uint32_t window = options_.context_tokens;
  const uint64_t wanted = request.prompt.size() + uint64_t{request.max_new_tokens};
  if (wanted > window && options_.overflow == OverflowPolicy::kStop) {
    return make_error(ErrorCode::kDoesNotFit,
                      "{} prompt + {} new tokens exceed the context of {} by {} tokens",
                      request.prompt.size(), request.max_new_tokens, window, wanted - window);
  }
  ActiveRequest active;
  if (request.prompt.size() > window && options_.overflow == OverflowPolicy::kTruncateOldest) {
    const uint32_t room = std::min(request.max_new_tokens, window / 2);
    active.truncated_tokens = static_cast<uint32_t>(request.prompt.size()) - (window - room);
    request.prompt.erase(request.prompt.begin(),
                         request.prompt.begin() + static_cast<ptrdiff_t>(active.truncated_tokens));
  }
  RequestSpec spec{.prompt = request.prompt,
                   .max_new_tokens = request.max_new_tokens,
                   .service_class = request.service_class,
                   .priority = request.priority,
                   .deadline_s = now() + request.timeout_s,
                   .salt = request.salt};
  // Every position of it has to be computed: it shares nothing.
  if (request.on_logits && request.logits == GenerationRequest::Logits::kPrompt)
    spec.salt = fmt::format("logits {}", n_private_salts_++);
  PUMICE_TRY(const RequestId id, scheduler_->add(std::move(spec), now()));
  active.tokens = request.prompt;
  active.n_prompt = static_cast<uint32_t>(request.prompt.size());
  active.request = std::move(request);
  requests_.emplace(id, std::move(active));
  return id;
}

std::optional<RequestReport> Engine::cancel(RequestId id) {
  if (!requests_.contains(id)) return std::nullopt;
  scheduler_->cancel(id, now());
  return release(id);
}

RequestReport Engine::report_of(RequestId id) const {
  const Request& request = scheduler_->request(id);
  const ActiveRequest& active = requests_.at(id);
  return {.end_reason = request.end_reason,
          .prompt_tokens = request.prompt_tokens,
          .generated_tokens = request.generated_tokens,
          .cache = request.cache,
          .times = request.times,
          .prefill_iterations = request.prefill_iterations,
          .preemptions = request.preemptions,
          .shifts = active.shifts,
          .truncated_tokens = active.truncated_tokens};
}

void Engine::free_slot(ActiveRequest& active) {
  if (!active.slot) return;
  if (flights_.empty()) {
    free_slots_.push_back(*active.slot);
  } else {
    cooling_slots_.emplace_back(flights_.back().plan.id, *active.slot);
  }
  active.slot.reset();
}

RequestReport Engine::release(RequestId id) {
  RequestReport report = report_of(id);
  free_slot(requests_.at(id));
  requests_.erase(id);
  scheduler_->remove(id);
  return report;
}

/// A request's window is full: drop its older tokens and go on with the rest, recomputed.
void Engine::make_room(RequestId id, ActiveRequest& active) {
  const size_t kept = options_.overflow == OverflowPolicy::kShift
                          ? std::min<size_t>(options_.keep_tokens, options_.context_tokens / 2)
                          : 0;
  const size_t n_dropped = (active.tokens.size() - kept + 1) / 2;
  const auto first = active.tokens.begin() + static_cast<ptrdiff_t>(kept);
  active.tokens.erase(first, first + static_cast<ptrdiff_t>(n_dropped));
  const size_t from_prompt =
      std::min(n_dropped, active.n_prompt > kept ? active.n_prompt - kept : 0);
  active.n_prompt -= static_cast<uint32_t>(from_prompt);
  ++active.shifts;
  free_slot(active);
  scheduler_->restart(id, active.tokens);
}

// ---- steps

/// A step failed: give back what planning it took.
Error Engine::fail(Error error) {
  for (auto& [id, active] : requests_) {
    const Request& scheduled = scheduler_->request(id);
    if (active.slot && (!scheduled.running() || scheduled.epoch != active.epoch)) free_slot(active);
  }
  return error;
}

Result<bool> Engine::launch(std::vector<StepEvent>& events) {
  Flight flight;
  while (true) {
    flight = {};
    flight.trace.planned_s = now();
    flight.plan = scheduler_->plan_step(flight.trace.planned_s);
    for (const RequestId id : flight.plan.ended) {
      const uint32_t computed = scheduler_->request(id).computed_tokens;
      events.push_back(
          {.request = id, .computed_tokens = computed, .finished = true, .report = release(id)});
    }
    for (const RequestId id : flight.plan.preempted) free_slot(requests_.at(id));
    if (flight.plan.empty()) return false;
    if (flight.plan.transfers.empty()) break;
    TransferFailures failures;
    const Status moved = move_blocks(flight, failures);
    failures.all = !moved.ok();
    const bool valid = scheduler_->finish_transfers(flight.plan, failures);
    if (!moved.ok()) {
      if (valid) scheduler_->rollback(flight.plan.id);
      return fail(moved.error());
    }
    if (valid) break;
    fail({});
  }
  const uint64_t plan_id = flight.plan.id;
  flight.ring = free_rings_.back();
  Status status = prepare(flight);
  if (status.ok()) status = submit(flight);
  if (!status.ok()) {
    scheduler_->rollback(plan_id);
    return fail(status.error());
  }
  free_rings_.pop_back();
  flights_.push_back(std::move(flight));
  return true;
}

/// Blocks that the plan moves between tiers and copies. What comes later on the device's queue sees
/// them in place.
Status Engine::move_blocks(Flight& flight, TransferFailures& failures) {
  const Transfers& transfers = flight.plan.transfers;
  failures = move_bytes(scheduler_->cache(), transfers, *block_store_, options_.logger);
  if (transfers.copies.empty()) return {};
  PUMICE_TRY(flight.copies, block_store_->record_copies(transfers.copies));
  PUMICE_TRY_STATUS(submitter_.submit(*flight.copies));
  return {};
}

Status Engine::submit(Flight& flight) {
  if (fault_) PUMICE_TRY_STATUS(fault_());
  const ReplayKey key{flight.ring, flight.n_rows, flight.n_logit_rows,
                      !flight.attention.reduce_items.empty(), flight.greedy_only};
  // A replay's declared costs are those of the step that was recorded.
  const bool replayable = flight.replayable && flight.samples && !options_.profile && !observer_;
  const auto known = replays_.find(key);
  const vk::RecordedWork* work = replayable && known != replays_.end() ? &known->second : nullptr;
  if (work == nullptr) {
    flight.trace.prepared_s = now();
    PUMICE_TRY(vk::RecordedWork recorded, record(flight));
    flight.trace.recorded_s = now();
    for (const vk::CommandInfo& command : recorded.commands()) variants_.emplace(command.label);
    last_barrier_count_ = recorded.barrier_count();
    work = replayable ? &replays_.emplace(key, std::move(recorded)).first->second
                      : &flight.work.emplace(std::move(recorded));
  }
  PUMICE_TRY(flight.ticket, submitter_.submit(*work));
  flight.trace.id = flight.plan.id;
  flight.trace.decode_rows = flight.plan.shape.decode_rows;
  flight.trace.prefill_tokens = flight.plan.shape.prefill_tokens;
  flight.trace.submitted_s = now();
  dispatched_rows_ += flight.n_rows;
  return {};
}

Status Engine::land(std::vector<StepEvent>& events) {
  Flight& landing = flights_.front();
  const uint64_t plan_id = landing.plan.id;
  const Result<double> waited = submitter_.wait(landing.ticket);
  Status status;
  if (!waited.ok()) status = waited.error();
  if (status.ok() && options_.profile && landing.work) status = profiler_.add(*landing.work);
  if (!status.ok()) {
    scheduler_->rollback(plan_id);
    for (const Flight& lost : flights_) free_rings_.push_back(lost.ring);
    flights_.clear();
    for (const auto& [id, slot] : cooling_slots_) free_slots_.push_back(slot);
    cooling_slots_.clear();
    return fail(status.error());
  }
  Flight flight = std::move(flights_.front());
  flights_.pop_front();
  free_rings_.push_back(flight.ring);
  while (!cooling_slots_.empty() && cooling_slots_.front().first <= plan_id) {
    free_slots_.push_back(cooling_slots_.front().second);
    cooling_slots_.pop_front();
  }
  flight.trace.ended_s = now();
  trace_.push_back(flight.trace);
  if (observer_ && flight.work) observer_(flight.trace, *flight.work);
  if (trace_.size() > kTraceSteps) trace_.pop_front();

  deliver_logits(flight);
  const auto sampled = StepArgs::host<uint32_t>(rings_[flight.ring].sampled_readback);
  std::vector<uint32_t> tokens;
  for (size_t i = 0; i < flight.plan.chunks.size(); ++i) {
    if (flight.plan.chunks[i].samples) tokens.push_back(sampled[flight.slots[i]]);
  }
  const std::vector<ChunkOutcome> outcomes =
      scheduler_->commit(plan_id, tokens, flight.trace.ended_s, *waited);
  size_t next_token = 0;
  for (size_t i = 0; i < outcomes.size(); ++i) {
    const StepChunk& chunk = flight.plan.chunks[i];
    const uint32_t token = chunk.samples ? tokens[next_token++] : 0;
    if (!outcomes[i].counts) continue;
    const auto it = requests_.find(chunk.request);
    PUMICE_CHECK(it != requests_.end(), "an outcome of a request nobody knows");
    ActiveRequest& active = it->second;
    StepEvent event{.request = chunk.request,
                    .computed_tokens = chunk.first_position + chunk.n_tokens};
    if (outcomes[i].sampled) {
      event.token = token;
      active.tokens.push_back(token);
      ++active.n_generated;
      if (active.request.ends && active.request.ends(token)) {
        scheduler_->end(chunk.request, EndReason::kStop, flight.trace.ended_s);
      }
    }
    event.finished = scheduler_->request(chunk.request).ended();
    if (event.finished) {
      event.report = release(chunk.request);
    } else if (active.tokens.size() > options_.context_tokens) {
      make_room(chunk.request, active);
    }
    events.push_back(event);
  }
  return {};
}

Result<std::vector<StepEvent>> Engine::step() {
  std::vector<StepEvent> events;
  while (true) {
    while (flights_.size() < depth()) {
      PUMICE_TRY(const bool launched, launch(events));
      if (!launched) break;
    }
    if (flights_.empty()) return events;
    PUMICE_TRY_STATUS(land(events));
    // A step whose requests have all ended meanwhile brings nothing.
    if (!events.empty()) return events;
  }
}

Status Engine::calibrate() {
  PUMICE_CHECK(idle(), "calibrating while requests run");
  const auto start = std::chrono::steady_clock::now();
  const uint32_t window = options_.context_tokens;
  for (const uint32_t length : {kKvBlockTokens, 4 * kKvBlockTokens, 16 * kKvBlockTokens}) {
    for (uint32_t streams : {1u, 4u}) {
      streams = std::min(streams, options_.n_sequences);
      for (uint32_t i = 0; i < streams; ++i) {
        GenerationRequest request;
        request.salt = fmt::format("calibration {}", n_private_salts_++);
        request.max_new_tokens = std::min(6u, window / 4);
        request.prompt.resize(std::clamp(length, 1u, window - request.max_new_tokens));
        for (size_t t = 0; t < request.prompt.size(); ++t) {
          request.prompt[t] = static_cast<TokenId>(t % model_->config().n_vocab);
        }
        PUMICE_TRY_STATUS(submit(std::move(request)));
      }
      while (!idle()) PUMICE_TRY_STATUS(step());
    }
    if (std::chrono::steady_clock::now() - start > std::chrono::seconds(1)) break;
  }
  scheduler_->reset_telemetry();
  return {};
}

Status Engine::save_prompt_cache() {
  if (options_.cache_file.empty()) {
    return make_error(ErrorCode::kInvalidArgument, "this engine has no prompt cache file");
  }
  return ::pumice::save_prompt_cache(scheduler_->cache(), *block_store_);
}

void Engine::set_recorder_options(const vk::RecorderOptions& options) {
  recorder_options_ = options;
  replays_.clear();
}

}  // namespace pumice
