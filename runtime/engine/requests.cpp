#include "engine/requests.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "engine/engine_limits.hpp"

namespace pumice {
namespace {

/// So many tokens must be forced, beside those being sampled, that a request does not run ahead.
constexpr size_t kLeastForced = 1;

}  // namespace

// ---- what a client does

Status Requests::check(const GenerationRequest& request) const {
  PUMICE_TRY_STATUS(request.sampling.validate(limits_.n_vocab));
  if (limits_.greedy_only && !is_plain_greedy(request.sampling)) {
    return make_error(ErrorCode::kInvalidArgument, "this engine was made for greedy requests only");
  }
  if (request.sampling.logit_bias.size() > kMaxLogitBias) {
    return make_error(ErrorCode::kInvalidArgument, "{} logit biases exceed {}",
                      request.sampling.logit_bias.size(), kMaxLogitBias);
  }
  for (const TokenId token : request.prompt) {
    if (token >= limits_.n_vocab) {
      return make_error(ErrorCode::kInvalidArgument, "token {} is outside the vocabulary of {}",
                        token, limits_.n_vocab);
    }
  }
  if ((request.log_probs || request.on_score) && limits_.greedy_only) {
    return make_error(ErrorCode::kInvalidArgument,
                      "this engine was made for greedy requests without log probabilities only");
  }
  if (const uint32_t most = std::min(kMostLogProbs, limits_.n_vocab);
      request.log_probs.value_or(0) > most) {
    return make_error(ErrorCode::kInvalidArgument,
                      "log probabilities of the {} best tokens, there are at most {}",
                      *request.log_probs, most);
  }
  if (request.on_logits && !limits_.logits) {
    return make_error(ErrorCode::kInvalidArgument, "this engine was not made for prompt logits");
  }
  if (request.on_hidden && !limits_.hidden) {
    return make_error(ErrorCode::kInvalidArgument, "this engine's model gives no hidden rows");
  }
  if (limits_.given_width > 0 && !request.give) {
    return make_error(ErrorCode::kInvalidArgument,
                      "this engine's model predicts by rows that a request must give");
  }
  if (limits_.given_width == 0 && request.give) {
    return make_error(ErrorCode::kInvalidArgument, "this engine's model reads no given rows");
  }
  if (request.adapter > limits_.adapters.size()) {
    return make_error(ErrorCode::kInvalidArgument, "adapter {} of the {} that the model has",
                      request.adapter, limits_.adapters.size());
  }
  if (request.n_output_in_prompt > request.prompt.size() ||
      (request.n_output_in_prompt > 0 && request.on_logits)) {
    return make_error(ErrorCode::kInvalidArgument,
                      "n_output_in_prompt is {} in a prompt of {} tokens{}",
                      request.n_output_in_prompt, request.prompt.size(),
                      request.on_logits ? " whose logits are wanted" : "");
  }
  PUMICE_TRY_STATUS(check_constraint(request));
  PUMICE_TRY_STATUS(validate_stop_strings(request.stop_strings));
  if (!request.stop_strings.empty() && request.tokenizer == nullptr) {
    return make_error(ErrorCode::kInvalidArgument, "stop strings need a tokenizer");
  }
  if (request.delivery == GenerationRequest::Delivery::kSentence && request.tokenizer == nullptr) {
    return make_error(ErrorCode::kInvalidArgument, "sentences need a tokenizer");
  }
  const uint64_t wanted = request.prompt.size() + uint64_t{request.max_new_tokens};
  if (wanted > limits_.window_tokens && limits_.overflow == OverflowPolicy::kStop) {
    return make_error(ErrorCode::kDoesNotFit,
                      "{} prompt + {} new tokens exceed the context of {} by {} tokens",
                      request.prompt.size(), request.max_new_tokens, limits_.window_tokens,
                      wanted - limits_.window_tokens);
  }
  return {};
}

Result<RequestId> Requests::submit(GenerationRequest request, double now_s) {
  PUMICE_TRY_STATUS(check(request));
  Active active;
  std::vector<TokenId> prompt = std::exchange(request.prompt, {});
  const uint32_t window = limits_.window_tokens;
  if (prompt.size() > window && limits_.overflow == OverflowPolicy::kTruncateOldest) {
    const uint32_t room = std::min(request.max_new_tokens, window / 2);
    active.truncated_tokens = static_cast<uint32_t>(prompt.size()) - (window - room);
    prompt.erase(prompt.begin(), prompt.begin() + static_cast<ptrdiff_t>(active.truncated_tokens));
  }
  const auto n_output =
      static_cast<uint32_t>(std::min<size_t>(request.n_output_in_prompt, prompt.size()));
  active.n_prompt = static_cast<uint32_t>(prompt.size()) - n_output;
  active.tokens = prompt;
  active.told.assign(prompt.begin() + active.n_prompt, prompt.end());
  active.n_restored = n_output;
  RequestSpec spec{.prompt = std::move(prompt),
                   .max_new_tokens = request.max_new_tokens,
                   .service_class = request.service_class,
                   .priority = request.priority,
                   .client = request.client,
                   .deadline_s = now_s + request.timeout_s,
                   .salt = request.salt,
                   .model = fingerprint_of(request.adapter),
                   .max_tokens_per_s = request.max_tokens_per_s,
                   .runs_ahead = (!request.drafter || request.adapts_drafts) &&
                                 !request.on_hidden && !request.give};
  spec.has_prompt_logits = bool{request.on_score};
  spec.forgets_output = request.forgets_output;
  if (!request.on_score && !request.on_logits) spec.choice_of = request.choice_of;
  // Every position of it has to be computed: it shares nothing.
  if (request.on_score ||
      (request.on_logits && request.logits == GenerationRequest::Logits::kPrompt)) {
    spec.salt = private_salt();
  }
  active.request = std::move(request);
  PUMICE_TRY_STATUS(begin_constraint(active));
  begin_text(active);
  // What needs memory comes first: a request is known here and to the scheduler, or to neither.
  std::map<RequestId, Active> one;
  one.emplace(0, std::move(active));
  auto node = one.extract(0);
  PUMICE_TRY(const RequestId id, scheduler_.add(std::move(spec), now_s));
  node.key() = id;
  requests_.insert(std::move(node));
  return id;
}

std::optional<RequestReport> Requests::cancel(RequestId id, double now_s) {
  std::optional<RequestReport> report;
  std::string held;
  for (const StepEvent& event : events_) {
    if (event.request != id) continue;
    held += event.text;
    if (event.report) report = event.report;
  }
  if (const auto it = requests_.find(id); it != requests_.end()) {
    held += rest_of(it->second);
    scheduler_.cancel(id, now_s);
    report = report_of(id, EndReason::kNone);
    scheduler_.remove(id);
    requests_.erase(it);
  }
  std::erase_if(events_, [&](const StepEvent& event) { return event.request == id; });
  if (report) report->held_text = std::move(held);
  return report;
}

/// `ended_by`: of its last token, which counts though the request had as many as it asked for.
RequestReport Requests::report_of(RequestId id, EndReason ended_by) const {
  const Request& request = scheduler_.request(id);
  const Active& active = requests_.at(id);
  return {.end_reason = ended_by != EndReason::kNone ? ended_by : request.end_reason,
          .failure = active.failure.ok() ? request.failure : active.failure,
          .prompt_tokens = request.prompt_tokens,
          .generated_tokens = request.generated_tokens,
          .cache = request.cache,
          .times = request.times,
          .prefill_iterations = request.prefill_iterations,
          .preemptions = request.preemptions,
          .shifts = active.shifts,
          .truncated_tokens = active.truncated_tokens,
          .drafts = active.drafts};
}

std::vector<AdapterUse> Requests::adapter_use() const {
  std::vector<AdapterUse> all(limits_.adapters.size());
  if (all.empty()) return all;
  for (const auto& [id, active] : requests_) {
    if (active.request.adapter == 0) continue;
    AdapterUse& use = all[active.request.adapter - 1];
    ++(scheduler_.request(id).running() ? use.running : use.waiting);
  }
  return all;
}

// ---- what a step does

void DraftCounts::add(uint32_t n_drafted, uint32_t n_accepted) {
  drafted += n_drafted;
  accepted += n_accepted;
  for (uint32_t i = 0; i < n_drafted; ++i) {
    const uint32_t place = std::min(i, kPlaces - 1);
    ++drafted_at[place];
    accepted_at[place] += i < n_accepted ? 1 : 0;
  }
}

/// Of each that has tokens it was not asked about, where a guess could be of use. What a constraint
/// forces is a guess too, and comes first.
void Requests::ask_for_drafts() {
  for (auto& [id, active] : requests_) {
    const GenerationRequest& request = active.request;
    if (!request.drafter && !active.matcher) continue;
    const std::span<const TokenId> tokens = scheduler_.tokens(id);
    // One that adapts compares guesses with the text while it runs ahead too; and what is forced
    // must be known before it would.
    const bool runs_ahead = request.adapts_drafts || !request.drafter;
    const uint32_t most =
        std::min(request.most_draft_tokens, runs_ahead && scheduler_.request(id).running()
                                                ? scheduler_.most_draft_of_any()
                                                : scheduler_.most_draft(id));
    if (most == 0 || active.drafted_for == tokens.size()) continue;
    active.drafted_for = tokens.size();
    Guess guess(forced_tokens(active, most));
    const size_t least = kLeastForced + scheduler_.request(id).pending_samples;
    const bool is_forced = guess.tokens.size() >= least;
    if (!is_forced) guess = request.drafter ? request.drafter(tokens, most) : Guess();
    if (!request.drafter || (runs_ahead && is_forced)) scheduler_.set_runs_ahead(id, !is_forced);
    const auto is_none = [&](TokenId token) { return token >= limits_.n_vocab; };
    guess.tokens.erase(std::ranges::find_if(guess.tokens, is_none), guess.tokens.end());
    guess.tokens.resize(std::min<size_t>(guess.tokens.size(), most));
    guess.tokens.resize(n_allowed(active, guess.tokens));
    if (request.adapts_drafts && !is_forced) {
      guess.tokens.resize(worthwhile_draft(id, active, guess));
    }
    active.draft = std::move(guess.tokens);
    scheduler_.draft(id, static_cast<uint32_t>(active.draft.size()));
  }
}

/// How much of a guess is verified. Without any the next step need not wait for the token of this
/// one.
uint32_t Requests::worthwhile_draft(RequestId id, Active& active, const Guess& guess) {
  const std::span<const TokenId> tokens = scheduler_.tokens(id);
  const auto came = tokens.subspan(std::min(active.held_for, tokens.size()));
  const auto differs = std::ranges::mismatch(active.held.tokens, came);
  if (differs.in2 != came.end() || differs.in1 == active.held.tokens.end()) {
    active.policy.learn(active.held.kind, active.held.tokens, came);
    active.held = guess;
    active.held_for = tokens.size();
  }
  const auto n_requests = static_cast<uint32_t>(scheduler_.n_running());
  const auto seconds = [&](uint32_t n_guessed) {
    StepShape shape;
    for (uint32_t i = 0; i < n_requests + n_guessed; ++i) {
      shape.add_decode(static_cast<uint32_t>(tokens.size()));
    }
    return scheduler_.cost().predict(shape);
  };
  const uint32_t n = active.policy.choose(guess.kind, static_cast<uint32_t>(guess.tokens.size()),
                                          n_requests, most_draft_measured_, seconds);
  scheduler_.set_runs_ahead(id, n == 0);
  return n;
}

StepInput Requests::plan(double now_s, const KnowsSlot& knows_slot) {
  ask_for_drafts();
  StepInput input{.plan = scheduler_.plan_step(now_s)};
  for (const RequestId id : input.plan.ended) {
    tell({.request = id, .computed_tokens = scheduler_.request(id).computed_tokens},
         EndReason::kNone, now_s);
  }
  for (const RequestId id : input.plan.started) {
    const std::optional<uint32_t> slot = scheduler_.request(id).slot;
    if (slot) input.new_slots.push_back(*slot);
  }
  input.chunks.reserve(input.plan.chunks.size());
  for (const StepChunk& chunk : input.plan.chunks) {
    if (chunk.shares_row) input.new_slots.push_back(chunk.slot);
    const bool is_new = std::ranges::find(input.new_slots, chunk.slot) != input.new_slots.end() ||
                        !knows_slot(chunk.slot);
    input.chunks.push_back(input_of(chunk, is_new));
  }
  return input;
}

ChunkInput Requests::input_of(const StepChunk& chunk, bool is_new) const {
  const Active& active = requests_.at(chunk.request);
  const GenerationRequest& request = active.request;
  const std::span<const TokenId> tokens = scheduler_.tokens(chunk.request);
  const uint32_t end = chunk.first_position + chunk.n_tokens;
  const size_t known_end = std::min<size_t>(end, tokens.size());
  ChunkInput input;
  if (chunk.first_position < known_end) {
    input.tokens.assign(tokens.begin() + chunk.first_position,
                        tokens.begin() + static_cast<ptrdiff_t>(known_end));
  }
  const auto draft = std::span(active.draft).first(chunk.n_draft());
  input.tokens.insert(input.tokens.end(), draft.begin(), draft.end());
  if (!chunk.shares_row) add_memory(chunk, is_new, input);
  const SamplerOptions& sampling = request.sampling;
  input.sampling = {.constants = sampler_constants(sampling),
                    .n_bias = static_cast<uint32_t>(sampling.logit_bias.size()),
                    .has_penalties = has_penalties(sampling),
                    .has_mask = request.constraint != nullptr,
                    .plain_greedy = is_plain_greedy(sampling) && request.constraint == nullptr,
                    .log_probs = request.log_probs};
  if (is_new) {
    input.new_slot = {.logit_bias = sampling.logit_bias,
                      .n_prompt = active.n_prompt,
                      .has_penalties = input.sampling.has_penalties};
    if (input.sampling.has_penalties) input.new_slot->counted.assign(tokens.begin(), tokens.end());
  }
  // Those that are still being sampled by the step before count too.
  input.output_index = next_output_index(chunk.request) + (uint64_t{end} - tokens.size());
  if (const size_t scored_end = std::min<size_t>(uint64_t{end} + 1, active.n_prompt);
      request.on_score && chunk.first_position + 1 < scored_end) {
    input.scored.assign(tokens.begin() + chunk.first_position + 1,
                        tokens.begin() + static_cast<ptrdiff_t>(scored_end));
  }
  const bool may_have_drafts =
      request.drafter || (active.matcher && scheduler_.most_draft_of_any() > 0);
  input.rows_alike =
      may_have_drafts && (chunk.n_draft() > 0 ||
                          chunk.first_position >= uint64_t{active.n_prompt} + active.n_restored);
  input.adapter = request.adapter;
  input.wants_hidden = bool{request.on_hidden};
  if (request.give) {
    input.given.resize(size_t{chunk.n_tokens} * limits_.given_width);
    request.give(chunk.first_position, input.given);
  }
  if (request.on_logits) {
    input.first_logits = request.first_logits;
    input.end_logits =
        request.logits == GenerationRequest::Logits::kComputed ? end : active.n_prompt;
  }
  return input;
}

/// Where on the device it reads and writes. Steps under way read no entry of a table that changes.
void Requests::add_memory(const StepChunk& chunk, bool is_new, ChunkInput& input) const {
  const PageKinds& groups = scheduler_.cache().kinds();
  const uint32_t block_tokens = scheduler_.cache().options().block_tokens;
  const uint32_t end = chunk.first_position + chunk.n_tokens;
  const uint32_t first_entry = is_new ? 0 : chunk.first_position / block_tokens;
  const uint32_t end_entry = (end - 1) / block_tokens + 1;
  for (uint32_t group = 0; group < groups.size(); ++group) {
    TableInput& table = input.tables.emplace_back(TableInput{.first = first_entry});
    StateInput& state = input.states.emplace_back();
    if (groups.is_recurrent(group)) {
      state = {.before = scheduler_.state(chunk.request, group, chunk.first_position),
               .after = scheduler_.state(chunk.request, group, end)};
      continue;
    }
    const std::span<const PageId> blocks = scheduler_.blocks(chunk.request, group);
    table.blocks.assign(blocks.begin() + first_entry, blocks.begin() + end_entry);
  }
}

bool Requests::finish_transfers(const StepPlan& plan, const TransferFailures& failures) {
  if (!scheduler_.finish_transfers(plan, failures)) return false;
  if (scheduler_.counts(plan.id)) return true;
  scheduler_.rollback(plan.id);
  return false;
}

uint32_t Requests::n_agreed(const StepChunk& chunk, const ChunkInput& input,
                            std::span<const SampledRow> rows) {
  if (rows.empty()) return 0;
  const auto draft = std::span(input.tokens).last(chunk.n_draft());
  uint32_t n = 1;
  while (n < rows.size() && rows[n - 1].token == draft[n - 1]) ++n;
  return n;
}

/// Its tokens up to the one that ends its request.
std::vector<Requests::ReadToken> Requests::read_chunk(const StepChunk& chunk,
                                                      std::span<SampledRow> rows) {
  Active& active = requests_.at(chunk.request);
  const uint32_t first = chunk.first_position + chunk.n_tokens - chunk.n_samples;
  std::vector<ReadToken> read;
  for (SampledRow& row : rows) {
    const auto n = static_cast<uint32_t>(read.size());
    ReadToken& next = read.emplace_back(ReadToken{.event = {.request = chunk.request,
                                                            .log_probs = std::move(row.log_probs),
                                                            .computed_tokens = first + n + 1}});
    next.ended_by = read_token(active, row.token, next.event);
    if (next.ended_by != EndReason::kNone) break;
  }
  return read;
}

void Requests::commit(const StepInput& step, std::span<SampledRow> sampled, double now_s,
                      double seconds) {
  const std::vector<StepChunk>& chunks = step.plan.chunks;
  std::vector<std::vector<ReadToken>> read(chunks.size());
  std::vector<TokenId> tokens;
  tokens.reserve(sampled.size());
  std::vector<std::span<const TokenId>> taken(chunks.size());
  for (size_t i = 0; i < chunks.size(); ++i) {
    const std::span<SampledRow> rows = sampled.first(chunks[i].n_samples);
    sampled = sampled.subspan(chunks[i].n_samples);
    if (!scheduler_.counts(step.plan.id, i)) continue;
    read[i] = read_chunk(chunks[i], rows.first(n_agreed(chunks[i], step.chunks[i], rows)));
    for (const ReadToken& one : read[i]) tokens.push_back(*one.event.token);
    taken[i] = std::span(tokens).last(read[i].size());
  }
  if (std::isfinite(seconds)) {
    uint32_t n_draft = 0;
    for (const StepChunk& chunk : chunks) n_draft += chunk.n_draft();
    most_draft_measured_ = std::max(most_draft_measured_, n_draft);
  }
  const std::vector<ChunkOutcome> outcomes = scheduler_.commit(step.plan.id, taken, now_s, seconds);
  for (size_t i = 0; i < chunks.size(); ++i) {
    if (!outcomes[i].counts) continue;
    if (read[i].empty()) {
      tell({.request = chunks[i].request,
            .computed_tokens = chunks[i].first_position + chunks[i].n_tokens},
           EndReason::kNone, now_s);
      continue;
    }
    Active& active = requests_.at(chunks[i].request);
    const auto n_right = static_cast<uint32_t>(read[i].size()) - 1;
    active.drafts.add(chunks[i].n_draft(), n_right);
    if (chunks[i].n_draft() > 0) active.policy.verified(n_right);
    for (ReadToken& one : read[i]) {
      tell(std::move(one.event), one.ended_by, now_s, &one == &read[i].back());
    }
  }
}

namespace {

bool ends_request(const GenerationRequest& request, TokenId token) {
  if (std::ranges::find(request.end_tokens, token) != request.end_tokens.end()) return true;
  return request.tokenizer != nullptr && !request.ignore_end &&
         request.tokenizer->vocabulary().ends_generation(token);
}

}  // namespace

/// Its text is where it was after what was told of it.
void Requests::begin_text(Active& active) {
  const GenerationRequest& request = active.request;
  if (request.tokenizer == nullptr) return;
  active.stream = std::make_unique<TextStream>(request.tokenizer, request.stop_strings);
  active.sentences = nullptr;
  if (request.delivery == GenerationRequest::Delivery::kSentence) {
    active.sentences = std::make_unique<SentenceStream>();
  }
  const size_t n_given = request.prompt_text_given ? active.n_restored : 0;
  for (const TokenId token : std::span(active.told).subspan(n_given)) (void)text_of(active, token);
}

/// What became final with it.
std::string Requests::text_of(Active& active, TokenId token) {
  if (!active.stream) return {};
  std::string text = active.stream->feed(token);
  return active.sentences ? active.sentences->feed(text) : text;
}

/// All that is held back.
std::string Requests::rest_of(Active& active) {
  if (!active.stream) return {};
  std::string text = active.stream->flush();
  if (!active.sentences) return text;
  text = active.sentences->feed(text);
  return text + active.sentences->flush();
}

/// Why it is the last one, if it is for what it says. That it was read is known to the stream alone
/// until the event is told.
EndReason Requests::read_token(Active& active, TokenId token, StepEvent& event) {
  event.token = token;
  if (ends_request(active.request, token)) return EndReason::kStop;
  const EndReason constrained = constrain(active, token);
  if (!active.stream) return constrained;
  event.text = text_of(active, token);
  return active.stream->stopped() ? EndReason::kStopString : constrained;
}

namespace {

template <typename T>
void make_room_for_one(std::vector<T>& values) {
  if (values.size() == values.capacity()) values.reserve(2 * values.size() + 8);
}

}  // namespace

/// The event is one of a request that the step has changed, or ended: the last such one or not. Told
/// is told: what may fail comes before, and what is left behind `start_over` can do as well.
void Requests::tell(StepEvent event, EndReason ended_by, double now_s, bool is_last) {
  const RequestId id = event.request;
  const auto it = requests_.find(id);
  Active& active = it->second;
  if (ended_by != EndReason::kNone) scheduler_.end(id, ended_by, now_s);
  event.finished = is_last && scheduler_.request(id).ended();
  if (event.finished) {
    event.text += rest_of(active);
    event.report = report_of(id, ended_by);
  }
  for (auto* tokens : {&active.told, &active.tokens}) make_room_for_one(*tokens);
  make_room_for_one(events_);
  // From here to the end of its request nothing fails.
  if (event.token) {
    active.told.push_back(*event.token);
    active.tokens.push_back(*event.token);
  }
  events_.push_back(std::move(event));
  if (!is_last) return;
  if (scheduler_.request(id).ended()) {
    requests_.erase(it);
    scheduler_.remove(id);
  } else if (active.tokens.size() > limits_.window_tokens) {
    shift_window(id);
  }
}

/// A request's window is full: drop its older tokens and go on with the rest, recomputed.
void Requests::shift_window(RequestId id) {
  Active& active = requests_.at(id);
  std::vector<TokenId> tokens = active.tokens;
  const size_t kept = limits_.overflow == OverflowPolicy::kShift
                          ? std::min<size_t>(limits_.keep_tokens, limits_.window_tokens / 2)
                          : 0;
  const size_t n_dropped = (tokens.size() - kept + 1) / 2;
  const auto first = tokens.begin() + static_cast<ptrdiff_t>(kept);
  tokens.erase(first, first + static_cast<ptrdiff_t>(n_dropped));
  const size_t from_prompt =
      std::min(n_dropped, active.n_prompt > kept ? active.n_prompt - kept : 0);
  scheduler_.restart(id, tokens);
  active.n_prompt -= static_cast<uint32_t>(from_prompt);
  ++active.shifts;
  active.tokens = std::move(tokens);
}

void Requests::start_over() {
  Scheduler scheduler = Scheduler::in_place_of(scheduler_);
  for (const auto& [id, active] : requests_) {
    scheduler.adopt(scheduler_.request(id), active.tokens,
                    static_cast<uint32_t>(active.told.size()) - active.n_restored);
  }
  for (auto& [id, active] : requests_) {
    // It has accepted what was told, and perhaps more.
    if (active.matcher) active.matcher->rollback(active.matcher->n_tokens() - active.told.size());
    begin_text(active);
  }
  scheduler_ = std::move(scheduler);
  for (auto& [id, active] : requests_) {
    if (active.tokens.size() > limits_.window_tokens) shift_window(id);
  }
}

// ---- of a request under way

uint64_t Requests::next_output_index(RequestId id) const {
  return requests_.at(id).request.first_output_index + scheduler_.request(id).generated_tokens;
}

const GenerationRequest* Requests::find(RequestId id) const {
  const auto it = requests_.find(id);
  return it != requests_.end() ? &it->second.request : nullptr;
}

/// What a request that made way is computing again was delivered.
void Requests::deliver_score(RequestId id, uint32_t position, TokenId token,
                             const TokenLogProbs& log_probs) {
  const auto it = requests_.find(id);
  if (it == requests_.end() || position < it->second.n_scored) return;
  it->second.n_scored = position + 1;
  it->second.request.on_score(position, token, log_probs);
}

void Requests::deliver_logits(RequestId id, uint32_t position,
                              std::span<const float> logits) const {
  const auto it = requests_.find(id);
  if (it != requests_.end()) it->second.request.on_logits(position, logits);
}

void Requests::deliver_hidden(RequestId id, uint32_t position, TokenId token,
                              std::span<const float> row) const {
  const auto it = requests_.find(id);
  if (it != requests_.end()) it->second.request.on_hidden(position, token, row);
}

Status Requests::check_integrity() const {
  PUMICE_TRY_STATUS(scheduler_.check_integrity());
  for (const auto& [id, active] : requests_) {
    const Request& request = scheduler_.request(id);
    if (request.ended()) {
      return make_error(ErrorCode::kInternal, "request {} has ended and is still here", id);
    }
    if (scheduler_.tokens(id).size() != request.sequence_tokens) {
      return make_error(ErrorCode::kInternal, "request {} has {} tokens of {}", id,
                        scheduler_.tokens(id).size(), request.sequence_tokens);
    }
    if (!std::ranges::equal(scheduler_.tokens(id), active.tokens) ||
        request.generated_tokens + active.n_restored != active.told.size()) {
      return make_error(ErrorCode::kInternal, "request {} has other tokens than it was told", id);
    }
  }
  if (requests_.size() != scheduler_.n_waiting() + scheduler_.n_running()) {
    return make_error(ErrorCode::kInternal, "{} requests, {} wait and {} run", requests_.size(),
                      scheduler_.n_waiting(), scheduler_.n_running());
  }
  return {};
}

}  // namespace pumice
