#include "scheduler/scheduler.hpp"

#include <algorithm>

namespace pumice {

uint32_t StepPlan::n_tokens() const {
  uint32_t total = 0;
  for (const StepChunk& chunk : chunks) total += chunk.n_tokens;
  return total;
}

Scheduler::Scheduler(SchedulerOptions options, uint32_t n_blocks)
    : options_(options), pool_(n_blocks) {
  PUMICE_CHECK(options_.token_budget > 0 && options_.chunk_tokens > 0 && options_.max_running > 0,
               "scheduler limits must be positive");
}

uint32_t Scheduler::blocks_for(uint32_t n_tokens) const {
  return (n_tokens + options_.block_tokens - 1) / options_.block_tokens;
}

Result<RequestId> Scheduler::add(uint32_t prompt_tokens, uint32_t max_new_tokens) {
  if (prompt_tokens == 0) return make_error(ErrorCode::kInvalidArgument, "the prompt is empty");
  const uint64_t capacity = uint64_t{pool_.n_blocks()} * options_.block_tokens;
  const uint64_t wanted = uint64_t{prompt_tokens} + max_new_tokens;
  if (wanted > capacity) {
    return make_error(ErrorCode::kDoesNotFit,
                      "{} prompt + {} new tokens exceed the context of {} by {} tokens",
                      prompt_tokens, max_new_tokens, capacity, wanted - capacity);
  }
  const RequestId id = next_id_++;
  Request& request = requests_[id];
  request.id = id;
  request.prompt_tokens = prompt_tokens;
  request.max_new_tokens = max_new_tokens;
  waiting_.push_back(id);
  return id;
}

void Scheduler::admit() {
  while (!waiting_.empty() && running_.size() < options_.max_running) {
    Request& request = requests_.at(waiting_.front());
    // Blocks for the whole request are reserved here, so a running request never lacks one.
    const uint32_t n_blocks = blocks_for(request.prompt_tokens + request.max_new_tokens);
    if (!pool_.acquire(n_blocks, request.blocks).ok()) return;
    request.state = RequestState::kPrefilling;
    running_.push_back(request.id);
    waiting_.pop_front();
  }
}

/// Where a prompt chunk ends: as far as the budget goes, on a block boundary if that is progress.
uint32_t Scheduler::chunk_end(const Request& request, uint32_t budget) const {
  const uint32_t first = request.computed_tokens;
  const uint32_t end =
      first + std::min({request.known_tokens() - first, options_.chunk_tokens, budget});
  if (end == request.known_tokens()) return end;
  const uint32_t on_boundary = end - end % options_.block_tokens;
  return on_boundary > first ? on_boundary : end;
}

StepPlan Scheduler::plan_step() {
  admit();
  StepPlan plan;
  uint32_t budget = options_.token_budget;
  for (const RequestState state : {RequestState::kDecoding, RequestState::kPrefilling}) {
    for (const RequestId id : running_) {
      const Request& request = requests_.at(id);
      if (request.state != state || budget == 0) continue;
      const uint32_t end = chunk_end(request, budget);
      const uint32_t n_tokens = end - request.computed_tokens;
      plan.chunks.push_back({id, request.computed_tokens, n_tokens,
                             end == request.known_tokens() && request.max_new_tokens > 0});
      budget -= n_tokens;
    }
  }
  return plan;
}

void Scheduler::commit(const StepPlan& plan) {
  for (const StepChunk& chunk : plan.chunks) {
    const auto it = requests_.find(chunk.request);
    if (it == requests_.end()) continue;
    Request& request = it->second;
    if (request.state != RequestState::kPrefilling && request.state != RequestState::kDecoding) {
      continue;  // ended while the step ran
    }
    PUMICE_CHECK(request.computed_tokens == chunk.first_position, "a step committed twice");
    request.computed_tokens += chunk.n_tokens;
    if (chunk.samples) {
      ++request.generated_tokens;
      request.state = RequestState::kDecoding;
    }
    const bool exhausted = request.generated_tokens == request.max_new_tokens;
    if (exhausted && request.computed_tokens >= request.prompt_tokens) {
      finish(request.id, RequestState::kFinished);
    }
  }
}

void Scheduler::finish(RequestId id, RequestState final_state) {
  Request& request = requests_.at(id);
  pool_.release(request.blocks);
  request.blocks.clear();
  request.state = final_state;
  std::erase(waiting_, id);
  std::erase(running_, id);
}

void Scheduler::remove(RequestId id) {
  PUMICE_CHECK(requests_.at(id).blocks.empty(), "removing a request that holds blocks");
  requests_.erase(id);
}

const Request& Scheduler::request(RequestId id) const { return requests_.at(id); }

Status Scheduler::check_integrity() const {
  PUMICE_TRY_STATUS(pool_.check_integrity());
  uint32_t held = 0;
  for (const auto& [id, request] : requests_) {
    const bool runs = std::find(running_.begin(), running_.end(), id) != running_.end();
    if (runs == request.blocks.empty()) {
      return make_error(ErrorCode::kInternal, "request {} is {}running with {} blocks", id,
                        runs ? "" : "not ", request.blocks.size());
    }
    if (uint64_t{request.blocks.size()} * options_.block_tokens < request.computed_tokens && runs) {
      return make_error(ErrorCode::kInternal, "request {} has more tokens than blocks", id);
    }
    held += static_cast<uint32_t>(request.blocks.size());
  }
  if (held + pool_.n_free() != pool_.n_blocks()) {
    return make_error(ErrorCode::kInternal, "{} blocks held and {} free of {}", held,
                      pool_.n_free(), pool_.n_blocks());
  }
  return {};
}

}  // namespace pumice
