#include "engine/engine.hpp"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <new>
#include <thread>
#include <utility>

#include "engine/engine_limits.hpp"
#include "engine/engine_sizes.hpp"
#include "engine/memory_plan.hpp"

namespace pumice {
namespace {

SchedulerOptions scheduler_options(const EngineOptions& options) {
  return {.token_budget = options.token_budget,
          .chunk_tokens = options.chunk_tokens,
          .tpot_target_s = options.tpot_target_s,
          .max_running = options.n_sequences,
          .max_partial_prefills = options.max_partial_prefills,
          .window_tokens = options.context_tokens,
          .reserved_decode_tokens = options.reserved_decode_tokens,
          .aging_s = options.aging_s,
          .stop_at_window = options.overflow == OverflowPolicy::kStop,
          .spare_logit_rows = options.spare_logit_rows};
}

/// What keys and values of rows with an adapter depend on, where those without depend on `base`.
ModelFingerprint with_adapter(const ModelFingerprint& base, const ProgramAdapter& adapter) {
  const std::array<uint64_t, 4> parts = {base.low, base.high, adapter.fingerprint[0],
                                         adapter.fingerprint[1]};
  const XXH128_hash_t hash = XXH3_128bits(parts.data(), sizeof parts);
  return {hash.low64, hash.high64};
}

std::vector<ModelFingerprint> adapter_fingerprints(const Program& program,
                                                   const ModelFingerprint& base) {
  std::vector<ModelFingerprint> all;
  for (const ProgramAdapter& adapter : program.adapters) all.push_back(with_adapter(base, adapter));
  return all;
}

Requests::Limits request_limits(const EngineOptions& options, const Program& program,
                                const ModelFingerprint& cached) {
  return {.n_vocab = program.n_vocab,
          .window_tokens = options.context_tokens,
          .overflow = options.overflow,
          .keep_tokens = options.keep_tokens,
          .greedy_only = options.greedy_only,
          .logits = options.prompt_logits,
          .hidden = program.gives_hidden,
          .given_width = given_width(program),
          .adapters = adapter_fingerprints(program, cached)};
}

Result<EngineOptions> checked(EngineOptions options, const Model& model) {
  const bool reads_given_rows = given_width(model.program) > 0;  // and so guesses
  if (!reads_given_rows) PUMICE_TRY_STATUS(check_writes_text(model.program));
  if (options.context_tokens == 0) options.context_tokens = model.program.context_length;
  if (const auto most = position_limit(model.program); most && options.context_tokens > *most) {
    return make_error(ErrorCode::kInvalidArgument,
                      "a context of {} tokens: the model has position embeddings for {}",
                      options.context_tokens, *most);
  }
  if (options.n_sequences == 0 || options.token_budget == 0 || options.chunk_tokens == 0) {
    return make_error(ErrorCode::kInvalidArgument,
                      "sequences, token budget and chunk size must be positive");
  }
  PUMICE_TRY_STATUS(check_sizes(options));
  if (options.split_tokens == 0 || options.split_tokens % kKvBlockTokens != 0) {
    return make_error(ErrorCode::kInvalidArgument, "split_tokens must be a multiple of {}",
                      kKvBlockTokens);
  }
  if (!options.prefix_store.empty() && (options.cache_host_bytes == 0 || !options.prefix_cache)) {
    return make_error(ErrorCode::kInvalidArgument,
                      "a prefix store needs a prefix cache with host memory");
  }
  options.chunk_tokens = std::min(options.chunk_tokens, options.token_budget);
  return options;
}

}  // namespace

// ---- without memory on the host

/// Where the host has no memory, an error that needs none, and whatever was in the middle of a
/// change is made again before the next call.
template <typename Body>
auto Engine::guarded(const Body& body) -> decltype(body()) {
  try {
    PUMICE_TRY_STATUS(repair());
    return body();
  } catch (const std::bad_alloc&) {
    broken_ = true;
    return Error{ErrorCode::kDoesNotFit, "out of memory"};
  }
}

/// Makes everything again from what clients were told and what is on the device for good.
Status Engine::repair() {
  if (!broken_) return {};
  stepper_.reset();
  requests_->start_over();
  if (!options_.cache_file.empty()) {
    const Status opened = requests_->scheduler().cache().open_prompt_cache(
        options_.cache_file, options_.cache_file_bytes);
    if (!opened.ok()) options_.logger.warning("{}", opened.error().message);
  }
  if (device_ != nullptr) {
    device_->forget_all();
    start_stepper();
  }
  broken_ = false;
  return {};
}

// ---- its parts

Result<std::unique_ptr<Engine>> Engine::create(std::shared_ptr<vk::PipelineLibrary> pipelines,
                                               std::shared_ptr<const Model> model,
                                               const EngineOptions& options,
                                               const vk::PipelineLibrary::Progress& progress) {
  PUMICE_TRY(const EngineOptions all, checked(options, *model));
  std::unique_ptr<Engine> engine(new Engine(all));
  PUMICE_TRY(engine->device_,
             DeviceState::create(std::move(pipelines), std::move(model), all, progress));
  const DeviceState& device = *engine->device_;
  PUMICE_TRY(Scheduler scheduler,
             Scheduler::create(scheduler_options(all), device.cache_options(), all.cost));
  if (!all.cache_file.empty()) {
    PUMICE_TRY_STATUS(scheduler.cache().open_prompt_cache(all.cache_file, all.cache_file_bytes));
  }
  if (!all.prefix_store.empty()) {
    const KvCache& cache = scheduler.cache();
    PUMICE_TRY(engine->store_, PrefixStore::open({.folder = all.prefix_store,
                                                  .limit_bytes = all.prefix_store_bytes,
                                                  .binding = cache.binding(),
                                                  .most_read_bytes = all.cache_host_bytes,
                                                  .logger = all.logger},
                                                 cache.kinds()));
  }
  Requests::Limits limits =
      request_limits(all, device.program(), scheduler.cache().options().model);
  engine->requests_.emplace(std::move(scheduler), std::move(limits));
  engine->start_stepper();
  return engine;
}

void Engine::start_stepper() {
  stepper_ = std::make_unique<Stepper>(
      *requests_, *device_, options_, [this] { return this->now(); }, store_.get());
  stepper_->set_hooks(hooks_);
  requests_->scheduler().set_draft_rows(device_->decoder().alike_rows());
  memory_.met = memory_.budget_bytes == UINT64_MAX;
  memory_looked_at_ = {};
  look_at_memory();
  stepper_->set_mode(mode_);
}

void Engine::set_mode(EngineMode mode) {
  mode_ = mode;
  if (stepper_ != nullptr) stepper_->set_mode(mode);
}

void Engine::drop_device() {
  if (stepper_ != nullptr && !broken_) {
    try {
      stepper_->abandon();
      requests_->lose_device();
    } catch (const std::bad_alloc&) {
      broken_ = true;
    }
  }
  stepper_.reset();
  device_.reset();
}

Status Engine::rebuild(std::shared_ptr<vk::PipelineLibrary> pipelines,
                       std::shared_ptr<const Model> model,
                       const vk::PipelineLibrary::Progress& progress) {
  return guarded([&]() -> Status {
    drop_device();
    PUMICE_TRY(
        std::unique_ptr<DeviceState> device,
        DeviceState::create(pipelines, model, options_, progress, scheduler().cache().n_pages()));
    const ModelFingerprint cached = device->cache_options().model;
    if (cached != scheduler().cache().options().model ||
        adapter_fingerprints(device->program(), cached) != requests_->limits().adapters) {
      return make_error(
          ErrorCode::kInvalidArgument,
          "an engine can only be rebuilt with the model and the arithmetic it was made with");
    }
    device_ = std::move(device);
    // Slabs of another device may be larger.
    PUMICE_CHECK(requests_->scheduler().cache().resize(device_->kv().n_pages()),
                 "an empty cache takes any size");
    start_stepper();
    return {};
  });
}

void Engine::set_hooks(StepHooks hooks) {
  hooks_ = std::move(hooks);
  if (stepper_ != nullptr) stepper_->set_hooks(hooks_);
}

Status Engine::check_device() const {
  if (stepper_ != nullptr) return {};
  return make_error(ErrorCode::kDeviceLost, "this engine has no device: rebuild it");
}

double Engine::now() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - created_).count();
}

