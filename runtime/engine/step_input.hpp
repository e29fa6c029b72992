// What carrying out a step needs to know of requests, as plain data: made once, by Requests::plan,
// it stays true whatever becomes of the requests before the step is recorded. The stepper asks
// nothing back.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "cache/page_pool.hpp"
#include "sampling/options.hpp"
#include "scheduler/scheduler.hpp"
#include "text/vocabulary.hpp"

namespace pumice {

/// A token, and the natural logarithm of its probability: what the model says, before penalties,
/// temperature and filters.
struct TokenLogProb {
  TokenId token = 0;
  float log_prob = 0;
};

/// Of the token at one place of a text.
struct TokenLogProbs {
  float log_prob = 0;
  std::vector<TokenLogProb> best = {};  ///< that could be there, the likeliest first
};

/// How a request's rows of logits are sampled.
struct RowSampling {
  SamplerConstants constants = {};
  uint32_t n_bias = 0;         ///< logit biases that its slot has
  bool has_penalties = false;  ///< its slot has the counts of its tokens
  bool has_mask = false;       ///< of the tokens that may be chosen: Requests::make_masks
  bool plain_greedy = true;    ///< is_plain_greedy
  /// Log probabilities of what they choose, and of so many best.
  std::optional<uint32_t> log_probs = {};
};

/// What a slot must be told of the request that has it, before the request's first row.
struct SlotInput {
  std::vector<std::pair<uint32_t, float>> logit_bias = {};
  /// Known tokens of the request, the first `n_prompt` being its prompt's; none without penalties.
  std::vector<TokenId> counted = {};
  uint32_t n_prompt = 0;
  bool has_penalties = false;
};

/// Entries of a slot's block table, of one kind: page blocks[i] is entry `first` + i.
struct TableInput {
  uint32_t first = 0;
  std::vector<PageId> blocks = {};  ///< kNoPage behind a window
};

/// The pages of one recurrent kind; kNoPage in both of any other.
struct StateInput {
  PageId before = kNoPage;  ///< kNoPage: the state in which everything begins
  PageId after = kNoPage;
};

/// Of one StepPlan::chunks.
struct ChunkInput {
  /// Of its rows, as far as the host knows them: the rest is being sampled by steps under way. With
  /// a draft its last n_draft() are the draft's.
  std::vector<TokenId> tokens = {};
  std::optional<SlotInput> new_slot = {};  ///< the device does not know the slot's request yet
  std::vector<TableInput> tables = {};     ///< by kind: what the chunk's positions lie in, of a
                                           ///< new slot also all before; none of a shared row
  std::vector<StateInput> states = {};     ///< by kind
  RowSampling sampling = {};
  /// Which of its request's output tokens its last row samples, counted over all restarts.
  uint64_t output_index = 0;
  /// Of its first rows: the tokens that do follow, in a prompt that is scored.
  std::vector<TokenId> scored = {};
  /// Its rows are of a draft, or of tokens that are read again after one: they are to be the same
  /// bits as one by one (Decoder::alike_rows).
  bool rows_alike = false;
  uint32_t adapter = 0;           ///< GenerationRequest::adapter
  bool wants_hidden = false;      ///< the host wants the hidden rows of its rows
  std::vector<float> given = {};  ///< GenerationRequest::give: [rows][width]
  /// Positions whose logits the host wants: [first_logits, end_logits), of those in the chunk.
  uint32_t first_logits = 0;
  uint32_t end_logits = 0;

  bool wants_logits(uint32_t position) const {
    return position >= first_logits && position < end_logits;
  }
};

/// What a row of a step that has run has chosen.
struct SampledRow {
  TokenId token = 0;
  std::optional<TokenLogProbs> log_probs = {};  ///< if they were asked for
};

struct StepInput {
  StepPlan plan;
  std::vector<ChunkInput> chunks;   ///< of plan.chunks, in order
  std::vector<uint32_t> new_slots;  ///< given out by the plan
};

}  // namespace pumice
