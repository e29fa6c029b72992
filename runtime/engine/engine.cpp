#include "engine/engine.hpp"

#include <algorithm>
#include <numeric>

namespace pumice {
namespace {

constexpr uint32_t kMaxBias = 1024;  ///< logit biases of one request

uint32_t blocks_of(uint32_t tokens) { return (tokens + kKvBlockTokens - 1) / kKvBlockTokens; }

SchedulerOptions scheduler_options(const EngineOptions& options) {
  return {.token_budget = options.token_budget,
          .chunk_tokens = options.chunk_tokens,
          .max_running = options.n_sequences,
          .block_tokens = kKvBlockTokens};
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
      scheduler_(scheduler_options(options),
                 options.n_sequences * blocks_of(options.context_tokens)),
      free_slots_(options.n_sequences),
      submitter_(device_) {
  std::iota(free_slots_.rbegin(), free_slots_.rend(), 0u);
}

Engine::~Engine() { device_->wait_idle(); }

ops::AttentionPlanOptions Engine::attention_options() const {
  return {.tile_tokens = decoder_->attention().tile_tokens(),
          .split_tokens = options_.split_tokens};
}

Status Engine::allocate() {
  const ModelConfig& config = model_->config();
  const KvLayout kv_layout = config.kv_layout(options_.kv_type);
  const uint32_t n_blocks = options_.n_sequences * blocks_of(options_.context_tokens);
  const uint32_t max_rows =
      std::min(options_.token_budget, options_.n_sequences * options_.context_tokens);
  // Split rows: those of short chunks, of which each sequence has one in a step.
  const ops::AttentionPlanOptions defaults{.split_tokens = options_.split_tokens};
  const uint32_t split_rows = std::min(max_rows, options_.n_sequences * defaults.max_split_rows);
  const uint32_t n_splits = options_.context_tokens / options_.split_tokens + 1;
  const DecoderLimits limits{
      .rows = max_rows,
      .logit_rows = options_.prompt_logits ? max_rows : std::min(max_rows, options_.n_sequences),
      .context_tokens = options_.context_tokens,
      .attention_partials =
          ops::max_attention_partials(split_rows, options_.context_tokens, defaults)};
  const StepCapacity capacity{.rows = limits.rows,
                              .logit_rows = limits.logit_rows,
                              .attention_items = limits.rows + split_rows * n_splits};

  const uint64_t vocab_bytes = uint64_t{config.n_vocab} * 4;
  const uint64_t table_bytes =
      uint64_t{options_.n_sequences} * blocks_of(options_.context_tokens) * 8;
  const uint64_t scratch_bytes = uint64_t{limits.logit_rows} * vocab_bytes;
  const uint64_t bias_bytes = uint64_t{options_.n_sequences} * kMaxBias * 8;
  const uint64_t device_bytes = options_.n_sequences * vocab_bytes + scratch_bytes + 4096;
  PUMICE_TRY_STATUS(device_->check_fits(
      n_blocks * kv_layout.block_bytes() + Decoder::buffer_bytes(config, limits) + device_bytes,
      fmt::format("a context of {} tokens and its buffers", options_.context_tokens)));

  PUMICE_TRY(kv_, KvMemory::create(device_, kv_layout, n_blocks));
  PUMICE_TRY(decoder_, Decoder::plan(device_, *pipelines_, config, model_->weights,
                                     options_.kv_type, options_.math, limits));
  PUMICE_TRY(args_, StepArgs::create(device_, capacity));
  PUMICE_TRY(greedy_sampling_, ops::Sampling::plan(*pipelines_, ops::Sampling::Variant::kGreedy));
  if (!options_.greedy_only) {
    PUMICE_TRY(full_sampling_, ops::Sampling::plan(*pipelines_, ops::Sampling::Variant::kFull));
  }

  table_stride_ = blocks_of(options_.context_tokens);
  upload_arena_.emplace(device_, MemoryDomain::kUpload, "block tables",
                        table_bytes + bias_bytes + 512);
  PUMICE_TRY(block_table_, upload_arena_->allocate(table_bytes));
  PUMICE_TRY(logit_bias_, upload_arena_->allocate(bias_bytes));
  device_arena_.emplace(device_, MemoryDomain::kDevice, "sampling", device_bytes);
  PUMICE_TRY(token_counts_, device_arena_->allocate(options_.n_sequences * vocab_bytes));
  PUMICE_TRY(sampling_scratch_, device_arena_->allocate(scratch_bytes));
  PUMICE_TRY(sampled_, device_arena_->allocate(uint64_t{options_.n_sequences} * 4));
  const uint64_t logits_bytes = options_.prompt_logits ? scratch_bytes : 0;
  readback_arena_.emplace(device_, MemoryDomain::kReadback, "readback", logits_bytes + 4096);
  PUMICE_TRY(sampled_readback_, readback_arena_->allocate(sampled_.size_bytes));
  if (options_.prompt_logits) {
    PUMICE_TRY(logits_readback_, readback_arena_->allocate(logits_bytes));
  }
  return {};
}

Result<RequestId> Engine::submit(GenerationRequest request) {
  const ModelConfig& config = model_->config();
  PUMICE_TRY_STATUS(request.sampling.validate(config.n_vocab));
  if (options_.greedy_only && !is_plain_greedy(request.sampling)) {
    return make_error(ErrorCode::kInvalidArgument, "this engine was made for greedy requests only");
  }
  if (request.sampling.logit_bias.size() > kMaxBias) {
    return make_error(ErrorCode::kInvalidArgument, "{} logit biases exceed {}",
                      request.sampling.logit_bias.size(), kMaxBias);
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
  const uint64_t wanted = request.prompt.size() + uint64_t{request.max_new_tokens};
  if (wanted > options_.context_tokens) {
    return make_error(ErrorCode::kDoesNotFit,
                      "{} prompt + {} new tokens exceed the context of {} by {} tokens",
                      request.prompt.size(), request.max_new_tokens, options_.context_tokens,
                      wanted - options_.context_tokens);
  }
  PUMICE_TRY(const RequestId id,
             scheduler_.add(static_cast<uint32_t>(request.prompt.size()), request.max_new_tokens));
  ActiveRequest& active = requests_[id];
  active.tokens = request.prompt;
  active.request = std::move(request);
  return id;
}

/// A request got its blocks: give it a row of the block table and set up its sampling.
Status Engine::start(ActiveRequest& active, const Request& scheduled) {
  const uint32_t slot = free_slots_.back();
  if (has_penalties(active.request.sampling)) {
    std::vector<uint32_t> counts(model_->config().n_vocab, 0);
    for (const TokenId token : active.request.prompt) count_prompt_token(counts, token);
    vk::Uploader uploader(device_);
    const uint64_t bytes = counts.size() * 4;
    PUMICE_TRY_STATUS(uploader.write(token_counts_.subrange(slot * bytes, bytes),
                                     std::span<const uint32_t>(counts)));
  }
  const auto table = StepArgs::host<uint64_t>(block_table_).subspan(size_t{slot} * table_stride_);
  for (size_t i = 0; i < scheduled.blocks.size(); ++i) table[i] = kv_->address(scheduled.blocks[i]);

  const auto& bias = active.request.sampling.logit_bias;
  const auto bias_words =
      StepArgs::host<uint32_t>(logit_bias_).subspan(size_t{slot} * kMaxBias * 2);
  for (size_t i = 0; i < bias.size(); ++i) {
    bias_words[2 * i] = bias[i].first;
    bias_words[2 * i + 1] = std::bit_cast<uint32_t>(bias[i].second);
  }
  active.slot = slot;
  free_slots_.pop_back();
  return {};
}

void Engine::add_logit_row(uint32_t row, const ActiveRequest& active,
                           const StepChunk* sampling_chunk) {
  const uint32_t logit_row = batch_.n_logit_rows++;
  StepArgs::host<uint32_t>(args_->logit_rows)[logit_row] = row;
  ops::SamplingRow& sampling = StepArgs::host<ops::SamplingRow>(args_->sampling)[logit_row];
  sampling = {};
  if (sampling_chunk == nullptr) {
    sampling.skip = 1;
    return;
  }
  const SamplerOptions& options = active.request.sampling;
  const size_t n_generated = active.tokens.size() - active.request.prompt.size();
  sampling = ops::sampling_row(sampler_constants(options), n_generated, *active.slot);
  const uint64_t vocab_bytes = uint64_t{model_->config().n_vocab} * 4;
  if (has_penalties(options))
    sampling.counts = token_counts_.address() + *active.slot * vocab_bytes;
  if (!options.logit_bias.empty()) {
    sampling.bias = logit_bias_.address() + uint64_t{*active.slot} * kMaxBias * 8;
    sampling.n_bias = static_cast<uint32_t>(options.logit_bias.size());
  }
  batch_.samples = true;
  batch_.greedy_only = batch_.greedy_only && is_plain_greedy(options);
}

void Engine::add_chunk(const StepChunk& chunk) {
  const ActiveRequest& active = requests_.at(chunk.request);
  const auto tokens = StepArgs::host<uint32_t>(args_->tokens);
  const auto positions = StepArgs::host<uint32_t>(args_->positions);
  const auto row_seq = StepArgs::host<uint32_t>(args_->row_seq);
  batch_.chunks.push_back({*active.slot, batch_.n_rows, chunk.n_tokens, chunk.first_position});
  batch_.replayable = batch_.replayable && chunk.n_tokens == 1 && !active.request.on_logits;
  for (uint32_t i = 0; i < chunk.n_tokens; ++i) {
    const uint32_t row = batch_.n_rows++;
    const uint32_t position = chunk.first_position + i;
    tokens[row] = active.tokens[position];
    positions[row] = position;
    row_seq[row] = *active.slot;
    const bool samples = chunk.samples && i + 1 == chunk.n_tokens;
    const bool wanted = active.request.on_logits && position < active.request.prompt.size();
    if (wanted) batch_.logits_wanted.push_back({chunk.request, position, batch_.n_logit_rows});
    if (samples || wanted) add_logit_row(row, active, samples ? &chunk : nullptr);
  }
}

void Engine::fill_attention() {
  ops::AttentionPlan& plan = batch_.attention;
  ops::plan_attention(batch_.chunks, attention_options(), plan);
  const auto copy_to = [](const auto& items, const vk::BufferRange& range) {
    using Item = typename std::decay_t<decltype(items)>::value_type;
    const auto target = StepArgs::host<Item>(range);
    PUMICE_CHECK(items.size() <= target.size(), "more attention work than the step has room for");
    std::copy(items.begin(), items.end(), target.begin());
  };
  copy_to(plan.tile_items, args_->tile_items);
  copy_to(plan.row_items, args_->row_items);
  copy_to(plan.reduce_items, args_->reduce_items);
  const auto set_grid = [](const vk::BufferRange& range,
                           const ops::FlashAttention::GridWords& grid) {
    std::copy(grid.begin(), grid.end(), StepArgs::host<uint32_t>(range).begin());
  };
  const ops::FlashAttention& attention = decoder_->attention();
  set_grid(args_->tile_grid, attention.tile_grid_of(static_cast<uint32_t>(plan.tile_items.size())));
  set_grid(args_->row_grid, attention.row_grid_of(static_cast<uint32_t>(plan.row_items.size())));
  set_grid(args_->reduce_grid,
           attention.reduce_grid_of(static_cast<uint32_t>(plan.reduce_items.size())));
}

void Engine::fill_batch(const StepPlan& plan) {
  batch_.n_rows = batch_.n_logit_rows = 0;
  batch_.samples = false;
  batch_.greedy_only = batch_.replayable = true;
  batch_.chunks.clear();
  batch_.logits_wanted.clear();
  for (const StepChunk& chunk : plan.chunks) add_chunk(chunk);
  fill_attention();
}

Result<vk::RecordedWork> Engine::record_batch() const {
  vk::RecorderOptions options = recorder_options_;
  options.timestamps = options_.profile;
  vk::Recorder recorder(device_, options);
  decoder_->record(recorder, {.n_rows = batch_.n_rows,
                              .n_logit_rows = batch_.n_logit_rows,
                              .tokens = args_->tokens,
                              .sampled = sampled_,
                              .positions = args_->positions,
                              .row_seq = args_->row_seq,
                              .logit_rows = args_->logit_rows,
                              .block_table = block_table_,
                              .table_stride = table_stride_,
                              .kv = kv_->range(),
                              .has_tiles = !batch_.attention.tile_items.empty(),
                              .has_rows = !batch_.attention.row_items.empty(),
                              .has_reduce = !batch_.attention.reduce_items.empty(),
                              .tile_items = args_->tile_items,
                              .row_items = args_->row_items,
                              .reduce_items = args_->reduce_items,
                              .tile_grid = args_->tile_grid,
                              .row_grid = args_->row_grid,
                              .reduce_grid = args_->reduce_grid,
                              .attention = &batch_.attention});
  if (!batch_.logits_wanted.empty()) {
    const uint64_t bytes = uint64_t{batch_.n_logit_rows} * model_->config().n_vocab * 4;
    recorder.copy(decoder_->logits().subrange(0, bytes), logits_readback_);
  }
  if (batch_.samples) {
    const ops::Sampling& sampling = batch_.greedy_only ? greedy_sampling_ : full_sampling_;
    sampling.record(recorder, {.logits = decoder_->logits(),
                               .rows = args_->sampling,
                               .sampled = sampled_,
                               .scratch = sampling_scratch_,
                               .counts = token_counts_,
                               .tables = logit_bias_,
                               .n_rows = batch_.n_logit_rows,
                               .n_vocab = model_->config().n_vocab});
    recorder.copy(sampled_, sampled_readback_);
  }
  return recorder.finish();
}

Status Engine::run_batch() {
  const auto run = [&](const vk::RecordedWork& work) -> Status {
    PUMICE_TRY_STATUS(submitter_.run(work));
    if (options_.profile) PUMICE_TRY_STATUS(profiler_.add(work));
    return {};
  };
  const ReplayKey key{batch_.n_rows, batch_.n_logit_rows, !batch_.attention.reduce_items.empty(),
                      batch_.greedy_only};
  if (batch_.replayable && batch_.samples) {
    if (const auto known = replays_.find(key); known != replays_.end()) return run(known->second);
  }
  PUMICE_TRY(vk::RecordedWork work, record_batch());
  for (const vk::CommandInfo& command : work.commands()) variants_.emplace(command.label);
  last_barrier_count_ = work.barrier_count();
  PUMICE_TRY_STATUS(run(work));
  if (batch_.replayable && batch_.samples) replays_.emplace(key, std::move(work));
  return {};
}

void Engine::deliver_logits() {
  const uint32_t n_vocab = model_->config().n_vocab;
  for (const Batch::LogitsWanted& wanted : batch_.logits_wanted) {
    const auto all = StepArgs::host<float>(logits_readback_);
    requests_.at(wanted.request)
        .request.on_logits(wanted.position,
                           all.subspan(size_t{wanted.logit_row} * n_vocab, n_vocab));
  }
}

Result<std::vector<StepEvent>> Engine::step() {
  const StepPlan plan = scheduler_.plan_step();
  if (plan.empty()) return std::vector<StepEvent>{};
  for (const StepChunk& chunk : plan.chunks) {
    ActiveRequest& active = requests_.at(chunk.request);
    if (active.slot) continue;
    PUMICE_TRY_STATUS(start(active, scheduler_.request(chunk.request)));
  }
  fill_batch(plan);
  PUMICE_TRY_STATUS(run_batch());
  deliver_logits();
  return commit(plan);
}

std::vector<StepEvent> Engine::commit(const StepPlan& plan) {
  const auto sampled = StepArgs::host<uint32_t>(sampled_readback_);
  scheduler_.commit(plan);
  std::vector<StepEvent> events;
  for (const StepChunk& chunk : plan.chunks) {
    ActiveRequest& active = requests_.at(chunk.request);
    StepEvent event{.request = chunk.request,
                    .computed_tokens = chunk.first_position + chunk.n_tokens};
    if (chunk.samples) {
      event.token = sampled[*active.slot];
      active.tokens.push_back(*event.token);
    }
    event.finished = scheduler_.request(chunk.request).state == RequestState::kFinished;
    if (event.finished) release(chunk.request);
    events.push_back(event);
  }
  return events;
}

void Engine::cancel(RequestId id) {
  if (requests_.find(id) == requests_.end()) return;
  scheduler_.finish(id, RequestState::kCancelled);
  release(id);
}

void Engine::release(RequestId id) {
  const auto it = requests_.find(id);
  if (it->second.slot) free_slots_.push_back(*it->second.slot);
  requests_.erase(it);
  scheduler_.remove(id);
}

void Engine::set_recorder_options(const vk::RecorderOptions& options) {
  recorder_options_ = options;
  replays_.clear();
}

}  // namespace pumice