double Engine::next_due_s() const {
  if (stepper_ != nullptr && (stepper_->changes_memory() || stepper_->saves_pages())) return 0;
  if (idle()) return std::numeric_limits<double>::infinity();
  if (requests_->has_events() || stepper_ == nullptr || !stepper_->idle()) return 0;
  return scheduler().next_due_s();
}

uint64_t Engine::kv_bytes_per_token() const {
  const KvCacheOptions& cache = scheduler().cache().options();
  const auto n_paged = static_cast<uint64_t>(std::ranges::count_if(
      cache.kinds, [](const PageKind& kind) { return kind.form != StateForm::kRecurrent; }));
  return n_paged * cache.page_bytes / cache.block_tokens;
}

// ---- requests and steps

Result<RequestId> Engine::submit(GenerationRequest request) {
  return guarded([&] { return requests_->submit(std::move(request), now()); });
}

std::optional<RequestReport> Engine::cancel(RequestId id) {
  const auto cancel_it = [&] {
    const Status whole = repair();
    PUMICE_CHECK(whole.ok(), "an engine that worked cannot be made again");
    return requests_->cancel(id, now());
  };
  try {
    return cancel_it();
  } catch (const std::bad_alloc&) {
    broken_ = true;
  }
  return cancel_it();
}

Result<Engine::Readiness> Engine::prewarm(double budget_s,
                                          const vk::PipelineLibrary::Progress& progress) {
  PUMICE_TRY_STATUS(check_device());
  return device_->prewarm(budget_s, progress);
}

