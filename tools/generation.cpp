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

/// Ends a request however the call that made it returns.
class RequestGuard {
 public:
  RequestGuard(Engine& engine, RequestId id) : engine_(engine), id_(id) {}
  ~RequestGuard() { engine_.cancel(id_); }
  RequestGuard(const RequestGuard&) = delete;
  RequestGuard& operator=(const RequestGuard&) = delete;

 private:
  Engine& engine_;
  RequestId id_;
};

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

Recover recover_by(host::Recovery& recovery, Engine& engine) {
  return [&recovery, &engine](const Error& loss) {
    print_message("{}; opening it again\n", loss.message);
    Engine* const lost = &engine;
    return recovery.recover({&lost, 1});
  };
}

Result<Generation> generate(Engine& engine, GenerationRequest request, const TextSink& sink,
                            const Recover& recover) {
  Generation generation;
  Timings& timings = generation.timings;
  timings.prompt_tokens = request.prompt.size();
  const InterruptGuard interrupt;
  ProgressBar bar("reading the prompt");
  const auto start = Clock::now();
  PUMICE_TRY(const RequestId id, engine.submit(std::move(request)));
  const RequestGuard guard(engine, id);
  bool listening = true;
  const auto add_text = [&](const std::string& text) {
    generation.text += text;
    if (!text.empty()) listening = sink(text);
  };
  bool finished = false;
  while (!finished && listening) {
    if (InterruptGuard::interrupted()) {
      generation.interrupted = true;
      break;
    }
    Result<std::vector<StepEvent>> stepped = engine.step();
    if (!stepped.ok() && stepped.error().code == ErrorCode::kDeviceLost && recover) {
      PUMICE_TRY_STATUS(recover(stepped.error()));
      continue;
    }
    PUMICE_TRY(const std::vector<StepEvent> events, std::move(stepped));
    PUMICE_CHECK(!events.empty(), "the engine is not idle and did nothing");
    for (const StepEvent& event : events) {
      if (event.request != id) continue;
      finished = event.finished;
      if (finished) generation.report = *event.report;
      if (event.token) {
        if (timings.ttft_ms == 0) timings.ttft_ms = milliseconds_since(start);
        if (generation.report.end_reason != EndReason::kStop) {
          timings.decode_ms = milliseconds_since(start) - timings.ttft_ms;
          generation.tokens.push_back(*event.token);
        }
      } else {
        bar.update(event.computed_tokens, timings.prompt_tokens);
      }
      add_text(event.text);
    }
  }
  if (!finished) {
    generation.report = engine.cancel(id).value_or(RequestReport{});
    add_text(generation.report.held_text);
  }
  timings.cached_tokens = generation.report.cache.cached_tokens;
  timings.truncated_tokens = generation.report.truncated_tokens;
  timings.new_tokens = generation.tokens.size();
  return generation;
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
