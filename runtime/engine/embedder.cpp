#include "engine/embedder.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "engine/engine_limits.hpp"
#include "models/embedding.hpp"
#include "vk/arena_layout.hpp"
#include "vk/device.hpp"
#include "vk/recorder.hpp"

namespace pumice {
namespace {

constexpr uint64_t kSampledBytes = 16;

bool pools_all_rows(Pooling pooling) {
  return pooling == Pooling::kMean || pooling == Pooling::kNone;
}

/// Positions that tables of ropes have. LongRoPE's factor follows what the model was trained for,
/// not how long these texts are.
uint32_t rope_positions(const Program& program, uint32_t text_tokens) {
  const bool is_long = std::ranges::any_of(
      program.ropes, [](const ops::RopeConfig& rope) { return !rope.long_divisors.empty(); });
  return is_long ? std::max(text_tokens, program.context_length) : text_tokens;
}

}  // namespace

uint32_t longest_text(const Program& program, uint32_t wanted) {
  const uint32_t trained = wanted == 0 ? program.context_length : wanted;
  return std::min(trained, position_limit(program).value_or(trained));
}

Result<std::unique_ptr<Embedder>> Embedder::create(std::shared_ptr<vk::PipelineLibrary> pipelines,
                                                   std::shared_ptr<const Model> model,
                                                   const EmbedderOptions& options,
                                                   const vk::PipelineLibrary::Progress& progress) {
  if (!model->program.pooling) {
    return make_error(ErrorCode::kInvalidArgument,
                      "the model was loaded to generate text, not to embed it");
  }
  if (options.step_tokens == 0) {
    return make_error(ErrorCode::kInvalidArgument, "step_tokens must not be 0");
  }
  std::unique_ptr<Embedder> embedder(new Embedder(std::move(pipelines), std::move(model), options));
  PUMICE_TRY_STATUS(embedder->allocate());
  PUMICE_TRY(const vk::PipelineLibrary::Readiness ready,
             embedder->pipelines_->compile_for(std::numeric_limits<double>::infinity(), progress));
  PUMICE_CHECK(ready.complete(), "kernels are missing");
  embedder->pipelines_->save();
  return embedder;
}

Embedder::Embedder(std::shared_ptr<vk::PipelineLibrary> pipelines,
                   std::shared_ptr<const Model> model, const EmbedderOptions& options)
    : pipelines_(std::move(pipelines)),
      device_(pipelines_->device()),
      model_(std::move(model)),
      options_(options),
      text_tokens_(longest_text(model_->program, options.text_tokens)),
      n_blocks_(kv_blocks_of(std::max(text_tokens_, options.step_tokens))),
      submitter_(device_) {}

Status Embedder::allocate() {
  // A text fills blocks by itself, so that a step of so many blocks has no more rows than these.
  const uint32_t n_rows = n_blocks_ * kKvBlockTokens;
  const uint32_t n_pooled = pools_all_rows(*program().pooling) ? n_rows : n_blocks_;
  const DecoderLimits limits{.rows = n_rows,
                             .logit_rows = n_pooled,
                             .context_tokens = rope_positions(program(), text_tokens_),
                             .invariant = options_.invariant};
  PUMICE_TRY(const std::shared_ptr<const Lowered> lowered, model_->plan->lowered());
  const StateLayout layout = model_->plan->state(options_.kv_type);
  const auto n_tables = static_cast<uint32_t>(layout.kinds.size());
  vk::ArenaLayout device(vk::MemoryDomain::kDevice, "embedding");
  device.add(kSampledBytes, sampled_);
  vk::ArenaLayout readback(vk::MemoryDomain::kReadback, "embeddings");
  readback.add(uint64_t{n_pooled} * width() * sizeof(float), rows_);
  vk::ArenaLayout tables(vk::MemoryDomain::kUpload, "block tables");
  tables.add(n_tables, uint64_t{n_blocks_} * sizeof(uint64_t), block_tables_);
  const vk::ArenaLayout args =
      args_.lay_out({.rows = n_rows,
                     .logit_rows = n_pooled,
                     .attention_items = n_rows,
                     .attention_classes = static_cast<uint32_t>(lowered->attention_classes.size()),
                     .sees_ahead = true,
                     .chunks = n_blocks_,
                     .recurrent_kinds = layout.recurrent_kinds()});
  const vk::ArenaLayout* const layouts[] = {&device, &readback, &tables, &args};
  DecoderBuffers decoder;
  uint64_t bytes = n_blocks_ * n_tables * layout.page_bytes;
  bytes += decoder.lay_out(*lowered, program(), limits, device_->plan().slab_bytes).bytes();
  for (const vk::ArenaLayout* const arena : layouts) {
    if (device_->plan().is_budgeted(arena->domain())) bytes += arena->bytes();
  }
  PUMICE_TRY_STATUS(device_->check_fits(bytes, fmt::format("a step of {} tokens", n_rows)));

  weights_ = model_->weights->now();
  PUMICE_TRY(decoder_, Decoder::plan(device_, *pipelines_, *model_->plan, *weights_,
                                     options_.kv_type, options_.math, {}, limits));
  PUMICE_TRY(kv_, KvMemory::create(device_, layout.page_bytes, n_tables * n_blocks_,
                                   n_tables * n_blocks_));
  for (const vk::ArenaLayout* const layout_of : layouts) {
    PUMICE_TRY(vk::Arena arena, layout_of->allocate(device_));
    arenas_.push_back(std::move(arena));
  }
  for (uint32_t table = 0; table < n_tables; ++table) {
    const std::span<uint64_t> blocks = block_tables_[table].mapped<uint64_t>();
    for (uint32_t i = 0; i < n_blocks_; ++i) blocks[i] = kv_->address(table * n_blocks_ + i);
  }
  return {};
}

Status Embedder::check(std::span<const std::vector<TokenId>> texts) const {
  for (size_t i = 0; i < texts.size(); ++i) {
    const std::vector<TokenId>& text = texts[i];
    if (text.empty()) {
      return make_error(ErrorCode::kInvalidArgument, "text {} has no tokens", i + 1);
    }
    if (text.size() > text_tokens_) {
      return make_error(ErrorCode::kDoesNotFit, "text {} has {} tokens, and there is room for {}",
                        i + 1, text.size(), text_tokens_);
    }
    const TokenId largest = *std::ranges::max_element(text);
    if (largest >= program().n_vocab) {
      return make_error(ErrorCode::kInvalidArgument,
                        "text {}: token {} is not in the vocabulary of {}", i + 1, largest,
                        program().n_vocab);
    }
  }
  return {};
}

/// As many of the texts as a step has blocks for, at least one.
void Embedder::fill_step(std::span<const std::vector<TokenId>> texts) {
  args_.clear();
  chunks_.clear();
  pooled_.clear();
  uint32_t n_used = 0;  // blocks
  for (const std::vector<TokenId>& text : texts) {
    const auto n_tokens = static_cast<uint32_t>(text.size());
    if (n_used + kv_blocks_of(n_tokens) > n_blocks_) break;
    // With tables of stride 1 a text's entries begin at its number.
    const uint32_t first_row = args_.n_rows;
    chunks_.push_back({.seq = n_used, .first_row = first_row, .n_rows = n_tokens});
    const uint32_t chunk = args_.add_chunk(n_tokens);
    for (uint32_t kind = 0; kind < args_.states.size(); ++kind) {
      if (args_.states[kind].empty()) continue;
      args_.set_state(chunk, kind, 0, kv_->address(kind * n_blocks_ + n_used));
    }
    for (uint32_t position = 0; position < n_tokens; ++position) {
      args_.add_row(text[position], position, n_used);
    }
    const Pooling pooling = *program().pooling;
    const uint32_t first = pooling == Pooling::kLast ? n_tokens - 1 : 0;
    const uint32_t n = pools_all_rows(pooling) ? n_tokens : 1;
    pooled_.push_back({.first = args_.n_logit_rows, .n = n});
    for (uint32_t i = 0; i < n; ++i) args_.add_logit_row(first_row + first + i);
    n_used += kv_blocks_of(n_tokens);
  }
  decoder_->write_attention(chunks_, {}, args_);
}

Status Embedder::run_step() {
  vk::RecorderOptions recording;
  submitter_.set_segments(recording);
  vk::Recorder recorder(device_, recording);
  decoder_->record(
      recorder, args_,
      {.sampled = sampled_, .block_tables = block_tables_, .table_stride = 1, .kv = kv_->range()});
  recorder.enter({"embeddings"});
  const uint64_t n_bytes = uint64_t{args_.n_logit_rows} * width() * sizeof(float);
  recorder.copy(decoder_->logits().subrange(0, n_bytes), rows_);
  PUMICE_TRY(vk::RecordedWork work, recorder.finish());
  for (const vk::CommandInfo& command : work.commands()) variants_.emplace(command.label);
  const Submitter::Ticket ticket =
      submitter_.add(std::make_shared<const vk::RecordedWork>(std::move(work)));
  const auto run = [&]() -> Status {
    PUMICE_TRY_STATUS(submitter_.wait(ticket));
    PUMICE_TRY(const std::optional<double> seconds, submitter_.ended(ticket));
    PUMICE_CHECK(seconds.has_value(), "a step that was waited for has not ended");
    return {};
  };
  const Status status = run();
  if (!status.ok()) {
    device_->wait_idle();
    submitter_.clear();
  }
  return status;
}

Result<std::vector<std::vector<float>>> Embedder::embed(std::span<const std::vector<TokenId>> texts,
                                                        const Progress& progress) {
  PUMICE_TRY_STATUS(check(texts));
  std::vector<std::vector<float>> vectors;
  vectors.reserve(texts.size());
  while (vectors.size() < texts.size()) {
    fill_step(texts.subspan(vectors.size()));
    PUMICE_TRY_STATUS(run_step());
    const std::span<const float> rows = rows_.mapped<float>();
    for (const PooledRows& text : pooled_) {
      const auto of_text = rows.subspan(text.first * width(), text.n * width());
      vectors.push_back(pool(*program().pooling, of_text, width()));
      if (!std::ranges::all_of(vectors.back(), [](float x) { return std::isfinite(x); })) {
        return make_error(ErrorCode::kInternal,
                          "text {}: the model produced NaN or infinity (pumice info --self-test "
                          "checks whether the driver computes correctly)",
                          vectors.size());
      }
    }
    if (progress && !progress(vectors.size())) {
      return make_error(ErrorCode::kCancelled, "interrupted");
    }
  }
  return vectors;
}

}  // namespace pumice
