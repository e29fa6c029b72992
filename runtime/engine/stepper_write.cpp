// Stepper: what a step is told, in the memory of its ring.
#include <algorithm>

#include "engine/stepper.hpp"
#include "shaders/embedding/embedding.hpp"

namespace pumice {

/// Whether steps before this one read the slot.
bool Stepper::is_used_before(const PendingStep& step, uint32_t slot) const {
  return std::ranges::any_of(steps_, [&](const PendingStep& other) {
    return &other != &step && std::ranges::find(other.input.plan.chunks, slot, &StepChunk::slot) !=
                                  other.input.plan.chunks.end();
  });
}

void Stepper::set_up_slots(const PendingStep& step) {
  for (const uint32_t slot : step.input.new_slots) device_.forget(slot);
  for (size_t i = 0; i < step.input.chunks.size(); ++i) {
    const uint32_t slot = step.input.plan.chunks[i].slot;
    const ChunkInput& input = step.input.chunks[i];
    if (input.new_slot) {
      PUMICE_DEBUG_CHECK(!is_used_before(step, slot), "a slot is written under a step");
      device_.set_up(slot, *input.new_slot);
    }
    PUMICE_DEBUG_CHECK(device_.is_set_up(slot), "a slot of nobody knows what");
    for (uint32_t group = 0; group < input.tables.size(); ++group) {
      device_.write_pages(slot, group, input.tables[group]);
    }
  }
}

/// Whether attention takes the rows of a chunk one by one: those of drafts, and those that are read
/// again after one, whose bits are to be those of single rows.
bool Stepper::are_apart(const PendingStep& step, size_t chunk) const {
  const uint32_t n_rows = step.input.plan.chunks[chunk].n_tokens;
  return n_rows == 1 || (step.input.chunks[chunk].rows_alike && !options_.invariant &&
                         n_rows <= device_.decoder().alike_rows());
}

/// The step's arguments.
DeviceState::StepWork Stepper::write(PendingStep& step) {
  StepArgs& args = device_.args(step.ring);
  args.clear();
  DeviceState::StepWork work;
  std::vector<ops::SequenceChunk> chunks;
  for (size_t i = 0; i < step.input.chunks.size(); ++i) {
    const StepChunk& chunk = step.input.plan.chunks[i];
    if (chunk.shares_row) {
      work.copied_rows.push_back(args.n_logit_rows - 1);
      step.sampled_rows.push_back(0);  // not known yet
      continue;
    }
    const uint32_t rows_at_once = are_apart(step, i) ? 1 : chunk.n_tokens;
    for (uint32_t row = 0; row < chunk.n_tokens; row += rows_at_once) {
      chunks.push_back({chunk.slot, args.n_rows + row, rows_at_once, chunk.first_position + row});
    }
    write_states(step.ring, chunk, step.input.chunks[i]);
    write_chunk(step, i, work);
  }
  if (!work.copied_rows.empty()) write_choices(step, work);
  device_.decoder().write_attention(chunks, attention_options(options_), args);
  work.reads_logits = !step.logits_wanted.empty();
  return work;
}

/// Their rows of logits come behind those of the forward pass.
void Stepper::write_choices(PendingStep& step, DeviceState::StepWork& work) {
  uint32_t logit_row = device_.args(step.ring).n_logit_rows;
  auto place = step.sampled_rows.begin();
  for (size_t i = 0; i < step.input.chunks.size(); ++i) {
    const StepChunk& chunk = step.input.plan.chunks[i];
    if (chunk.shares_row) {
      *place = logit_row;
      write_logit_row(step, i, 0, logit_row++, work);
    }
    place += chunk.n_samples;
  }
}

/// Which pages its recurrences go on from and write.
void Stepper::write_states(uint32_t ring, const StepChunk& chunk, const ChunkInput& input) {
  const uint32_t index = device_.args(ring).add_chunk(chunk.n_tokens);
  for (uint32_t page = 0; page < input.states.size(); ++page) {
    if (input.states[page].after == kNoPage) continue;
    device_.set_state(ring, index, page, input.states[page]);
  }
}

void Stepper::write_chunk(PendingStep& step, size_t index, DeviceState::StepWork& work) {
  const StepChunk& chunk = step.input.plan.chunks[index];
  const ChunkInput& input = step.input.chunks[index];
  StepArgs& args = device_.args(step.ring);
  const uint32_t first_sampled = chunk.n_tokens - chunk.n_samples;
  const size_t given_width = input.given.size() / chunk.n_tokens;
  std::ranges::copy(input.given,
                    device_.given_rows(step.ring).subspan(args.n_rows * given_width).begin());
  for (uint32_t i = 0; i < chunk.n_tokens; ++i) {
    const uint32_t position = chunk.first_position + i;
    const uint32_t token = i < input.tokens.size()
                               ? input.tokens[i]
                               : ops::Embedding::kFromSampled | step.fed_from[index];
    const uint32_t row = args.add_row(token, position, chunk.slot, input.adapter);
    const bool samples = i >= first_sampled;
    const bool is_scored = i < input.scored.size();
    const bool wanted = input.wants_logits(position);
    if (!samples && !is_scored && !wanted) continue;
    const uint32_t logit_row = args.add_logit_row(row, input.adapter);
    if (wanted) step.logits_wanted.push_back({index, position, logit_row});
    if (is_scored) step.scored.push_back({index, position, logit_row});
    if (samples) step.sampled_rows.push_back(logit_row);
    write_logit_row(step, index, i, logit_row, work);
  }
  if (chunk.n_draft() > 0 && input.sampling.has_penalties) {
    device_.follow_draft(step.ring, args.n_logit_rows - chunk.n_samples,
                         std::span(input.tokens).last(chunk.n_draft()));
  }
}

/// What is done with the logits of a row of a chunk.
void Stepper::write_logit_row(PendingStep& step, size_t index, uint32_t i, uint32_t logit_row,
                              DeviceState::StepWork& work) {
  const StepChunk& chunk = step.input.plan.chunks[index];
  const ChunkInput& input = step.input.chunks[index];
  const uint32_t n_best = input.sampling.log_probs.value_or(0);
  const bool samples = i >= chunk.n_tokens - chunk.n_samples;
  const bool is_scored = i < input.scored.size();
  if (is_scored) {
    device_.set_log_probs(step.ring, logit_row, n_best, input.scored[i]);
  } else if (samples && input.sampling.log_probs) {
    device_.set_log_probs(step.ring, logit_row, n_best);
  } else {
    device_.set_no_log_probs(step.ring, logit_row);
  }
  work.log_probs = work.log_probs || is_scored || (samples && input.sampling.log_probs);
  if (!samples) {
    device_.set_no_sampling(step.ring, logit_row);
    return;
  }
  device_.set_sampling(step.ring, logit_row, input.sampling,
                       input.output_index - (chunk.n_tokens - 1 - i), chunk.slot);
  work.samples = true;
  work.greedy_only = work.greedy_only && input.sampling.plain_greedy;
}

}  // namespace pumice