uint64_t Engine::pipelines_compiled_after_prewarm() const {
  return device_ != nullptr ? device_->pipelines_compiled_after_prewarm() : 0;
}

uint64_t Engine::allocations_after_prewarm() const {
  return device_ != nullptr ? device_->allocations_after_prewarm() : 0;
}

Result<std::vector<StepEvent>> Engine::poll(double budget_s) {
  return guarded([&]() -> Result<std::vector<StepEvent>> {
    // Events that a call before this one left when it failed go first.
    if (!requests_->has_events()) {
      PUMICE_TRY_STATUS(check_device());
      if (device_->is_warm()) {
        PUMICE_TRY_STATUS(stepper_->poll(budget_s));
      } else if (!idle() || !stepper_->memory_settled()) {
        PUMICE_TRY_STATUS(prewarm(budget_s));
      }
      look_at_memory();
    }
    return requests_->take_events();
  });
}

Result<std::vector<StepEvent>> Engine::step() {
  return guarded([&]() -> Result<std::vector<StepEvent>> {
    if (!requests_->has_events() && !idle()) PUMICE_TRY_STATUS(prewarm(Submitter::kNoBudget));
    // A step whose requests have all ended meanwhile brings nothing.
    while (!requests_->has_events()) {
      PUMICE_TRY_STATUS(check_device());
      PUMICE_TRY_STATUS(stepper_->poll(Submitter::kNoBudget, 0));
      look_at_memory();
      if (requests_->has_events()) break;
      if (!stepper_->idle()) {
        PUMICE_TRY_STATUS(stepper_->wait());
        continue;
      }
      if (idle()) break;
      const double wait_s = next_due_s() - now();
      if (std::isinf(wait_s)) break;
      if (wait_s > 0) std::this_thread::sleep_for(std::chrono::duration<double>(wait_s));
    }
    return requests_->take_events();
  });
}

