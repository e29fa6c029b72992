// Scheduler::check_integrity.
#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "scheduler/scheduler.hpp"

namespace pumice {

Status Scheduler::check_integrity() const {
  PUMICE_TRY_STATUS(cache_.check_integrity());
  if (!std::ranges::is_sorted(running_, ServedBefore{})) {
    return make_error(ErrorCode::kInternal, "running requests are not in order of service");
  }
  if (running_.size() > options_.max_running) {
    return make_error(ErrorCode::kInternal, "{} requests run, {} may", running_.size(),
                      options_.max_running);
  }
  for (const auto& [id, owned] : requests_) PUMICE_TRY_STATUS(check_request(*owned));
  return check_slots();
}

Status Scheduler::check_request(const Request& request) const {
  const auto bad = [&](std::string_view what) {
    return make_error(ErrorCode::kInternal, "request {} ({}): {}", request.id,
                      request_state_name(request.state), what);
  };
  Request* const pointer = requests_.at(request.id).get();
  const bool in_running = std::ranges::find(running_, pointer) != running_.end();
  const bool is_choice = choices_.contains(pointer);
  const bool in_waiting = waiting_.contains(pointer) != is_choice;
  const bool runs =
      request.state == RequestState::kPrefilling || request.state == RequestState::kDecoding;
  if (in_running != runs || request.running() != runs) return bad("wrongly (not) running");
  if (request.slot.has_value() != runs) return bad("has a slot and does not run, or none and does");
  if (in_waiting != (request.state == RequestState::kWaiting)) {
    return bad("wrongly (not) in the queue");
  }
  if (request.computed_tokens > request.scheduled_tokens ||
      request.scheduled_tokens > request.known_tokens()) {
    return bad("computed, scheduled and known tokens are out of order");
  }
  if (request.state == RequestState::kDecoding && request.generated_tokens == 0) {
    return bad("decodes before its prompt is read");
  }
  for (uint32_t g = 0; runs && g < cache_.kinds().size(); ++g) {
    const size_t n_blocks = cache_.blocks(*request.sequence, g).size();
    if (!cache_.kinds().is_recurrent(g) && n_blocks < blocks_for(request.scheduled_tokens)) {
      return bad("has fewer blocks than positions");
    }
  }
  if (runs && cache_.computed_tokens(*request.sequence) != request.computed_tokens) {
    return bad("disagrees with the cache on what is computed");
  }
  const bool has_tokens = !request.ended() && !cache_.options().keyed;
  if (tokens(request.id).size() != (has_tokens ? request.sequence_tokens : 0)) {
    return bad("disagrees with the cache on what is known");
  }
  if (!runs && !is_choice && (request.pending_samples != 0 && !request.ended())) {
    return bad("waits with tokens being sampled");
  }
  return {};
}

/// A slot is used by one running request at most, and by the open steps that name it.
Status Scheduler::check_slots() const {
  std::vector<uint32_t> uses;
  const auto add_use = [&](uint32_t slot) {
    if (slot >= uses.size()) uses.resize(size_t{slot} + 1);
    return ++uses[slot];
  };
  for (const Request* request : running_) {
    if (add_use(*request->slot) > 1) {
      return make_error(ErrorCode::kInternal, "slot {} belongs to two running requests",
                        *request->slot);
    }
  }
  for (const OpenStep& open : outstanding_) {
    for (const OpenChunk& chunk : open.chunks) {
      add_use(chunk.chunk.slot);
      const bool counts = chunk.request->epoch == chunk.epoch && !chunk.request->ended();
      if (counts && !chunk.chunk.shares_row && chunk.request->slot != chunk.chunk.slot) {
        return make_error(ErrorCode::kInternal, "step {} names a slot that request {} has not",
                          open.id, chunk.chunk.request);
      }
    }
  }
  return slots_.check_integrity(std::move(uses));
}

}  // namespace pumice
