#include "engine/device_state.hpp"

#include <fmt/ranges.h>
#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <string>
#include <utility>

#include "engine/engine_limits.hpp"
#include "engine/memory_plan.hpp"

namespace pumice {
namespace {

constexpr uint64_t kKvLayoutVersion = 2;  // of KvLayout's arrangement, for prompt cache files

/// What cached KV bytes depend on besides tokens.
ModelFingerprint cache_fingerprint(const Model& model, const StateLayout& layout,
                                   const Decoder& decoder) {
  std::string facts =
      fmt::format("{:x} {:x} {}", model.fingerprint[0], model.fingerprint[1], decoder.arithmetic());
  if (layout.blocks_per_page() > 1) facts += fmt::format(" blocks of {}", layout.block_tokens);
  for (const StateLayout::Kind& kind : layout.kinds) {
    if (kind.recurrent()) {
      facts += fmt::format(" {} {}", kind.group, fmt::join(kind.state_floats, "+"));
      continue;
    }
    facts += fmt::format(" {} {} {} {} {}{}", kind.group, kind.layout.type.name(),
                         kind.layout.n_layers, kind.layout.n_kv_heads, kind.layout.head_dim,
                         kind.layout.has_values ? "" : " keys");
    if (kind.layout.v_dim != 0) facts += fmt::format(" values of {}", kind.layout.v_dim);
  }
  const XXH128_hash_t hash = XXH3_128bits(facts.data(), facts.size());
  return {hash.low64, hash.high64};
}

}  // namespace

Result<std::unique_ptr<DeviceState>> DeviceState::create(
    std::shared_ptr<vk::PipelineLibrary> pipelines, std::shared_ptr<const Model> model,
    const EngineOptions& options, const vk::PipelineLibrary::Progress& progress,
    std::optional<uint32_t> kv_blocks) {
  if (options.profile && pipelines->device()->plan().timestamp_valid_bits == 0) {
    return make_error(ErrorCode::kInvalidArgument,
                      "kernels cannot be timed: this device has no timestamps");
  }
  std::unique_ptr<DeviceState> state(
      new DeviceState(std::move(pipelines), std::move(model), options));
  PUMICE_TRY_STATUS(state->plan_memory(kv_blocks));
  PUMICE_TRY_STATUS(state->allocate());
  if (options.prewarm) {
    PUMICE_TRY_STATUS(state->prewarm(std::numeric_limits<double>::infinity(), progress));
  }
  return state;
}

DeviceState::DeviceState(std::shared_ptr<vk::PipelineLibrary> pipelines,
                         std::shared_ptr<const Model> model, const EngineOptions& options)
    : pipelines_(std::move(pipelines)),
      device_(pipelines_->device()),
      model_(std::move(model)),
      options_(options),
      slots_(options.n_sequences * Scheduler::kMaxOutstanding, SlotState::kUnknown) {}

DeviceState::~DeviceState() {
  device_->wait_idle();
  placement().forget(this);
}

Result<vk::PipelineLibrary::Readiness> DeviceState::prewarm(
    double budget_s, const vk::PipelineLibrary::Progress& progress) {
  if (warm_) return readiness_;
  PUMICE_TRY(readiness_, pipelines_->compile_for(budget_s, progress));
  if (readiness_.complete()) {
    pipelines_->save();
    warm_ = made();
  }
  return readiness_;
}

DeviceState::Made DeviceState::made() const {
  return {.pipelines = pipelines_->compiled_count(), .allocations = device_->n_allocated()};
}

uint64_t DeviceState::pipelines_compiled_after_prewarm() const {
  return warm_ ? made().pipelines - warm_->pipelines : 0;
}

uint64_t DeviceState::allocations_after_prewarm() const {
  return warm_ ? made().allocations - warm_->allocations : 0;
}

Status DeviceState::plan_memory(std::optional<uint32_t> kv_blocks) {
  PUMICE_TRY(const MemoryPlanner planner,
             MemoryPlanner::of_loaded(*model_, *device_, options_.fusion));
  PUMICE_TRY(sizes_, planner.sizes(options_));
  first_kv_blocks_ = kv_blocks.value_or(sizes_.n_pages);
  const auto check = [&] {
    EngineOptions now = options_;
    if (kv_blocks) {
      const auto n_kinds = static_cast<uint32_t>(sizes_.kinds.size());
      now.kv_blocks = (first_kv_blocks_ + n_kinds - 1) / n_kinds * sizes_.layout.blocks_per_page();
    }
    return planner.check(now);
  };
  const Status fits = check();
  if (fits.ok() || !kv_blocks || !options_.yields_memory) return fits;
  // The driver may grant less by now; what it grants besides is taken later.
  const uint64_t n_pages = std::min<uint64_t>(first_kv_blocks_, pages_to_go_on());
  first_kv_blocks_ = static_cast<uint32_t>(n_pages);
  return check();
}

/// Of one sequence of all positions.
uint64_t DeviceState::pages_to_go_on() const {
  const PageKinds kinds(sizes_.kinds, sizes_.layout.block_tokens, 0);
  return kinds.pages_for(options_.context_tokens, options_.token_budget);
}

Status DeviceState::allocate() {
  weights_ = placement().now();
  PUMICE_TRY(decoder_,
             Decoder::plan(device_, *pipelines_, *model_->plan, *weights_, options_.kv_type,
                           options_.math, options_.fusion, sizes_.limits));
  PUMICE_TRY(kv_,
             KvMemory::create(device_, sizes_.layout.page_bytes, sizes_.n_pages, first_kv_blocks_));
  for (const vk::ArenaLayout& layout : buffers_.lay_out(sizes_, options_, program().n_vocab)) {
    PUMICE_TRY(vk::Arena arena, layout.allocate(device_));
    arenas_.push_back(std::move(arena));
  }
  page_store_.emplace(device_, *kv_, buffers_.staged_pages);
  using Sampling = ops::Sampling;
  const Sampling::Tuning tuning = Sampling::tuned(*pipelines_, program().n_vocab);
  PUMICE_TRY(greedy_sampling_, Sampling::plan(*pipelines_, Sampling::Variant::kGreedy, tuning));
  if (!options_.greedy_only) {
    PUMICE_TRY(full_sampling_, Sampling::plan(*pipelines_, Sampling::Variant::kFull, tuning));
    PUMICE_TRY(log_probs_op_, ops::LogProbs::plan(*pipelines_));
  }
  return {};
}

KvCacheOptions DeviceState::cache_options() const {
  return {.n_pages = sizes_.n_pages,
          .block_tokens = sizes_.layout.block_tokens,
          .kinds = sizes_.kinds,
          .reuse = options_.prefix_cache,
          .model = cache_fingerprint(*model_, sizes_.layout, *decoder_),
          .layout = kKvLayoutVersion,
          .page_bytes = sizes_.layout.page_bytes,
          .host_bytes = options_.cache_host_bytes,
          .host_allocator = options_.host_allocator};
}

// ---- memory

/// What the device's ledger has besides this KV memory and weights that can move.
uint64_t DeviceState::bytes_that_stay() const {
  const uint64_t movable = placement().can_move() ? placement().device_bytes() : 0;
  return device_->ledger().budgeted_bytes() - kv_->bytes_with(kv_->n_pages()) - movable;
}

uint32_t DeviceState::fewest_kv_blocks() const {
  const uint32_t block_tokens = sizes_.layout.block_tokens;
  const PageKinds kinds(sizes_.kinds, block_tokens, 0);
  return std::max(kv_->whole_slabs_for(1), kv_->whole_slabs_for(kinds.pages_for(block_tokens, 1)));
}

DeviceState::MemoryTarget DeviceState::least_memory() const {
  const WeightPlacement& placed = placement();
  return {fewest_kv_blocks(), placed.can_move() ? 0 : placed.most_pieces()};
}

Result<DeviceState::MemoryTarget> DeviceState::memory_within(uint64_t budget_bytes) const {
  const WeightPlacement& placed = placement();
  const uint64_t stays = bytes_that_stay();
  const auto needed = [&](const MemoryTarget& target) {
    return stays + kv_->bytes_with(target.kv_blocks) +
           (placed.can_move() ? placed.bytes_of_first(target.weight_pieces) : 0);
  };
  MemoryTarget target = least_memory();
  if (const uint64_t smallest = needed(target); budget_bytes < smallest) {
    return make_error(
        ErrorCode::kDoesNotFit,
        "a memory budget of {} cannot be met; the smallest is {} ({} bytes): {} for {}activations "
        "and tables, which cannot move, and {} for the smallest KV cache",
        memory_text(budget_bytes), memory_text(smallest), smallest, memory_text(stays),
        placed.can_move() ? "" : "weights (this device has no other memory for them), ",
        memory_text(smallest - stays));
  }
  target.weight_pieces = placed.most_pieces();
  while (needed(target) > budget_bytes) --target.weight_pieces;
  const uint32_t fewest = target.kv_blocks;
  target.kv_blocks = kv_->most_pages();
  while (needed(target) > budget_bytes && target.kv_blocks > fewest) {
    target.kv_blocks = kv_->whole_slabs_within(target.kv_blocks - uint64_t{1});
  }
  return target;
}

DeviceState::MemoryTarget DeviceState::memory_to_go_on_within(uint64_t budget_bytes) const {
  const Result<MemoryTarget> within = memory_within(budget_bytes);
  MemoryTarget target = within.ok() ? *within : least_memory();
  target.kv_blocks = std::max(target.kv_blocks, kv_->whole_slabs_for(pages_to_go_on()));
  return target;
}

bool DeviceState::follow_weights() {
  std::shared_ptr<const ModelWeights> now = placement().now();
  if (now == weights_) return false;
  decoder_->use_weights(*now);
  weights_ = std::move(now);
  return true;
}

// ---- slots

vk::BufferRange DeviceState::counts_of(uint32_t slot) const {
  const uint64_t bytes = uint64_t{program().n_vocab} * 4;
  return buffers_.token_counts.subrange(slot * bytes, bytes);
}

void DeviceState::set_up(uint32_t slot, const SlotInput& input) {
  if (input.has_penalties) {
    std::vector<uint32_t> counts(program().n_vocab, 0);
    for (size_t i = 0; i < input.counted.size(); ++i) {
      const TokenId token = input.counted[i];
      i < input.n_prompt ? count_prompt_token(counts, token) : count_output_token(counts, token);
    }
    std::ranges::copy(counts, buffers_.staged_counts[slot].mapped<uint32_t>().begin());
    new_counts_.push_back(slot);
  }
  const auto words =
      buffers_.sampling_tables.mapped<uint32_t>().subspan(size_t{slot} * kMaxLogitBias * 2);
  for (size_t i = 0; i < input.logit_bias.size(); ++i) {
    words[2 * i] = input.logit_bias[i].first;
    words[2 * i + 1] = std::bit_cast<uint32_t>(input.logit_bias[i].second);
  }
  slots_[slot] = SlotState::kWritten;
}

void DeviceState::commit_slots() {
  std::ranges::replace(slots_, SlotState::kWritten, SlotState::kReady);
  new_counts_.clear();
}

void DeviceState::drop_slots() {
  std::ranges::replace(slots_, SlotState::kWritten, SlotState::kUnknown);
  new_counts_.clear();
}

void DeviceState::forget_all() {
  std::ranges::fill(slots_, SlotState::kUnknown);
  new_counts_.clear();
}

void DeviceState::write_pages(uint32_t slot, uint32_t kind, const TableInput& table) {
  const auto entries = buffers_.block_tables[kind].mapped<uint64_t>().subspan(
      size_t{slot} * sizes_.table_stride, sizes_.table_stride);
  const StateLayout& layout = sizes_.layout;
  const size_t n = layout.blocks_per_page();
  for (size_t i = 0; i < table.blocks.size(); ++i) {
    if (table.blocks[i] == kNoPage) continue;
    const size_t first = (table.first + i) * n;
    for (size_t j = first; j < std::min(first + n, entries.size()); ++j) {
      entries[j] = kv_->address(table.blocks[i]) + (j - first) * layout.kinds[kind].bytes;
    }
  }
}

// ---- steps

void DeviceState::set_state(uint32_t ring, uint32_t chunk, uint32_t kind, const StateInput& state) {
  args(ring).set_state(chunk, kind, state.before == kNoPage ? 0 : kv_->address(state.before),
                       kv_->address(state.after));
}

void DeviceState::set_sampling(uint32_t ring, uint32_t logit_row, const RowSampling& sampling,
                               uint64_t output_index, uint32_t slot) {
  ops::SamplingRow row =
      ops::sampling_row(sampling.constants, output_index, sampled_place(ring, logit_row));
  if (sampling.has_penalties) row.counts = counts_of(slot).address();
  if (sampling.n_bias > 0) {
    row.bias = buffers_.sampling_tables.address() + slot * kLogitBiasBytes;
    row.n_bias = sampling.n_bias;
  }
  if (sampling.has_mask) row.mask = mask_of(ring, logit_row).address();
  buffers_.rings[ring].sampling.mapped<ops::SamplingRow>()[logit_row] = row;
}

void DeviceState::set_no_sampling(uint32_t ring, uint32_t logit_row) {
  buffers_.rings[ring].sampling.mapped<ops::SamplingRow>()[logit_row] = {.skip = 1};
}

vk::BufferRange DeviceState::mask_of(uint32_t ring, uint32_t logit_row) const {
  const uint64_t bytes = uint64_t{mask_words(program().n_vocab)} * sizeof(uint32_t);
  return buffers_.sampling_tables.subrange(
      sizes_.n_slots * kLogitBiasBytes + sampled_place(ring, logit_row) * bytes, bytes);
}

void DeviceState::write_mask(uint32_t ring, uint32_t logit_row, std::span<const uint32_t> mask) {
  const auto words = mask_of(ring, logit_row).mapped<uint32_t>();
  std::ranges::fill(std::ranges::copy(mask, words.begin()).out, words.end(), 0);
}

void DeviceState::set_log_probs(uint32_t ring, uint32_t logit_row, uint32_t n_best,
                                std::optional<TokenId> token) {
  const uint32_t chosen = ops::LogProbs::kFromSampled | sampled_place(ring, logit_row);
  buffers_.rings[ring].log_prob_rows.mapped<ops::LogProbsRow>()[logit_row] = {
      .token = token.value_or(chosen), .n_results = 1 + n_best};
}

void DeviceState::set_no_log_probs(uint32_t ring, uint32_t logit_row) {
  const vk::BufferRange& rows = buffers_.rings[ring].log_prob_rows;
  if (!rows.empty()) rows.mapped<ops::LogProbsRow>()[logit_row] = {.n_results = 0};
}

void DeviceState::follow_draft(uint32_t ring, uint32_t first, std::span<const TokenId> draft) {
  const auto rows = buffers_.rings[ring].sampling.mapped<ops::SamplingRow>().subspan(first);
  rows[0].n_followers = static_cast<uint32_t>(draft.size());
  for (size_t i = 0; i < draft.size(); ++i) {
    rows[i].drafted = draft[i];
    rows[i + 1].skip = 1;
  }
}

Result<std::shared_ptr<const vk::RecordedWork>> DeviceState::record_prologue(
    std::span<const PageCopy> copies) {
  if (new_counts_.empty() && copies.empty()) return std::shared_ptr<const vk::RecordedWork>();
  vk::Recorder recorder(device_);
  for (const uint32_t slot : new_counts_)
    recorder.copy(buffers_.staged_counts[slot], counts_of(slot));
  page_store_->record_copies(recorder, copies);
  PUMICE_TRY(vk::RecordedWork work, recorder.finish());
  return std::make_shared<const vk::RecordedWork>(std::move(work));
}

Result<DeviceState::Recording> DeviceState::record(uint32_t ring, const StepWork& step,
                                                   const vk::RecorderOptions& options,
                                                   bool in_one) const {
  vk::Recorder recorder(device_, options);
  const EngineBuffers::Ring& memory = buffers_.rings[ring];
  const uint64_t row_bytes = memory.args.n_rows * sizeof(float);
  if (const uint64_t bytes = row_bytes * sizes_.given_width; bytes != 0) {
    recorder.copy(memory.given.subrange(0, bytes), *decoder_->given());
  }
  decoder_->record(recorder, memory.args,
                   {.sampled = buffers_.sampled,
                    .block_tables = buffers_.block_tables,
                    .table_stride = sizes_.table_stride,
                    .kv = kv_->range()});
  if (const uint64_t bytes = row_bytes * sizes_.hidden_width; bytes != 0) {
    recorder.copy(decoder_->hidden()->subrange(0, bytes), memory.hidden_readback);
  }
  Recording recording;
  const auto finish = [](vk::Recorder& from,
                         std::shared_ptr<const vk::RecordedWork>& work) -> Status {
    PUMICE_TRY(vk::RecordedWork recorded, from.finish());
    work = std::make_shared<const vk::RecordedWork>(std::move(recorded));
    return {};
  };
  const bool uses_logits = step.samples || step.log_probs || step.reads_logits;
  if (uses_logits && in_one) record_sampling(ring, step, recorder);
  PUMICE_TRY_STATUS(finish(recorder, recording.forward));
  if (!uses_logits || in_one) return recording;
  vk::RecorderOptions behind = options;
  behind.drop_barrier -= recording.forward->barrier_count();  // counted through both
  vk::Recorder sampling(device_, behind);
  record_sampling(ring, step, sampling);
  PUMICE_TRY_STATUS(finish(sampling, recording.sampling));
  return recording;
}

void DeviceState::record_sampling(uint32_t ring, const StepWork& step,
                                  vk::Recorder& recorder) const {
  const EngineBuffers::Ring& memory = buffers_.rings[ring];
  const uint64_t row_bytes = uint64_t{program().n_vocab} * 4;
  uint32_t n_rows = memory.args.n_logit_rows;
  recorder.enter({"sampling"});
  for (const uint32_t row : step.copied_rows) {
    const vk::BufferRange& logits = decoder_->logits();
    recorder.copy(logits.subrange(row * row_bytes, row_bytes),
                  logits.subrange(n_rows++ * row_bytes, row_bytes));
  }
  if (step.reads_logits) {
    const uint64_t bytes = n_rows * row_bytes;
    recorder.copy(decoder_->logits().subrange(0, bytes), memory.logits_readback);
  }
  if (step.samples) {
    const ops::Sampling& sampling = step.greedy_only ? greedy_sampling_ : full_sampling_;
    sampling.record(recorder, {.logits = decoder_->logits(),
                               .rows = memory.sampling,
                               .sampled = buffers_.sampled,
                               .scratch = buffers_.sampling_scratch,
                               .counts = buffers_.token_counts,
                               .tables = buffers_.sampling_tables,
                               .n_rows = n_rows,
                               .n_vocab = program().n_vocab});
    const uint64_t first = uint64_t{sampled_place(ring, 0)} * 4;
    recorder.copy(buffers_.sampled.subrange(first, uint64_t{n_rows} * 4), memory.sampled_readback);
  }
  if (!step.log_probs) return;
  log_probs_op_.record(recorder, {.logits = decoder_->logits(),
                                  .rows = memory.log_prob_rows,
                                  .sampled = buffers_.sampled,
                                  .results = buffers_.log_probs,
                                  .n_rows = n_rows,
                                  .n_vocab = program().n_vocab,
                                  .stride = kLogProbsStride});
  const uint64_t bytes = uint64_t{n_rows} * kLogProbsStride * sizeof(ops::LogProbs::Entry);
  recorder.copy(buffers_.log_probs.subrange(0, bytes), memory.log_probs_readback);
}

TokenId DeviceState::sampled(uint32_t ring, uint32_t logit_row) const {
  return buffers_.rings[ring].sampled_readback.mapped<uint32_t>()[logit_row];
}

TokenLogProbs DeviceState::log_probs(uint32_t ring, uint32_t logit_row, uint32_t n_best) const {
  const auto entries =
      buffers_.rings[ring].log_probs_readback.mapped<ops::LogProbs::Entry>().subspan(
          size_t{logit_row} * kLogProbsStride, 1 + n_best);
  TokenLogProbs result{.log_prob = entries[0].log_prob};
  for (const ops::LogProbs::Entry& entry : entries.subspan(1)) {
    result.best.push_back({entry.token, entry.log_prob});
  }
  return result;
}

std::span<const float> DeviceState::logits(uint32_t ring, uint32_t logit_row) const {
  const size_t n_vocab = program().n_vocab;
  return buffers_.rings[ring].logits_readback.mapped<float>().subspan(logit_row * n_vocab, n_vocab);
}

std::span<float> DeviceState::given_rows(uint32_t ring) const {
  const vk::BufferRange& given = buffers_.rings[ring].given;
  return given.empty() ? std::span<float>() : given.mapped<float>();
}

std::span<const float> DeviceState::hidden(uint32_t ring, uint32_t row) const {
  const size_t width = sizes_.hidden_width;
  return buffers_.rings[ring].hidden_readback.mapped<float>().subspan(row * width, width);
}

}  // namespace pumice