Status Engine::wait(double most_s) {
  constexpr double kMost_s = 3600;  // as many nanoseconds are a number
  if (requests_->has_events() || broken_) return {};
  const double due_s = stepper_ != nullptr ? next_due_s() - now() : kMost_s;
  double wait_s = std::clamp(most_s, 0.0, kMost_s);
  if (!memory_.met) wait_s = std::min(wait_s, kMemoryInterval_s);
  if (due_s > 0) wait_s = std::min(wait_s, due_s);
  const auto most =
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(wait_s));
  if (due_s <= 0) return stepper_->wait_next(most, waker_);
  (void)waker_.sleep(most);
  return {};
}

// ---- memory

Status Engine::set_memory_budget(uint64_t bytes) {
  return guarded([&]() -> Status {
    PUMICE_TRY_STATUS(check_device());
    PUMICE_TRY(const DeviceState::MemoryTarget target, device_->memory_within(bytes));
    stepper_->use_memory(target, bytes);
    memory_.budget_bytes = bytes;
    memory_.met = bytes == UINT64_MAX;
    look_at_memory();
    return {};
  });
}

/// What a budget leaves may change: others take memory of the device, and give it back.
void Engine::look_at_memory() {
  const auto now = std::chrono::steady_clock::now();
  const bool due = now - memory_looked_at_ >= std::chrono::seconds(1);
  if (memory_.met && !due) return;
  vk::Device& device = *device_->device();
  if (!memory_.met) device.retire([] {});  // what waits for another engine's work
  memory_.used_bytes = device.ledger().budgeted_bytes();
  memory_.kv_blocks = device_->kv().n_pages();
  memory_.kv_blocks_all = device_->kv().most_pages();
  memory_.kv_bytes = device_->kv().bytes_with(memory_.kv_blocks);
  memory_.weight_bytes_beside = device_->placement().beside_bytes();
  if (memory_.budget_bytes != UINT64_MAX) {
    const bool within = memory_.used_bytes <= memory_.budget_bytes;
    memory_.met = within && (memory_.met || stepper_->memory_settled());
  }
  if (!due) return;
  memory_looked_at_ = now;
  ask_driver();
  const uint64_t budget = std::min(memory_.budget_bytes, memory_.granted_bytes);
  if (budget == UINT64_MAX) return;
  if (memory_.budget_bytes == UINT64_MAX) {
    return stepper_->use_memory(device_->memory_to_go_on_within(budget), budget);
  }
  const auto target = device_->memory_within(budget);
  stepper_->use_memory(target.ok() ? *target : device_->least_memory(), budget);
}

void Engine::ask_driver() {
  const std::optional<vk::HeapUse> driver = vk::heap_use(*device_->device());
  const bool was_overcommitted = memory_.driver && memory_.driver->is_overcommitted();
  memory_.driver = driver;
  if (!driver) return;
  const bool overcommitted = driver->is_overcommitted();
  if (options_.yields_memory && (overcommitted || memory_.granted_bytes != UINT64_MAX)) {
    const uint64_t others = driver->used_bytes - std::min(driver->used_bytes, memory_.used_bytes);
    memory_.granted_bytes = driver->budget_bytes - std::min(driver->budget_bytes, others);
  }
  if (!overcommitted || was_overcommitted) return;
  ++memory_.n_overcommitted;
  options_.logger.warning("the driver grants this process {} of device memory and it uses {}: {}",
                          memory_text(driver->budget_bytes), memory_text(driver->used_bytes),
                          options_.yields_memory
                              ? "requests make do with less until it grants more"
                              : "the driver may move memory off the device, which makes everything "
                                "slow");
}

// ---- the whole

