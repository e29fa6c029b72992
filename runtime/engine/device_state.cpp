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
  for (const StateLayout::Page& page : layout.pages) {
    if (page.recurrent()) {
      facts += fmt::format(" {} {}", page.group, fmt::join(page.state_floats, "+"));
      continue;
    }
    facts += fmt::format(" {} {} {} {} {}{}", page.group, page.layout.type.name(),
                         page.layout.n_layers, page.layout.n_kv_heads, page.layout.head_dim,
                         page.layout.has_values ? "" : " keys");
    if (page.layout.v_dim != 0) facts += fmt::format(" values of {}", page.layout.v_dim);
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
  EngineOptions now = options_;
  if (kv_blocks) {
    const auto n_groups = static_cast<uint32_t>(sizes_.groups.size());
    now.kv_blocks = (*kv_blocks + n_groups - 1) / n_groups * sizes_.layout.blocks_per_page();
  }
  return planner.check(now);
}

Status DeviceState::allocate() {
  weights_ = placement().now();
  PUMICE_TRY(decoder_,
             Decoder::plan(device_, *pipelines_, *model_->plan, *weights_, options_.kv_type,
                           options_.math, options_.fusion, sizes_.limits));
  PUMICE_TRY(kv_,
             KvMemory::create(device_, sizes_.layout.page_bytes, sizes_.n_pages, first_kv_blocks_));
  block_store_.emplace(device_, *kv_);
  PUMICE_TRY_STATUS(block_store_->allocate_staging(sizes_.transfer_ranges()));
  PUMICE_TRY(greedy_sampling_, ops::Sampling::plan(*pipelines_, ops::Sampling::Variant::kGreedy));
  if (!options_.greedy_only) {
    PUMICE_TRY(full_sampling_, ops::Sampling::plan(*pipelines_, ops::Sampling::Variant::kFull));
  }
  device_arena_.emplace(device_, vk::MemoryDomain::kDevice, "sampling",
                        expected_bytes(sizes_.device_ranges()));
  PUMICE_TRY(token_counts_, device_arena_->allocate(sizes_.counts_bytes));
  PUMICE_TRY(sampling_scratch_, device_arena_->allocate(sizes_.scratch_bytes));
  PUMICE_TRY(sampled_, device_arena_->allocate(sizes_.sampled_bytes));
  PUMICE_TRY_STATUS(allocate_tables());
  return allocate_rings();
}

Status DeviceState::allocate_tables() {
  upload_arena_.emplace(device_, vk::MemoryDomain::kUpload, "block tables",
                        expected_bytes(sizes_.upload_ranges()));
  for (size_t i = 0; i < sizes_.groups.size(); ++i) {
    PUMICE_TRY(block_tables_.emplace_back(), upload_arena_->allocate(sizes_.table_bytes));
  }
  PUMICE_TRY(logit_bias_, upload_arena_->allocate(sizes_.bias_bytes));
  const std::vector<uint64_t> count_ranges = sizes_.count_ranges();
  counts_arena_.emplace(device_, vk::MemoryDomain::kUpload, "token counts",
                        expected_bytes(count_ranges));
  for (const uint64_t bytes : count_ranges) {
    PUMICE_TRY(staged_counts_.emplace_back(), counts_arena_->allocate(bytes));
  }
  return {};
}

Status DeviceState::allocate_rings() {
  readback_arena_.emplace(device_, vk::MemoryDomain::kReadback, "readback",
                          expected_bytes(sizes_.readback_ranges()));
  for (uint32_t i = 0; i < sizes_.n_rings; ++i) {
    PUMICE_TRY(StepArgs args, StepArgs::create(device_, sizes_.step));
    Ring ring{
        .args = std::move(args), .sampling = {}, .sampled_readback = {}, .logits_readback = {}};
    PUMICE_TRY(ring.sampling, upload_arena_->allocate(sizes_.sampling_bytes));
    PUMICE_TRY(ring.sampled_readback, readback_arena_->allocate(sampled_.size_bytes));
    if (options_.prompt_logits) {
      PUMICE_TRY(ring.logits_readback, readback_arena_->allocate(sizes_.logits_bytes));
    }
    rings_.push_back(std::move(ring));
  }
  return {};
}

KvCacheOptions DeviceState::cache_options() const {
  return {.n_blocks = sizes_.n_pages,
          .block_tokens = sizes_.layout.block_tokens,
          .groups = sizes_.groups,
          .reuse = options_.prefix_cache,
          .model = cache_fingerprint(*model_, sizes_.layout, *decoder_),
          .layout = kKvLayoutVersion,
          .block_bytes = sizes_.layout.page_bytes,
          .host_bytes = options_.cache_host_bytes,
          .host_allocator = options_.host_allocator};
}

// ---- memory

/// What the device's ledger has besides this KV memory and weights that can move.
uint64_t DeviceState::bytes_that_stay() const {
  const uint64_t movable = placement().can_move() ? placement().device_bytes() : 0;
  return device_->ledger().budgeted_bytes() - kv_->bytes_with(kv_->n_blocks()) - movable;
}

uint32_t DeviceState::fewest_kv_blocks() const {
  const uint32_t block_tokens = sizes_.layout.block_tokens;
  const CacheGroups groups(sizes_.groups, block_tokens, 0);
  return std::max(kv_->whole_slabs_for(1), kv_->whole_slabs_for(groups.pages_for(block_tokens, 1)));
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
  target.kv_blocks = kv_->most_blocks();
  while (needed(target) > budget_bytes && target.kv_blocks > fewest) {
    target.kv_blocks = kv_->whole_slabs_within(target.kv_blocks - uint64_t{1});
  }
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
  return token_counts_.subrange(slot * bytes, bytes);
}

