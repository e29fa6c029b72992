#include "tests/model_fuzz/fuzz_world.hpp"

#include <fmt/core.h>

#include <set>

namespace pumice::model_fuzz {
namespace {

template <typename Random>
SchedulerOptions random_options(Random& random, uint32_t block_tokens) {
  const auto pick = [&](uint32_t n) { return static_cast<uint32_t>(random() % n); };
  SchedulerOptions options;
  options.token_budget = block_tokens + pick(30);
  options.chunk_tokens = 1 + pick(24);
  options.max_running = 1 + pick(7);
  options.max_partial_prefills = 1 + pick(4);
  options.window_tokens = pick(2) == 0 ? 0 : 12 + pick(40);
  options.stop_at_window = pick(2) == 0;
  options.spare_logit_rows = pick(3) == 0 ? 0 : pick(8);
  if (pick(3) == 0) {
    for (uint32_t& reserved : options.reserved_decode_tokens) reserved = pick(4);
  }
  options.aging_s = pick(4) == 0 ? 0 : 0.02 * (1 + pick(30));
  return options;
}

Scheduler made(const SchedulerOptions& options, const KvCacheOptions& cache) {
  return std::move(*Scheduler::create(options, cache));
}

}  // namespace

World::World(uint64_t seed)
    : random_(seed),
      n_classes_(pick(3) == 0 ? 1 : kServiceClasses),
      cache_options_(random_cache(random_)),
      scheduler_(
          made(options_ = random_options(random_, cache_options_.block_tokens), cache_options_)),
      naive_(options_, cache_options_),
      device_(cache_options_.block_tokens, naive_kinds(cache_options_.kinds)) {
  options_.chunk_tokens = std::min(options_.chunk_tokens, options_.token_budget);
}

std::string World::description() const {
  return fmt::format("{}, budget {}, chunk {}, running {}, partial {}, window {}{}",
                     described(cache_options_), options_.token_budget, options_.chunk_tokens,
                     options_.max_running, options_.max_partial_prefills, options_.window_tokens,
                     options_.stop_at_window ? "" : ", restarts") +
         fmt::format(", aging {}", options_.aging_s);
}

void World::diverged(const std::string& what) const { throw Divergence(what); }

void World::same(uint64_t product, uint64_t reference, const char* what, RequestId id) const {
  if (product == reference) return;
  diverged(
      fmt::format("{} of request {}: {}, the reference says {}", what, id, product, reference));
}

void World::step() {
  const uint32_t choice = pick(100);
  if (choice < 16) {
    arrive();
  } else if (choice < 22) {
    end_one();
  } else if (choice < 27) {
    remove_one();
  } else if (choice < 30) {
    ask();
  } else if (choice < 36) {
    draft();
  } else if (choice < 62) {
    plan();
  } else if (choice < 64) {
    if (!flights_.empty()) fail(pick(static_cast<uint32_t>(flights_.size())));
  } else if (choice < 66) {
    run(true);
  } else if (choice < 76) {
    run(false);
  } else if (choice < 99 || chance(70)) {
    commit();
  } else {
    lose_device();
  }
  now_ += 0.01;
  compare();
}

// ---- requests

/// Something seen before, cut anywhere and continued anyhow.
Tokens World::random_tokens() {
  Tokens tokens;
  if (!texts_.empty() && chance(80)) {
    tokens = texts_[pick(static_cast<uint32_t>(texts_.size()))].second;
    if (chance(70)) tokens.resize(pick(static_cast<uint32_t>(tokens.size()) + 1));
  }
  for (uint32_t n = chance(30) ? 0 : pick(chance(20) ? 40 : 10); n > 0; --n) {
    tokens.push_back(pick(3));
  }
  return tokens;
}

void World::arrive() {
  RequestSpec spec;
  spec.prompt = random_tokens();
  spec.max_new_tokens = pick(14);
  spec.service_class = static_cast<ServiceClass>(pick(n_classes_));
  spec.priority = static_cast<int32_t>(pick(3)) - 1;
  if (chance(15)) spec.deadline_s = now_ + 0.01 * pick(60);
  if (chance(30)) spec.salt = "a";
  spec.runs_ahead = chance(80);
  spec.has_prompt_logits = chance(10);
  if (chance(10)) spec.max_tokens_per_s = 5 + pick(100);
  if (chance(20)) spec.id = pick(30);
  const RequestSpec sent = spec;
  const Result<RequestId> id = scheduler_.add(std::move(spec), now_);
  const bool expected = naive_.fits(sent.prompt.size(), sent.max_new_tokens) &&
                        !(sent.id && naive_.requests().contains(*sent.id));
  if (id.ok() != expected)
    diverged(id.ok() ? "a request is taken that must not be" : id.error().message);
  if (!id.ok()) return;
  if (sent.id && *id != *sent.id) diverged("a request gets another id than it came with");
  if (naive_.requests().contains(*id)) diverged("an id is given twice");
  texts_.emplace_back(sent.salt, sent.prompt);
  NaiveRequest request;
  request.id = *id;
  request.service_class = sent.service_class;
  request.priority = sent.priority;
  request.deadline_s = sent.deadline_s;
  request.runs_ahead = sent.runs_ahead;
  request.has_prompt_logits = sent.has_prompt_logits;
  request.token_s = sent.max_tokens_per_s > 0 ? 1 / sent.max_tokens_per_s : 0;
  request.salt = sent.salt;
  request.max_new = sent.max_new_tokens;
  request.tokens = sent.prompt;
  naive_.add(request);
}

void World::end_one() {
  if (naive_.requests().empty()) return;
  auto it = naive_.requests().begin();
  std::advance(it, pick(static_cast<uint32_t>(naive_.requests().size())));
  constexpr EndReason kReasons[] = {EndReason::kCancelled, EndReason::kStop, EndReason::kStopString,
                                    EndReason::kError};
  const EndReason reason = kReasons[pick(4)];
  if (reason == EndReason::kCancelled) {
    scheduler_.cancel(it->first, now_);
  } else {
    scheduler_.end(it->first, reason, now_);
  }
  naive_.end(it->first, reason);
}

void World::remove_one() {
  std::vector<RequestId> ended;
  for (const auto& [id, request] : naive_.requests()) {
    if (request.ended()) ended.push_back(id);
  }
  if (ended.empty()) return;
  const RequestId id = ended[pick(static_cast<uint32_t>(ended.size()))];
  const NaiveRequest& request = naive_.request(id);
  texts_.emplace_back(request.salt, request.tokens);
  if (texts_.size() > 40) texts_.erase(texts_.begin());
  scheduler_.remove(id);
  naive_.remove(id);
}

// ---- the cache by itself

void World::ask() {
  const Tokens tokens = random_tokens();
  if (tokens.empty()) return;
  const std::string salt = chance(50) ? "" : chance(80) ? "a" : "never";
  const KvCache& cache = scheduler_.cache();
  const CacheReport report = cache.look_up(cache.hash_prompt(tokens, salt));
  const NaiveCache::Found found = naive_.cache().find_for(tokens, salt);
  const uint32_t block_tokens = cache_options_.block_tokens;
  same(report.shared_tokens, found.full_blocks(block_tokens) * block_tokens, "shared tokens");
  same(report.copied_tokens, found.tail_tokens(block_tokens), "copied tokens");
  same(report.cached_tokens, found.tokens, "cached tokens");
  const NaiveCache::Blame blame = naive_.cache().blame(tokens, salt);
  same(report.shortened_by, blame.kind ? *blame.kind : kNoKind, "the group to blame");
  same(report.others_tokens, blame.others, "what the others have");
  same(report.miss == MissReason::kNone, report.cached_tokens + 1 == tokens.size(),
       "missing nothing");
}

// ---- steps

/// Of some request, right up to some token or to its end.
void World::draft() {
  std::vector<const NaiveRequest*> all;
  for (const auto& [id, request] : naive_.requests()) {
    same(scheduler_.most_draft(id), naive_.most_draft(request), "tokens that a draft may have", id);
    if (naive_.most_draft(request) > 0) all.push_back(&request);
  }
  if (all.empty()) return;
  const NaiveRequest& request = *all[pick(static_cast<uint32_t>(all.size()))];
  Tokens with_draft = request.tokens;
  const uint32_t n = 1 + pick(8);
  const uint32_t first_wrong = chance(40) ? n : pick(n);
  for (uint32_t i = 0; i < n; ++i) {
    const uint32_t right = token_after(with_draft, request.salt);
    with_draft.push_back(i == first_wrong ? (right + 1) % 3 : right);
  }
  drafts_[request.id] =
      Tokens(with_draft.begin() + static_cast<ptrdiff_t>(request.tokens.size()), with_draft.end());
  scheduler_.draft(request.id, n);
  naive_.draft(request.id, n);
}

void World::plan() {
  if (flights_.size() == Scheduler::kMaxOutstanding) return;
  Flight flight;
  flight.plan = scheduler_.plan_step(now_);
  check_plan(flight.plan, naive_.plan(now_));
  if (flight.plan.empty()) return;
  for (const StepChunk& chunk : flight.plan.chunks) {
    const NaiveRequest& request = naive_.request(chunk.request);
    NaiveDevice::Row row{chunk, {}, {}, request.tokens, request.salt};
    if (chunk.n_draft() > 0) {
      const Tokens& draft = drafts_.at(chunk.request);
      row.tokens.insert(row.tokens.end(), draft.begin(), draft.begin() + chunk.n_draft());
    }
    const PageKinds& kinds = scheduler_.cache().kinds();
    for (uint32_t g = 0; g < kinds.size(); ++g) {
      const std::span<const PageId> blocks = scheduler_.blocks(chunk.request, g);
      row.blocks.emplace_back(blocks.begin(), blocks.end());
      row.states.emplace_back(kNoPage, kNoPage);
      if (!kinds.is_recurrent(g)) continue;
      row.states.back() = {
          scheduler_.state(chunk.request, g, chunk.first_position),
          scheduler_.state(chunk.request, g, chunk.first_position + chunk.n_tokens)};
    }
    flight.rows.push_back(std::move(row));
  }
  flight.answered = flight.plan.transfers.empty();
  check_started(flight.plan);
  flights_.push_back(std::move(flight));
}

void World::check_plan(const StepPlan& plan, const NaivePlan& expected) {
  // What holds for any plan.
  uint32_t n_tokens = 0;
  uint32_t n_spare = 0;
  bool prefills = false;
  std::set<RequestId> seen;
  for (const StepChunk& chunk : plan.chunks) {
    n_tokens += chunk.n_tokens;
    if (chunk.n_tokens == 0) diverged("a chunk of nothing");
    if (!chunk.decodes && chunk.n_tokens > options_.chunk_tokens) diverged("a chunk is too long");
    if (chunk.decodes && (prefills || chunk.n_tokens != chunk.n_samples))
      diverged("a decoding row is late or does not sample");
    const bool all_rows = chunk.decodes || scheduler_.request(chunk.request).has_prompt_logits;
    n_spare += all_rows ? chunk.n_tokens - 1 : 0;
    prefills |= !chunk.decodes;
    if (!seen.insert(chunk.request).second) diverged("a request has two chunks in a step");
    if (!scheduler_.request(chunk.request).running()) diverged("a chunk without a sequence");
    if (scheduler_.request(chunk.request).slot != chunk.slot) diverged("a chunk of another slot");
  }
  if (n_tokens > options_.token_budget) diverged("a step exceeds its budget");
  if (n_spare > options_.spare_logit_rows) diverged("too many rows have logits");
  check_classes(plan);
  if (expected.fails_what_fits) diverged("a request fails that had room");
  // What the reference says.
  same(plan.chunks.size(), expected.chunks.size(), "chunks in a step");
  for (size_t i = 0; i < plan.chunks.size(); ++i) {
    const StepChunk& chunk = plan.chunks[i];
    const NaiveChunk& wanted = expected.chunks[i];
    same(chunk.request, wanted.request, "place in the step", chunk.request);
    same(chunk.first_position, wanted.first, "first position", chunk.request);
    same(chunk.n_tokens, wanted.n, "chunk tokens", chunk.request);
    same(chunk.n_samples, wanted.samples, "sampling", chunk.request);
    same(chunk.decodes, wanted.decodes, "decoding", chunk.request);
  }
  std::vector<RequestId> started;
  for (const auto& [id, life] : expected.started) started.push_back(id);
  if (plan.started != started) diverged("other requests are started");
  if (plan.preempted != expected.preempted) diverged("other requests are preempted");
  if (plan.ended != expected.ended) diverged("other requests are ended while planning");
  same(plan.transfers.copies.size(), expected.n_copies, "copies");
  if (!plan.empty()) same(plan.id, expected.id, "the plan's id");
}

/// Nobody of a lesser class is in a step in which a better one waits for a place.
void World::check_classes(const StepPlan& plan) {
  const std::vector<NaiveRequest*> waiting = naive_.waiting();
  const std::vector<NaiveRequest*> running = naive_.running();
  if (waiting.empty() || running.size() < options_.max_running) return;
  const auto partly_read = std::ranges::count_if(running, [&](const NaiveRequest* request) {
    return naive_.reads_prompt(*request) ||
           std::ranges::any_of(plan.chunks, [&](const StepChunk& chunk) {
             return chunk.request == request->id && !chunk.decodes;
           });
  });
  if (static_cast<size_t>(partly_read) >= options_.max_partial_prefills) return;
  for (const StepChunk& chunk : plan.chunks) {
    const NaiveRequest& served = naive_.request(chunk.request);
    if (!served.on_turn && served.class_rank() > waiting.front()->class_rank() &&
        !naive_.lacks_pages()) {
      diverged(fmt::format("request {} is served, and a better one, {}, waits for a place",
                           chunk.request, waiting.front()->id));
    }
  }
}

/// How many tokens of the prompt were ever committed and are to be found, if nothing was given up.
size_t World::ever_committed(const NaiveRequest& request) const {
  size_t ever = 0;
  for (const auto& [key, committed] : committed_) {
    if (committed.salt != request.salt) continue;
    size_t n = committed.tokens.size();
    if (!committed.ended) n -= n % cache_options_.block_tokens;
    ever = std::max(ever, std::min(n, common_length(committed.tokens, request.tokens)));
  }
  return std::min(ever, request.tokens.size() - 1);
}

void World::note_ends() {
  for (auto& [key, committed] : committed_) {
    if (committed.ended) continue;
    const auto it = naive_.requests().find(key.first);
    committed.ended = it == naive_.requests().end() || it->second.life != key.second;
  }
}

/// No more is cached than was ever committed; and all of that, when nothing was ever given up.
void World::check_started(const StepPlan& plan) {
  std::vector<size_t> before_the_plan;
  for (const RequestId id : plan.started)
    before_the_plan.push_back(ever_committed(naive_.request(id)));
  note_ends();  // some were preempted by this plan
  for (size_t i = 0; i < plan.started.size(); ++i) {
    const RequestId id = plan.started[i];
    const size_t cached = scheduler_.cache().report(*scheduler_.request(id).sequence).cached_tokens;
    if (cached > ever_committed(naive_.request(id)))
      diverged("more is cached than was ever committed");
    // States are not kept everywhere.
    const bool all_is_kept =
        cache_options_.n_pages == kUnlimitedPages && !naive_.cache().any_recurrent();
    if (all_is_kept && cached < before_the_plan[i]) {
      diverged("less is cached than was committed");
    }
  }
}

void World::answer(Flight& flight, bool good) {
  flight.answered = true;
  const bool stands = scheduler_.finish_transfers(flight.plan, {.all = !good});
  same(stands, naive_.answer(flight.plan.id, good), "whether a plan stands");
}

/// Run the oldest step that has not run, or its first half. False: there is none.
bool World::run(bool fails) {
  for (size_t i = 0; i < flights_.size(); ++i) {
    Flight& flight = flights_[i];
    if (flight.ran) continue;
    for (const PageCopy& copy : flight.plan.transfers.copies) device_.copy(copy);
    if (!flight.answered && !fails) answer(flight, true);
    size_t n_rows =
        fails ? pick(static_cast<uint32_t>(flight.rows.size()) + 1) : flight.rows.size();
    for (const NaiveDevice::Row& row : flight.rows) {
      if (n_rows-- == 0) break;
      flight.sampled.push_back(device_.run(row));
    }
    flight.ran = true;
    if (fails) fail(i);
    return true;
  }
  return false;
}

/// The step and those behind it did not run; transfers are answered in their order.
void World::fail(size_t index) {
  while (index > 0 && !flights_[index - 1].ran) run(false);
  Flight& failed = flights_[index];
  bool stands = true;
  if (!failed.answered) {
    failed.answered = true;
    stands = scheduler_.finish_transfers(failed.plan, {.all = true});
    same(stands, naive_.answer(failed.plan.id, false), "whether a failed plan stands");
  }
  if (stands) {
    scheduler_.rollback(failed.plan.id);
    naive_.rollback(failed.plan.id);
  }
  for (size_t i = index + 1; i < flights_.size(); ++i) {
    if (!flights_[i].answered) answer(flights_[i], false);
  }
  flights_.resize(index);
}

void World::lose_device() {
  scheduler_.lose_device();
  naive_.lose_device();
  device_ = NaiveDevice(cache_options_.block_tokens, naive_kinds(cache_options_.kinds));
  flights_.clear();
  committed_.clear();
}

void World::commit() {
  if (flights_.empty()) return;
  while (!flights_.front().ran) run(false);
  const Flight flight = std::move(flights_.front());
  flights_.pop_front();
  // As far as the draft said the same, or, where a text stops, not even that far.
  std::vector<Tokens> taken = flight.sampled;
  for (size_t i = 0; i < taken.size(); ++i) {
    const NaiveDevice::Row& row = flight.rows[i];
    size_t n = taken[i].empty() ? 0 : 1;
    while (n < taken[i].size() && row.tokens.at(row.chunk.first_position + n) == taken[i][n - 1]) {
      ++n;
    }
    taken[i].resize(n > 1 && chance(10) ? n - 1 : n);
  }
  const std::vector<std::span<const uint32_t>> spans(taken.begin(), taken.end());
  const std::vector<ChunkOutcome> outcomes =
      scheduler_.commit(flight.plan.id, spans, now_, std::numeric_limits<double>::quiet_NaN());
  const std::vector<NaiveChunk> chunks = naive_.open().front().chunks;
  const std::vector<bool> counted = naive_.commit(taken, now_);
  same(outcomes.size(), counted.size(), "outcomes");
  for (size_t i = 0; i < outcomes.size(); ++i) {
    const ChunkOutcome& outcome = outcomes[i];
    const RequestId id = chunks[i].request;
    same(outcome.request, id, "outcome", id);
    same(outcome.counts, counted[i], "whether a chunk counts", id);
    if (!counted[i]) continue;
    const NaiveRequest& request = naive_.request(id);
    same(outcome.sampled, chunks[i].samples > 0, "sampled", id);
    same(outcome.ended, request.ended(), "ended", id);
    const size_t n_refused = chunks[i].samples - taken[i].size();
    const size_t n_committed = n_refused > 0 ? request.computed : chunks[i].first + chunks[i].n;
    committed_[{id, chunks[i].life}] = {
        request.salt,
        {request.tokens.begin(), request.tokens.begin() + static_cast<ptrdiff_t>(n_committed)},
        false};
    Tokens prefix = request.tokens;
    for (size_t n = taken[i].size(); n > 0; --n) {  // what it would say alone
      const uint32_t token = prefix.back();
      prefix.pop_back();
      same(token, token_after(prefix, request.salt), "a next token", id);
    }
    if (options_.window_tokens != 0 && !request.ended() &&
        request.tokens.size() > options_.window_tokens) {
      const size_t n_kept = 1 + pick(options_.window_tokens);
      const Tokens kept(request.tokens.end() - static_cast<ptrdiff_t>(n_kept),
                        request.tokens.end());
      scheduler_.restart(id, kept);
      naive_.restart(id, kept);
    }
  }
}

// ---- comparing

void World::compare(const NaiveRequest& expected) {
  const RequestId id = expected.id;
  const Request& request = scheduler_.request(id);
  if (request.state != expected.state) {
    diverged(fmt::format("request {} is {}, the reference says {}", id,
                         request_state_name(request.state), request_state_name(expected.state)));
  }
  same(static_cast<uint64_t>(request.end_reason), static_cast<uint64_t>(expected.end_reason), "end",
       id);
  same(request.generated_tokens, expected.generated, "generated tokens", id);
  same(request.preemptions, expected.preemptions, "preemptions", id);
  const std::span<const uint32_t> tokens = scheduler_.tokens(id);
  const Tokens known = expected.ended() ? Tokens{} : expected.tokens;
  if (!std::ranges::equal(tokens, known)) diverged(fmt::format("request {} has other tokens", id));
  if (expected.ended()) return;
  same(request.sequence_tokens, expected.tokens.size(), "known tokens", id);
  same(request.computed_tokens, expected.computed, "computed tokens", id);
  same(request.scheduled_tokens, expected.scheduled, "scheduled tokens", id);
  same(request.pending_samples, expected.sampling, "tokens being sampled", id);
  if (!expected.running()) return;
  const NaiveCache::Sequence& sequence = naive_.cache().sequence(*expected.sequence);
  for (uint32_t g = 0; g < scheduler_.cache().kinds().size(); ++g) {
    const std::span<const PageId> blocks = scheduler_.blocks(id, g);
    same(blocks.size(), sequence.blocks[g].size(), "blocks", id);
    for (size_t i = 0; i < blocks.size(); ++i) {
      same(blocks[i] != kNoPage, sequence.blocks[g][i].has_value(), "a block", id);
    }
  }
  same(scheduler_.cache().report(*request.sequence).cached_tokens,
       naive_.cache().sequence(*expected.sequence).cached, "cached tokens", id);
}

/// One life of one request has a slot, from its start until no step under way names it.
void World::check_slots() const {
  std::map<uint32_t, std::pair<RequestId, uint64_t>> owners;
  const auto own = [&](std::optional<uint32_t> slot, RequestId id, uint64_t life) {
    if (!slot || *slot >= scheduler_.n_slots()) diverged(fmt::format("request {} has no slot", id));
    const auto [it, added] = owners.try_emplace(*slot, id, life);
    if (it->second == std::pair(id, life)) return;
    diverged(fmt::format("slot {} is of requests {} and {}", *slot, it->second.first, id));
  };
  for (const auto& [id, request] : naive_.requests()) {
    if (request.running()) own(scheduler_.request(id).slot, id, request.life);
  }
  for (size_t i = 0; i < flights_.size(); ++i) {
    for (size_t c = 0; c < flights_[i].plan.chunks.size(); ++c) {
      const NaiveChunk& chunk = naive_.open()[i].chunks[c];
      own(flights_[i].plan.chunks[c].slot, chunk.request, chunk.life);
    }
  }
}

void World::compare() {
  const Status integrity = scheduler_.check_integrity();
  if (!integrity.ok()) diverged(integrity.error().message);
  size_t n_running = 0;
  size_t n_waiting = 0;
  for (const auto& [id, request] : naive_.requests()) {
    compare(request);
    n_running += request.running() ? 1 : 0;
    n_waiting += request.state == RequestState::kWaiting ? 1 : 0;
  }
  same(scheduler_.n_running(), n_running, "running requests");
  same(scheduler_.n_waiting(), n_waiting, "waiting requests");
  same(scheduler_.outstanding(), naive_.open().size(), "open steps");
  same(scheduler_.outstanding(), flights_.size(), "flights");
  check_slots();
  same(scheduler_.cache().pool().n_free(), naive_.cache().n_free(), "free blocks");
  same(scheduler_.cache().n_pages(), naive_.cache().n_pages(), "blocks");
  note_ends();
}

void World::finish() {
  if (chance(50)) {  // let all of it end by itself
    for (int i = 0; i < 20000 && !scheduler_.idle(); ++i) {
      now_ += 0.01;
      plan();
      compare();
      commit();
      compare();
    }
    if (!scheduler_.idle()) diverged("requests wait for ever");
  }
  while (!flights_.empty()) {
    commit();
    compare();
  }
  for (const auto& [id, request] : naive_.requests()) {
    scheduler_.cancel(id, now_);
    naive_.end(id, EndReason::kCancelled);
  }
  compare();
  if (scheduler_.cache().pool().n_free() != scheduler_.cache().n_pages())
    diverged("blocks are leaked");
  const Telemetry& told = scheduler_.telemetry();
  const NaiveCounts& counts = naive_.counts();
  same(told.arrived, counts.arrived, "arrived");
  same(told.finished, counts.finished, "finished");
  same(told.cancelled, counts.cancelled, "cancelled");
  same(told.failed, counts.failed, "failed");
  same(told.preemptions, counts.preemptions, "all preemptions");
  same(told.steps, counts.steps, "steps");
  same(told.failed_steps, counts.failed_steps, "failed steps");
  same(told.computed_tokens, counts.computed, "all computed tokens");
  same(told.discarded_tokens, counts.discarded, "discarded tokens");
  same(told.generated_tokens, counts.generated, "all generated tokens");
}

}  // namespace pumice::model_fuzz
