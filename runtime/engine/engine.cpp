#include "engine/engine.hpp"

#include <xxhash.h>

#include <algorithm>
#include <numeric>

#include "engine/engine_limits.hpp"

namespace pumice {
namespace {

constexpr uint32_t kMaxDepth = 2;
constexpr uint64_t kMostKvPages = UINT32_MAX - 1;
constexpr uint64_t kKvLayoutVersion = 2;  // of KvLayout's arrangement, for prompt cache files

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
ModelFingerprint cache_fingerprint(const Model& model, const StateLayout& layout,
                                   const Decoder& decoder) {
  std::string facts =
      fmt::format("{:x} {:x} {}", model.fingerprint[0], model.fingerprint[1], decoder.arithmetic());
  for (const StateLayout::Page& page : layout.pages) {
    facts += fmt::format(" {} {} {} {} {}", page.group, static_cast<int>(page.layout.type),
                         page.layout.n_layers, page.layout.n_kv_heads, page.layout.head_dim);
  }
  const XXH128_hash_t hash = XXH3_128bits(facts.data(), facts.size());
  return {hash.low64, hash.high64};
}

}  // namespace

Result<std::unique_ptr<Engine>> Engine::create(std::shared_ptr<vk::PipelineLibrary> pipelines,
                                               std::shared_ptr<const Model> model,
                                               const EngineOptions& options,
                                               const vk::PipelineLibrary::Progress& progress) {
  EngineOptions checked = options;
  if (checked.context_tokens == 0) checked.context_tokens = model->program.context_length;
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

uint64_t Engine::kv_bytes_per_token() const {
  return decoder_->state().block_bytes() / kKvBlockTokens;
}

Status Engine::allocate() {
  const Program& program = model_->program;
  const StateLayout kv_layout = state_layout(program, options_.kv_type);
  const std::vector<CacheGroup> groups = cache_groups(program, kv_layout);
  PUMICE_TRY_STATUS(CacheGroups::check(groups));
  const uint64_t n_pages =
      options_.kv_blocks != 0
          ? uint64_t{options_.kv_blocks} * groups.size()
          : options_.n_sequences *
                pages_of_context(groups, options_.context_tokens, options_.token_budget);
  if (n_pages > kMostKvPages) {
    return make_error(ErrorCode::kDoesNotFit, "{} pages of keys and values exceed {}", n_pages,
                      kMostKvPages);
  }
  const uint32_t max_rows =
      std::min(options_.token_budget, options_.n_sequences * options_.context_tokens);
  // Split rows: those of short chunks, of which each sequence has one in a step.
  const ops::AttentionPlanOptions attention = attention_options(1, 0);
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

  table_stride_ = kv_blocks_of(options_.context_tokens);
  const uint64_t vocab_bytes = uint64_t{program.n_vocab} * 4;
  const uint64_t table_bytes = uint64_t{n_slots_} * table_stride_ * 8;  // of a group
  const uint64_t scratch_bytes = uint64_t{limits.logit_rows} * vocab_bytes;
  const uint64_t counts_bytes = options_.greedy_only ? 4 : n_slots_ * vocab_bytes;
  const uint64_t bias_bytes = uint64_t{n_slots_} * kMaxLogitBias * 8;
  const uint64_t device_bytes = counts_bytes + scratch_bytes + uint64_t{n_slots_} * 4 + 4096;
  PUMICE_TRY_STATUS(device_->check_fits(
      n_pages * kv_layout.page_bytes + Decoder::buffer_bytes(program, limits) + device_bytes,
      fmt::format("a context of {} tokens and its buffers", options_.context_tokens)));

  PUMICE_TRY(decoder_, Decoder::plan(device_, *pipelines_, program, model_->weights,
                                     options_.kv_type, options_.math, options_.fusion, limits));
  KvCacheOptions cache{.n_blocks = static_cast<uint32_t>(n_pages),
                       .block_tokens = kKvBlockTokens,
                       .groups = groups,
                       .reuse = options_.prefix_cache,
                       .model = cache_fingerprint(*model_, kv_layout, *decoder_),
                       .layout = kKvLayoutVersion,
                       .block_bytes = kv_layout.page_bytes,
                       .host_bytes = options_.cache_host_bytes};
  PUMICE_TRY(scheduler_, Scheduler::create(scheduler_options(options_), cache, options_.cost));

  if (!options_.cache_file.empty()) {
    PUMICE_TRY_STATUS(
        scheduler_->cache().open_prompt_cache(options_.cache_file, options_.cache_file_bytes));
  }
  PUMICE_TRY(kv_, KvMemory::create(device_, kv_layout.page_bytes, static_cast<uint32_t>(n_pages)));
  block_store_.emplace(device_, *kv_);
  PUMICE_TRY(greedy_sampling_, ops::Sampling::plan(*pipelines_, ops::Sampling::Variant::kGreedy));
  if (!options_.greedy_only) {
    PUMICE_TRY(full_sampling_, ops::Sampling::plan(*pipelines_, ops::Sampling::Variant::kFull));
  }

  upload_arena_.emplace(device_, vk::MemoryDomain::kUpload, "block tables",
                        groups.size() * (table_bytes + 256) + bias_bytes + 512);
  for (size_t i = 0; i < groups.size(); ++i) {
    PUMICE_TRY(block_tables_.emplace_back(), upload_arena_->allocate(table_bytes));
  }
  PUMICE_TRY(logit_bias_, upload_arena_->allocate(bias_bytes));
  device_arena_.emplace(device_, vk::MemoryDomain::kDevice, "sampling", device_bytes);
  PUMICE_TRY(token_counts_, device_arena_->allocate(counts_bytes));
  PUMICE_TRY(sampling_scratch_, device_arena_->allocate(scratch_bytes));
  PUMICE_TRY(sampled_, device_arena_->allocate(uint64_t{n_slots_} * 4));
  const uint64_t logits_bytes = options_.prompt_logits ? scratch_bytes : 0;
  readback_arena_.emplace(device_, vk::MemoryDomain::kReadback, "readback",
                          depth() * (logits_bytes + 4096));
  const StepCapacity capacity{
      .rows = limits.rows,
      .logit_rows = limits.logit_rows,
      .attention_items = limits.rows + split_rows * n_splits,
      .attention_classes = static_cast<uint32_t>(decoder_->attention_classes().size())};
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
  const uint32_t n_vocab = model_->program.n_vocab;
  PUMICE_TRY_STATUS(request.sampling.validate(n_vocab));
  if (options_.greedy_only && !is_plain_greedy(request.sampling)) {
    return make_error(ErrorCode::kInvalidArgument, "this engine was made for greedy requests only");
  }
  if (request.sampling.logit_bias.size() > kMaxLogitBias) {
    return make_error(ErrorCode::kInvalidArgument, "{} logit biases exceed {}",
                      request.sampling.logit_bias.size(), kMaxLogitBias);
  }
  for (const TokenId token : request.prompt) {
    if (token >= n_vocab) {
      return make_error(ErrorCode::kInvalidArgument, "token {} is outside the vocabulary of {}",
                        token, n_vocab);
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
  std::optional<RequestReport> report;
  if (requests_.contains(id)) {
    scheduler_->cancel(id, now());
    report = release(id);
  }
  std::erase_if(events_, [&](const StepEvent& event) {
    if (event.request != id) return false;
    if (event.report) report = event.report;
    return true;
  });
  return report;
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

RequestReport Engine::release(RequestId id) {
  RequestReport report = report_of(id);
  free_slot(requests_.at(id));
  requests_.erase(id);
  scheduler_->remove(id);
  return report;
}

/// A request's window is full: drop its older tokens and go on with the rest, recomputed.
void Engine::shift_window(RequestId id, ActiveRequest& active) {
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
        request.salt = fmt::format("calibration {}", n_private_salts_++);
        request.max_new_tokens = std::min(6u, window / 4);
        request.prompt.resize(std::clamp(length, 1u, window - request.max_new_tokens));
        for (size_t t = 0; t < request.prompt.size(); ++t) {
          request.prompt[t] = static_cast<TokenId>(t % model_->program.n_vocab);
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
