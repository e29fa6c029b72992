// Engine: from a plan to recorded work.
#include <algorithm>
#include <bit>

#include "engine/engine.hpp"
#include "engine/engine_limits.hpp"
#include "vk/transfer.hpp"

namespace pumice {

ops::AttentionPlanOptions Engine::attention_options(uint32_t tile_tokens, uint32_t window) const {
  ops::AttentionPlanOptions plan{
      .tile_tokens = tile_tokens, .split_tokens = options_.split_tokens, .window = window};
  if (options_.invariant) plan.max_split_rows = UINT32_MAX;
  return plan;
}

/// A request got its blocks: give it a row of the block table and set up its sampling.
Status Engine::start(ActiveRequest& active, const Request& scheduled) {
  PUMICE_CHECK(!free_slots_.empty(), "more sequences under way than there are slots");
  const uint32_t slot = free_slots_.back();
  if (has_penalties(active.request.sampling)) {
    std::vector<uint32_t> counts(model_->program.n_vocab, 0);
    for (size_t i = 0; i < active.tokens.size(); ++i) {
      i < active.n_prompt ? count_prompt_token(counts, active.tokens[i])
                          : count_output_token(counts, active.tokens[i]);
    }
    vk::Uploader uploader(device_);
    const uint64_t bytes = counts.size() * 4;
    PUMICE_TRY_STATUS(uploader.write(token_counts_.subrange(slot * bytes, bytes),
                                     std::span<const uint32_t>(counts)));
  }
  const auto& bias = active.request.sampling.logit_bias;
  const auto bias_words =
      StepArgs::host<uint32_t>(logit_bias_).subspan(size_t{slot} * kMaxLogitBias * 2);
  for (size_t i = 0; i < bias.size(); ++i) {
    bias_words[2 * i] = bias[i].first;
    bias_words[2 * i + 1] = std::bit_cast<uint32_t>(bias[i].second);
  }
  free_slots_.pop_back();
  active.slot = slot;
  active.epoch = scheduled.epoch;
  write_block_tables(slot, scheduled.id, 0, table_stride_);
  return {};
}

/// Entries [first, end) as far as there are blocks. Behind a window they stay what they are: no
/// kernel reads them.
void Engine::write_block_tables(uint32_t slot, RequestId id, uint32_t first, uint32_t end) {
  for (uint32_t group = 0; group < block_tables_.size(); ++group) {
    const auto blocks = scheduler_->blocks(id, group);
    const auto table =
        StepArgs::host<uint64_t>(block_tables_[group]).subspan(size_t{slot} * table_stride_);
    for (size_t i = first; i < std::min<size_t>(end, blocks.size()); ++i) {
      if (blocks[i] != kNoBlock) table[i] = kv_->address(blocks[i]);
    }
  }
}

void Engine::add_logit_row(Flight& flight, uint32_t row, const ActiveRequest& active,
                           const StepChunk* sampling_chunk) {
  const StepArgs& args = rings_[flight.ring].args;
  const uint32_t logit_row = flight.n_logit_rows++;
  StepArgs::host<uint32_t>(args.logit_rows)[logit_row] = row;
  ops::SamplingRow& sampling = StepArgs::host<ops::SamplingRow>(args.sampling)[logit_row];
  sampling = {};
  if (sampling_chunk == nullptr) {
    sampling.skip = 1;
    return;
  }
  const SamplerOptions& options = active.request.sampling;
  // Tokens still being sampled by the step before count as generated.
  const size_t next = sampling_chunk->first_position + sampling_chunk->n_tokens;
  const size_t token_index = active.n_generated + (next - active.tokens.size());
  sampling = ops::sampling_row(sampler_constants(options), token_index, *active.slot);
  const uint64_t vocab_bytes = uint64_t{model_->program.n_vocab} * 4;
  if (has_penalties(options))
    sampling.counts = token_counts_.address() + *active.slot * vocab_bytes;
  if (!options.logit_bias.empty()) {
    sampling.bias = logit_bias_.address() + uint64_t{*active.slot} * kMaxLogitBias * 8;
    sampling.n_bias = static_cast<uint32_t>(options.logit_bias.size());
  }
  flight.samples = true;
  flight.greedy_only = flight.greedy_only && is_plain_greedy(options);
}

void Engine::add_chunk(Flight& flight, const StepChunk& chunk) {
  const ActiveRequest& active = requests_.at(chunk.request);
  const StepArgs& args = rings_[flight.ring].args;
  const auto tokens = StepArgs::host<uint32_t>(args.tokens);
  const auto positions = StepArgs::host<uint32_t>(args.positions);
  const auto row_seq = StepArgs::host<uint32_t>(args.row_seq);
  flight.chunks.push_back({*active.slot, flight.n_rows, chunk.n_tokens, chunk.first_position});
  flight.slots.push_back(*active.slot);
  flight.replayable = flight.replayable && chunk.n_tokens == 1 && !active.request.on_logits;
  for (uint32_t i = 0; i < chunk.n_tokens; ++i) {
    const uint32_t row = flight.n_rows++;
    const uint32_t position = chunk.first_position + i;
    tokens[row] = position < active.tokens.size() ? active.tokens[position]
                                                  : ops::Embedding::kFromSampled | *active.slot;
    positions[row] = position;
    row_seq[row] = *active.slot;
    const bool samples = chunk.samples && i + 1 == chunk.n_tokens;
    const bool wanted =
        active.request.on_logits && (position < active.n_prompt ||
                                     active.request.logits == GenerationRequest::Logits::kComputed);
    if (wanted) flight.logits_wanted.push_back({chunk.request, position, flight.n_logit_rows});
    if (samples || wanted) add_logit_row(flight, row, active, samples ? &chunk : nullptr);
  }
}

void Engine::fill_attention(Flight& flight, size_t attention_class) {
  const StepArgs::Attention& args = rings_[flight.ring].args.attention[attention_class];
  const ops::FlashAttention& attention = decoder_->attention()[attention_class];
  ops::AttentionPlan& plan = flight.attention[attention_class];
  ops::plan_attention(flight.chunks,
                      attention_options(attention.tile_tokens(),
                                        decoder_->attention_classes()[attention_class].window),
                      plan);
  const auto copy_to = [](const auto& items, const vk::BufferRange& range) {
    using Item = typename std::decay_t<decltype(items)>::value_type;
    const auto target = StepArgs::host<Item>(range);
    PUMICE_CHECK(items.size() <= target.size(), "more attention work than the step has room for");
    std::copy(items.begin(), items.end(), target.begin());
  };
  copy_to(plan.tile_items, args.tile_items);
  copy_to(plan.row_items, args.row_items);
  copy_to(plan.reduce_items, args.reduce_items);
  const auto set_grid = [](const vk::BufferRange& range,
                           const ops::FlashAttention::GridWords& grid) {
    std::copy(grid.begin(), grid.end(), StepArgs::host<uint32_t>(range).begin());
  };
  set_grid(args.tile_grid, attention.tile_grid_of(static_cast<uint32_t>(plan.tile_items.size())));
  set_grid(args.row_grid, attention.row_grid_of(static_cast<uint32_t>(plan.row_items.size())));
  set_grid(args.reduce_grid,
           attention.reduce_grid_of(static_cast<uint32_t>(plan.reduce_items.size())));
}

Status Engine::prepare(Flight& flight) {
  for (const StepChunk& chunk : flight.plan.chunks) {
    ActiveRequest& active = requests_.at(chunk.request);
    const Request& scheduled = scheduler_->request(chunk.request);
    if (active.slot && active.epoch != scheduled.epoch) free_slot(active);
    if (!active.slot) PUMICE_TRY_STATUS(start(active, scheduled));
    // Blocks that the chunk's positions lie in; steps under way read none that change.
    write_block_tables(*active.slot, chunk.request, chunk.first_position / kKvBlockTokens,
                       kv_blocks_of(chunk.first_position + chunk.n_tokens));
    add_chunk(flight, chunk);
  }
  flight.attention.resize(decoder_->attention_classes().size());
  for (size_t i = 0; i < flight.attention.size(); ++i) fill_attention(flight, i);
  return {};
}

Result<vk::RecordedWork> Engine::record(const Flight& flight) const {
  const Ring& ring = rings_[flight.ring];
  const StepArgs& args = ring.args;
  vk::RecorderOptions options = recorder_options_;
  options.timestamps = options_.profile;
  vk::Recorder recorder(device_, options);
  std::vector<AttentionLists> attention;
  for (size_t i = 0; i < flight.attention.size(); ++i) {
    const StepArgs::Attention& lists = args.attention[i];
    const ops::AttentionPlan& plan = flight.attention[i];
    attention.push_back({.has_tiles = !plan.tile_items.empty(),
                         .has_rows = !plan.row_items.empty(),
                         .has_reduce = !plan.reduce_items.empty(),
                         .tile_items = lists.tile_items,
                         .row_items = lists.row_items,
                         .reduce_items = lists.reduce_items,
                         .tile_grid = lists.tile_grid,
                         .row_grid = lists.row_grid,
                         .reduce_grid = lists.reduce_grid,
                         .plan = &plan});
  }
  decoder_->record(recorder, {.n_rows = flight.n_rows,
                              .n_logit_rows = flight.n_logit_rows,
                              .tokens = args.tokens,
                              .sampled = sampled_,
                              .positions = args.positions,
                              .row_seq = args.row_seq,
                              .logit_rows = args.logit_rows,
                              .block_tables = block_tables_,
                              .table_stride = table_stride_,
                              .kv = kv_->range(),
                              .attention = attention});
  recorder.enter({"sampling"});
  if (!flight.logits_wanted.empty()) {
    const uint64_t bytes = uint64_t{flight.n_logit_rows} * model_->program.n_vocab * 4;
    recorder.copy(decoder_->logits().subrange(0, bytes), ring.logits_readback);
  }
  if (flight.samples) {
    const ops::Sampling& sampling = flight.greedy_only ? greedy_sampling_ : full_sampling_;
    sampling.record(recorder, {.logits = decoder_->logits(),
                               .rows = args.sampling,
                               .sampled = sampled_,
                               .scratch = sampling_scratch_,
                               .counts = token_counts_,
                               .tables = logit_bias_,
                               .n_rows = flight.n_logit_rows,
                               .n_vocab = model_->program.n_vocab});
    recorder.copy(sampled_, ring.sampled_readback);
  }
  return recorder.finish();
}

void Engine::deliver_logits(const Flight& flight) {
  const uint32_t n_vocab = model_->program.n_vocab;
  for (const Flight::LogitsWanted& wanted : flight.logits_wanted) {
    const auto it = requests_.find(wanted.request);
    if (it == requests_.end()) continue;  // cancelled meanwhile
    const auto all = StepArgs::host<float>(rings_[flight.ring].logits_readback);
    it->second.request.on_logits(wanted.position,
                                 all.subspan(size_t{wanted.logit_row} * n_vocab, n_vocab));
  }
}

}  // namespace pumice