Status Engine::calibrate() {
  PUMICE_CHECK(idle(), "calibrating while requests run");
  const auto start = std::chrono::steady_clock::now();
  const uint32_t window = options_.context_tokens;
  for (const uint32_t length : {kKvBlockTokens, 4 * kKvBlockTokens, 16 * kKvBlockTokens}) {
    for (uint32_t streams : {1u, 4u}) {
      streams = std::min(streams, options_.n_sequences);
      for (uint32_t i = 0; i < streams; ++i) {
        GenerationRequest request;
        request.salt = requests_->private_salt();
        request.max_new_tokens = std::min(6u, window / 4);
        request.prompt.resize(std::clamp(length, 1u, window - request.max_new_tokens));
        for (size_t t = 0; t < request.prompt.size(); ++t) {
          request.prompt[t] = static_cast<TokenId>(t % device_->program().n_vocab);
        }
        PUMICE_TRY_STATUS(submit(std::move(request)));
      }
      while (!idle()) PUMICE_TRY_STATUS(step());
    }
    if (std::chrono::steady_clock::now() - start > std::chrono::seconds(1)) break;
  }
  requests_->scheduler().reset_telemetry();
  return {};
}

Status Engine::save_prompt_cache() {
  if (options_.cache_file.empty()) {
    return make_error(ErrorCode::kInvalidArgument, "this engine has no prompt cache file");
  }
  return guarded([&]() -> Status {
    PUMICE_TRY_STATUS(check_device());
    PUMICE_TRY_STATUS(stepper_->settle());
    return ::pumice::save_prompt_cache(requests_->scheduler().cache(), device_->pages());
  });
}

// ---- the prefix store

std::shared_ptr<PrefixStore::Reading> Engine::read_stored(std::span<const TokenId> prompt,
                                                          std::string_view salt, uint32_t adapter) {
  if (store_ == nullptr || !salt.empty() || adapter != 0) return nullptr;
  const KvCache& cache = scheduler().cache();
  HashedPrompt hashed = cache.hash_prompt(prompt);
  std::vector<KindMask> known = cache.known_kinds(hashed);
  const KindMask all = cache.kinds().all();
  if (std::ranges::all_of(known, [&](KindMask kinds) { return kinds == all; })) return nullptr;
  hashed.hashes.resize(known.size());
  hashed.content.resize(known.size() * cache.options().block_tokens);
  return store_->read(std::move(hashed.content), std::move(hashed.hashes), std::move(known),
                      [this] { wake(); });
}

void Engine::adopt_stored(std::span<const TokenId> prompt, PrefixStore::Reading& reading) {
  PUMICE_CHECK(reading.done(), "a prefix is still being read");
  const Status adopted = guarded([&]() -> Status {
    KvCache& cache = requests_->scheduler().cache();
    std::vector<KvCache::HostPage> pages;
    for (const PrefixStore::Prefix::Page& page : reading.prefix().pages) {
      pages.push_back({page.block, page.kind, page.bytes});
    }
    (void)cache.adopt_to_host(cache.hash_prompt(prompt), pages);
    return {};
  });
  // Then it is computed.
  if (!adopted.ok()) options_.logger.warning("{}", adopted.error().message);
}

Status Engine::finish_storing() {
  if (store_ == nullptr) return {};
  PUMICE_TRY_STATUS(check_device());
  while (stepper_->saves_pages()) {
    PUMICE_TRY_STATUS(stepper_->poll(Submitter::kNoBudget));
    if (!stepper_->idle()) PUMICE_TRY_STATUS(stepper_->wait());
  }
  store_->flush();
  return {};
}

// ---- conversations

Result<SavedSequence> Engine::sequence(RequestId id) const {
  const GenerationRequest* request = requests_->find(id);
  if (request == nullptr) {
    return make_error(ErrorCode::kInvalidArgument, "there is no request {}, or it has ended", id);
  }
  const std::span<const TokenId> tokens = requests_->tokens(id);
  return SavedSequence{.tokens = {tokens.begin(), tokens.end()},
                       .n_prompt = requests_->n_prompt(id),
                       .sampling = request->sampling,
                       .next_output_index = requests_->next_output_index(id),
                       .salt = request->salt,
                       .adapter = request->adapter};
}

