#include "tools/generation.hpp"

#include <fmt/core.h>

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

/// What comes of one request, put together.
class Follower {
 public:
  Follower(host::Host& host, const host::Submitted& request, const TextSink& sink)
      : host_(host), request_(request), sink_(sink), bar_("reading the prompt") {
    generation_.timings.prompt_tokens = request.prompt_tokens;
  }

  Result<Generation> run();

 private:
  void take_events();
  void add(host::Event& event);

  host::Host& host_;
  const host::Submitted request_;
  const TextSink& sink_;
  ProgressBar bar_;
  const Clock::time_point start_ = Clock::now();
  Generation generation_;
  Status status_;  // of the request
  bool finished_ = false;
  bool listening_ = true;
};

Result<Generation> Follower::run() {
  const InterruptGuard interrupt;
  Status failed;  // of a step
  while (!finished_) {
    const bool gives_up = InterruptGuard::interrupted() || !listening_ || !failed.ok();
    if (gives_up) PUMICE_TRY_STATUS(host_.cancel(request_.id));
    const Status polled = host_.poll(Submitter::kNoBudget);
    take_events();
    if (finished_) break;
    // Of a lost device the host knows when there is no more hope: then the request ends.
    if (failed.ok() && !polled.ok() && polled.error().code != ErrorCode::kDeviceLost) {
      failed = polled;
      continue;
    }
    if (!gives_up) PUMICE_TRY_STATUS(host_.wait(kInterruptInterval));
  }
  PUMICE_TRY_STATUS(failed);
  PUMICE_TRY_STATUS(status_);
  generation_.interrupted =
      InterruptGuard::interrupted() && generation_.report.end_reason == EndReason::kCancelled;
  Timings& timings = generation_.timings;
  timings.cached_tokens = generation_.report.cache.cached_tokens;
  timings.truncated_tokens = generation_.report.truncated_tokens;
  timings.new_tokens = generation_.tokens.size();
  return std::move(generation_);
}

void Follower::take_events() {
  while (true) {
    const Result<host::Event*> event = host_.next_event();
    if (!event.ok() || *event == nullptr) return;
    if ((*event)->request == request_.id) add(**event);
  }
}

void Follower::add(host::Event& event) {
  Timings& timings = generation_.timings;
  finished_ = event.kind == host::Event::Kind::kFinished;
  if (finished_) {
    status_ = event.status;
    generation_.report = std::move(event.ending->report);
    generation_.n_forgotten = event.ending->n_forgotten;
  }
  if (event.token) {
    if (timings.ttft_ms == 0) timings.ttft_ms = milliseconds_since(start_);
    if (generation_.report.end_reason != EndReason::kStop) {
      timings.decode_ms = milliseconds_since(start_) - timings.ttft_ms;
      generation_.tokens.push_back(*event.token);
    }
  } else if (!finished_) {
    bar_.update(event.computed_tokens, timings.prompt_tokens);
  }
  generation_.text += event.text;
  if (!event.text.empty() && listening_) listening_ = sink_(event.text);
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

Result<Generation> follow(host::Host& host, const host::Submitted& request, const TextSink& sink) {
  return Follower(host, request, sink).run();
}

nlohmann::json timings_json(const Generation& generation) {
  const Timings& t = generation.timings;
  return {{"prompt_n", t.prompt_tokens}, {"cache_n", t.cached_tokens},
          {"prompt_ms", t.ttft_ms},      {"prompt_per_second", t.prefill_rate()},
          {"ttft_ms", t.ttft_ms},        {"predicted_n", t.new_tokens},
          {"predicted_ms", t.decode_ms}, {"predicted_per_second", t.decode_rate()}};
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
