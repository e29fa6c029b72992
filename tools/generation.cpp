#include "tools/generation.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <utility>

#include "tools/interrupt.hpp"
#include "tools/terminal.hpp"

namespace pumice::tools {
namespace {

using Clock = std::chrono::steady_clock;

double milliseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

constexpr std::chrono::milliseconds kInterruptInterval(50);

/// What comes of requests, put together.
class Follower {
 public:
  Follower(host::Host& host, std::span<const host::Submitted> requests, const TextSink& sink,
           const AnswerSink& answers)
      : host_(host),
        requests_(requests),
        sink_(sink),
        answers_(answers),
        bar_("reading the prompt") {
    for (const host::Submitted& request : requests) {
      generations_.emplace_back().timings.prompt_tokens = request.prompt_tokens;
    }
  }

  Result<std::vector<Generation>> run();

 private:
  Status cancel();
  void take_events();
  void add(host::Event& event, size_t which);
  bool finished() const { return n_finished_ == requests_.size(); }

  host::Host& host_;
  const std::span<const host::Submitted> requests_;
  const TextSink& sink_;
  const AnswerSink& answers_;
  ProgressBar bar_;
  const Clock::time_point start_ = Clock::now();
  std::vector<Generation> generations_;
  Status status_;  // of a request that failed
  size_t n_finished_ = 0;
  bool listening_ = true;
};

Result<std::vector<Generation>> Follower::run() {
  const InterruptGuard interrupt;
  Status failed;  // of a step
  while (!finished()) {
    const bool gives_up = InterruptGuard::interrupted() || !listening_ || !failed.ok();
    if (gives_up) PUMICE_TRY_STATUS(cancel());
    const Status polled = host_.poll(Submitter::kNoBudget);
    take_events();
    if (finished()) break;
    // Of a lost device the host knows when there is no more hope: then requests end.
    if (failed.ok() && !polled.ok() && polled.error().code != ErrorCode::kDeviceLost) {
      failed = polled;
      continue;
    }
    if (!gives_up) PUMICE_TRY_STATUS(host_.wait(kInterruptInterval));
  }
  PUMICE_TRY_STATUS(failed);
  PUMICE_TRY_STATUS(status_);
  for (Generation& generation : generations_) {
    generation.interrupted =
        InterruptGuard::interrupted() && generation.report.end_reason == EndReason::kCancelled;
    Timings& timings = generation.timings;
    timings.cached_tokens = generation.report.cache.cached_tokens;
    timings.truncated_tokens = generation.report.truncated_tokens;
    timings.new_tokens = generation.tokens.size();
  }
  return std::move(generations_);
}

/// Those that have ended stay what they are, and are not known any more.
Status Follower::cancel() {
  for (const host::Submitted& request : requests_) {
    const Status cancelled = host_.cancel(request.id);
    if (!cancelled.ok() && cancelled.error().code != ErrorCode::kNotFound) return cancelled;
  }
  return {};
}

void Follower::take_events() {
  while (true) {
    const Result<host::Event*> event = host_.next_event();
    if (!event.ok() || *event == nullptr) return;
    const auto which = std::ranges::find(requests_, (*event)->request, &host::Submitted::id);
    if (which != requests_.end()) add(**event, static_cast<size_t>(which - requests_.begin()));
  }
}

void Follower::add(host::Event& event, size_t which) {
  Generation& generation = generations_[which];
  Timings& timings = generation.timings;
  const bool finished = event.kind == host::Event::Kind::kFinished;
  if (finished) {
    ++n_finished_;
    if (!event.status.ok()) status_ = event.status;
    generation.report = std::move(event.ending->report);
    generation.n_forgotten = event.ending->n_forgotten;
  }
  if (event.token) {
    if (timings.ttft_ms == 0) timings.ttft_ms = milliseconds_since(start_);
    if (generation.report.end_reason != EndReason::kStop) {
      timings.decode_ms = milliseconds_since(start_) - timings.ttft_ms;
      generation.tokens.push_back(*event.token);
      if (event.log_probs) generation.log_probs.push_back(*std::move(event.log_probs));
    }
  } else if (!finished && which == 0) {
    bar_.update(event.computed_tokens, timings.prompt_tokens);
  }
  generation.text += event.text;
  if (which == 0 && !event.text.empty() && listening_) listening_ = sink_(event.text);
  if (which == 0 && !event.answer.empty() && listening_ && answers_) {
    listening_ = answers_(event.answer);
  }
  for (AnswerEvent& one : event.answer) append_event(std::move(one), generation.answer);
}

nlohmann::json log_prob_json(TokenId token, float log_prob) {
  return {{"token", token}, {"logprob", log_prob}};
}

}  // namespace

double Timings::prefill_rate() const {
  const size_t not_computed = truncated_tokens + cached_tokens;
  if (ttft_ms <= 0 || not_computed >= prompt_tokens) return 0;
  return 1e3 * static_cast<double>(prompt_tokens - not_computed) / ttft_ms;
}

double Timings::decode_rate() const {
  return new_tokens > 1 && decode_ms > 0 ? 1e3 * static_cast<double>(new_tokens - 1) / decode_ms
                                         : 0;
}

Result<Generation> follow(host::Host& host, const host::Submitted& request, const TextSink& sink,
                          const AnswerSink& answers) {
  PUMICE_TRY(std::vector<Generation> generations, follow_all(host, {&request, 1}, sink, answers));
  return std::move(generations[0]);
}

Result<std::vector<Generation>> follow_all(host::Host& host,
                                           std::span<const host::Submitted> requests,
                                           const TextSink& sink, const AnswerSink& answers) {
  return Follower(host, requests, sink, answers).run();
}

nlohmann::json log_probs_json(const Generation& generation) {
  nlohmann::json all = nlohmann::json::array();
  for (size_t i = 0; i < generation.log_probs.size(); ++i) {
    const TokenLogProbs& its = generation.log_probs[i];
    nlohmann::json one = log_prob_json(generation.tokens[i], its.log_prob);
    one["top"] = nlohmann::json::array();
    for (const TokenLogProb& best : its.best) {
      one["top"].push_back(log_prob_json(best.token, best.log_prob));
    }
    all.push_back(std::move(one));
  }
  return all;
}

nlohmann::json timings_json(const Generation& generation) {
  const Timings& t = generation.timings;
  return {{"prompt_n", t.prompt_tokens}, {"cache_n", t.cached_tokens},
          {"prompt_ms", t.ttft_ms},      {"prompt_per_second", t.prefill_rate()},
          {"ttft_ms", t.ttft_ms},        {"predicted_n", t.new_tokens},
          {"predicted_ms", t.decode_ms}, {"predicted_per_second", t.decode_rate()}};
}

nlohmann::json spec_json(const DraftCounts& drafts) {
  const auto* const end = std::ranges::find(drafts.drafted_at, 0u);
  const auto n = static_cast<size_t>(end - drafts.drafted_at.begin());
  const auto first = [n](const auto& counts) {
    return std::vector<uint32_t>(counts.begin(), counts.begin() + n);
  };
  return {{"drafted", drafts.drafted},
          {"accepted", drafts.accepted},
          {"drafted_by_position", first(drafts.drafted_at)},
          {"accepted_by_position", first(drafts.accepted_at)}};
}

void print_rates(const Generation& generation) {
  const Timings& t = generation.timings;
  const RequestReport& report = generation.report;
  std::string cached;
  if (t.cached_tokens > 0 || report.cache.miss == MissReason::kEvicted ||
      report.cache.miss == MissReason::kModel) {
    cached = fmt::format(" ({} cached", t.cached_tokens);
    if (report.cache.miss != MissReason::kNone) {
      cached += fmt::format("; {}", miss_reason_name(report.cache.miss));
    }
    cached += ")";
  }
  print_message("prompt {}{}, TTFT {:.1f} ms, prefill {:.1f} tok/s, decode {} {:.1f} tok/s\n",
                counted(t.prompt_tokens, "token"), cached, t.ttft_ms, t.prefill_rate(),
                counted(t.new_tokens, "token"), t.decode_rate());
  if (report.drafts.drafted > 0) {
    print_message("{} guessed, {} accepted\n", counted(report.drafts.drafted, "token"),
                  report.drafts.accepted);
  }
  if (report.truncated_tokens > 0) {
    print_notice("the prompt did not fit: its first {} left out\n",
                 report.truncated_tokens == 1
                     ? std::string("token was")
                     : fmt::format("{} tokens were", report.truncated_tokens));
  }
  if (report.shifts > 0) {
    print_notice("the context was full {}: older tokens were dropped\n",
                 counted(report.shifts, "time"));
  }
  if (report.end_reason == EndReason::kWindow) {
    print_notice(
        "stopped: the context is full (-c sets its size, --overflow shift continues past it)\n");
  }
}

}  // namespace pumice::tools