SavedBinding Engine::saved_binding(uint32_t adapter) const {
  SavedBinding binding{.model = device_->model().fingerprint,
                       .n_vocab = device_->program().n_vocab,
                       .state = scheduler().cache().binding()};
  if (adapter == 0) return binding;
  const ModelFingerprint model =
      with_adapter({binding.model[0], binding.model[1]}, device_->program().adapters[adapter - 1]);
  binding.model = {model.low, model.high};
  binding.state.model = requests_->fingerprint_of(adapter);
  return binding;
}

Result<std::vector<std::byte>> Engine::save(SavedSequence sequence) {
  return guarded([&]() -> Result<std::vector<std::byte>> {
    PUMICE_TRY_STATUS(check_device());
    if (sequence.adapter > device_->program().adapters.size()) {
      return make_error(ErrorCode::kInvalidArgument, "adapter {} of the {} that the model has",
                        sequence.adapter, device_->program().adapters.size());
    }
    const SavedBinding binding = saved_binding(sequence.adapter);
    PUMICE_TRY_STATUS(check_saved_sequence(sequence, binding.n_vocab));
    PUMICE_TRY_STATUS(stepper().settle());
    KvCache& cache = requests_->scheduler().cache();
    KvCache::CachedPrefix prefix =
        cache.cached_prefix(hash_prompt(sequence.tokens, sequence.salt, sequence.adapter));
    const auto write = [&] {
      sequence.state_tokens = prefix.n_tokens;
      return write_saved_sequence(sequence, binding, prefix.pages.size());
    };
    std::vector<std::byte> bytes = write();
    const uint64_t n_page_bytes = prefix.pages.size() * binding.state.page_bytes;
    const Status read =
        read_prefix(cache, prefix, device_->pages(), std::span(bytes).last(n_page_bytes));
    if (!read.ok() && read.error().code != ErrorCode::kBadFile) return read.error();
    if (!read.ok()) {
      options_.logger.warning("a conversation is saved without state: {}", read.error().message);
      prefix = {};
      bytes = write();
    }
    seal_saved_sequence(bytes);
    return bytes;
  });
}

Result<SavedSequence> Engine::restore(std::span<const std::byte> bytes,
                                      const RestoreOptions& options) {
  return guarded([&]() -> Result<SavedSequence> {
    PUMICE_TRY_STATUS(check_device());
    KvCache& cache = requests_->scheduler().cache();
    uint32_t adapter = static_cast<uint32_t>(device_->program().adapters.size());
    while (adapter > 0 && !is_of_model(bytes, saved_binding(adapter))) --adapter;
    PUMICE_TRY(OpenedSequence opened,
               open_saved_sequence(bytes, saved_binding(adapter), cache.kinds(), options));
    SavedSequence& sequence = opened.sequence;
    sequence.adapter = adapter;
    if (sequence.state_tokens == 0) return sequence;
    PUMICE_TRY_STATUS(stepper().settle());
    const Status adopted =
        adopt_prefix(cache, hash_prompt(sequence.tokens, sequence.salt, adapter),
                     sequence.state_tokens, opened.pages, device_->pages(), options_.logger);
    if (adopted.ok()) return sequence;
    const ErrorCode code = adopted.error().code;
    if (code != ErrorCode::kDoesNotFit && code != ErrorCode::kInvalidArgument)
      return adopted.error();
    options_.logger.info("a conversation is restored without state: {}", adopted.error().message);
    sequence.state_tokens = 0;
    return sequence;
  });
}

// ---- for tests

Status Engine::check_integrity() const {
  if (broken_) return {};
  PUMICE_TRY_STATUS(requests_->check_integrity());
  return stepper_ != nullptr ? stepper_->check_integrity() : Status();
}

}  // namespace pumice
