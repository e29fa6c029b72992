// Who computes what in the next step. One rule: every request catches up with its known tokens
// under a per-step token budget; requests that decode come first, then prompts in chunks.
//
// A step is a transaction: `plan_step` decides (and reserves the blocks of requests it admits);
// `commit` makes the progress of a step that ran real; a step that failed is just not committed.
// Pure C++, no device, no clock. Not thread-safe.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <vector>

#include "base/result.hpp"
#include "cache/block_pool.hpp"
#include "scheduler/request.hpp"

namespace pumice {

/// A run of consecutive positions of one request.
struct StepChunk {
  RequestId request = 0;
  uint32_t first_position = 0;
  uint32_t n_tokens = 0;
  bool samples = false;  ///< the chunk ends with the last known token: a next token is sampled
};

/// The work of one step: plain data. Decoding requests come first.
struct StepPlan {
  std::vector<StepChunk> chunks;

  bool empty() const { return chunks.empty(); }
  uint32_t n_tokens() const;
};

struct SchedulerOptions {
  uint32_t token_budget = 512;  ///< most tokens in a step
  uint32_t chunk_tokens = 512;  ///< most tokens of one prompt in a step
  uint32_t max_running = 1;     ///< most requests that hold blocks
  uint32_t block_tokens = 16;
};

class Scheduler {
 public:
  Scheduler(SchedulerOptions options, uint32_t n_blocks);

  /// Queue a request. Errors: kInvalidArgument (empty prompt), kDoesNotFit when even an empty pool
  /// could not hold prompt + max_new_tokens, saying by how much.
  Result<RequestId> add(uint32_t prompt_tokens, uint32_t max_new_tokens);

  /// The next step; empty when nothing can run.
  StepPlan plan_step();

  /// The step ran: its positions are computed and each sampling chunk has one more token.
  void commit(const StepPlan& plan);

  /// End a request at once, in any state, and free its blocks.
  void finish(RequestId id, RequestState final_state);

  /// Forget an ended request.
  void remove(RequestId id);

  const Request& request(RequestId id) const;
  bool idle() const { return waiting_.empty() && running_.empty(); }
  const BlockPool& pool() const { return pool_; }

  /// Errors: kInternal when blocks and requests disagree.
  Status check_integrity() const;

 private:
  void admit();
  uint32_t blocks_for(uint32_t n_tokens) const;
  uint32_t chunk_end(const Request& request, uint32_t budget) const;

  SchedulerOptions options_;
  BlockPool pool_;
  RequestId next_id_ = 1;
  std::map<RequestId, Request> requests_;
  std::deque<RequestId> waiting_;   // first come, first served
  std::vector<RequestId> running_;  // in order of admission
};

}  // namespace pumice