void DeviceState::set_up(uint32_t slot, const SamplerOptions& sampling,
                         std::span<const TokenId> tokens, size_t n_prompt) {
  if (has_penalties(sampling)) {
    std::vector<uint32_t> counts(program().n_vocab, 0);
    for (size_t i = 0; i < tokens.size(); ++i) {
      i < n_prompt ? count_prompt_token(counts, tokens[i]) : count_output_token(counts, tokens[i]);
    }
    std::ranges::copy(counts, staged_counts_[slot].mapped<uint32_t>().begin());
    new_counts_.push_back(slot);
  }
  const auto words = logit_bias_.mapped<uint32_t>().subspan(size_t{slot} * kMaxLogitBias * 2);
  for (size_t i = 0; i < sampling.logit_bias.size(); ++i) {
    words[2 * i] = sampling.logit_bias[i].first;
    words[2 * i + 1] = std::bit_cast<uint32_t>(sampling.logit_bias[i].second);
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

void DeviceState::write_blocks(uint32_t slot, uint32_t page, std::span<const BlockId> blocks,
                               uint32_t first, uint32_t end) {
  const auto table = block_tables_[page].mapped<uint64_t>().subspan(
      size_t{slot} * sizes_.table_stride, sizes_.table_stride);
  const StateLayout& layout = sizes_.layout;
  const size_t n = layout.blocks_per_page();
  for (size_t i = first; i < std::min<size_t>(end, blocks.size()); ++i) {
    if (blocks[i] == kNoBlock) continue;
    for (size_t j = i * n; j < std::min((i + 1) * n, table.size()); ++j) {
      table[j] = kv_->address(blocks[i]) + (j - i * n) * layout.pages[page].bytes;
    }
  }
}

// ---- steps

void DeviceState::set_state(uint32_t ring, uint32_t chunk, uint32_t page, BlockId before,
                            BlockId after) {
  args(ring).set_state(chunk, page, before == kNoBlock ? 0 : kv_->address(before),
                       kv_->address(after));
}

void DeviceState::set_sampling(uint32_t ring, uint32_t logit_row,
                               const std::optional<RowSampling>& sampling) {
  ops::SamplingRow row{};
  if (!sampling) {
    row.skip = 1;
  } else {
    const SamplerOptions& options = *sampling->options;
    row = ops::sampling_row(sampler_constants(options), sampling->output_index, sampling->slot);
    if (has_penalties(options)) row.counts = counts_of(sampling->slot).address();
    if (!options.logit_bias.empty()) {
      row.bias = logit_bias_.address() + uint64_t{sampling->slot} * kMaxLogitBias * 8;
      row.n_bias = static_cast<uint32_t>(options.logit_bias.size());
    }
  }
  rings_[ring].sampling.mapped<ops::SamplingRow>()[logit_row] = row;
}

Result<std::shared_ptr<const vk::RecordedWork>> DeviceState::record_prologue(
    std::span<const BlockCopy> copies) {
  if (new_counts_.empty() && copies.empty()) return std::shared_ptr<const vk::RecordedWork>();
  vk::Recorder recorder(device_);
  for (const uint32_t slot : new_counts_) recorder.copy(staged_counts_[slot], counts_of(slot));
  block_store_->record_copies(recorder, copies);
  PUMICE_TRY(vk::RecordedWork work, recorder.finish());
  return std::make_shared<const vk::RecordedWork>(std::move(work));
}

Result<vk::RecordedWork> DeviceState::record(uint32_t ring, const StepWork& step,
                                             const vk::RecorderOptions& options) const {
  const Ring& memory = rings_[ring];
  vk::Recorder recorder(device_, options);
  decoder_->record(recorder, memory.args,
                   {.sampled = sampled_,
                    .block_tables = block_tables_,
                    .table_stride = sizes_.table_stride,
                    .kv = kv_->range()});
  recorder.enter({"sampling"});
  if (step.reads_logits) {
    const uint64_t bytes = uint64_t{memory.args.n_logit_rows} * program().n_vocab * 4;
    recorder.copy(decoder_->logits().subrange(0, bytes), memory.logits_readback);
  }
  if (step.samples) {
    const ops::Sampling& sampling = step.greedy_only ? greedy_sampling_ : full_sampling_;
    sampling.record(recorder, {.logits = decoder_->logits(),
                               .rows = memory.sampling,
                               .sampled = sampled_,
                               .scratch = sampling_scratch_,
                               .counts = token_counts_,
                               .tables = logit_bias_,
                               .n_rows = memory.args.n_logit_rows,
                               .n_vocab = program().n_vocab});
    recorder.copy(sampled_, memory.sampled_readback);
  }
  return recorder.finish();
}

TokenId DeviceState::sampled(uint32_t ring, uint32_t slot) const {
  return rings_[ring].sampled_readback.mapped<uint32_t>()[slot];
}

std::span<const float> DeviceState::logits(uint32_t ring, uint32_t logit_row) const {
  const size_t n_vocab = program().n_vocab;
  return rings_[ring].logits_readback.mapped<float>().subspan(logit_row * n_vocab, n_vocab);
}

}  // namespace pumice
