// pumice bench --server: a load on a server, ours or another, as its clients see it.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>
#include <vector>

#include "base/path.hpp"
#include "bench/build_info.hpp"
#include "bench/load.hpp"
#include "tools/bench.hpp"
#include "tools/flag_values.hpp"
#include "tools/flags.hpp"
#include "tools/interrupt.hpp"
#include "tools/load_client.hpp"
#include "tools/terminal.hpp"

namespace pumice::tools {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint32_t kBlockTokens = 16;
constexpr uint32_t kMostClients = 1024;

Result<std::vector<bench::LoadRequest>> requests_of(const ServerFlags& flags) {
  Trace trace;
  if (!flags.trace.empty()) {
    PUMICE_TRY(trace, read_trace(from_utf8(flags.trace)));
    if (trace.requests.size() > flags.n_requests) trace.requests.resize(flags.n_requests);
    if (trace.requests.empty()) {
      return make_error(ErrorCode::kBadFile, "{}: the trace has no requests", flags.trace);
    }
  } else {
    trace = make_synthetic_trace({.n_requests = flags.n_requests,
                                  .requests_per_s = std::max(flags.rate, 1e-3),
                                  .n_system_prompts = flags.n_prefixes,
                                  .system_prompt_tokens = flags.prefix_tokens,
                                  .median_prompt_tokens = flags.prompt_tokens,
                                  .median_output_tokens = flags.output_tokens,
                                  .seed = flags.seed},
                                 kBlockTokens);
  }
  return bench::load_of(trace);
}

/// Threads that send one request after the other: each when it is due, or as soon as one of them is free.
class Load {
 public:
  Load(const ServerFlags& flags, ServerAddress address, std::string model,
       std::vector<bench::LoadRequest> requests)
      : flags_(flags),
        address_(std::move(address)),
        model_(std::move(model)),
        requests_(std::move(requests)),
        samples_(requests_.size()) {}

  /// The samples of those that were sent.
  std::vector<bench::LoadSample> run();
  double seconds() const { return seconds_; }

 private:
  void client();

  const ServerFlags& flags_;
  const ServerAddress address_;
  const std::string model_;
  const std::vector<bench::LoadRequest> requests_;
  std::vector<bench::LoadSample> samples_;
  Clock::time_point start_;
  double seconds_ = 0;
  std::atomic<size_t> next_ = 0;
  std::atomic<size_t> done_ = 0;
  ProgressBar bar_{"sending requests"};
};

void Load::client() {
  const bool has_times = flags_.rate > 0 || !flags_.trace.empty();
  while (!InterruptGuard::interrupted()) {
    const size_t i = next_++;
    if (i >= requests_.size()) return;
    const double due_s = requests_[i].arrival_s / flags_.speed_up;
    const auto due =
        start_ + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(due_s));
    while (has_times && Clock::now() < due && !InterruptGuard::interrupted()) {
      constexpr Clock::duration kNap = std::chrono::milliseconds(50);
      std::this_thread::sleep_for(std::min(kNap, due - Clock::now()));
    }
    samples_[i] = send_request(address_, model_, requests_[i], start_, InterruptGuard::interrupted);
    samples_[i].due_s = has_times ? due_s : samples_[i].sent_s;
    bar_.update(++done_, requests_.size());
  }
}

std::vector<bench::LoadSample> Load::run() {
  const InterruptGuard interrupt;
  start_ = Clock::now();
  std::vector<std::thread> threads;
  const size_t n = std::min<size_t>(flags_.n_clients, requests_.size());
  for (size_t i = 0; i < n; ++i) threads.emplace_back([this] { client(); });
  for (std::thread& thread : threads) thread.join();
  seconds_ = std::chrono::duration<double>(Clock::now() - start_).count();
  samples_.resize(std::min(next_.load(), samples_.size()));
  return std::move(samples_);
}

}  // namespace

void ServerFlags::add_to(CLI::App& command) {
  CLI::Option* const server = command
                                  .add_option("--server", url,
                                              "Send requests to this server (OpenAI's "
                                              "completions), and time them: http://HOST:PORT")
                                  ->type_name("URL");
  const auto needs = [&](CLI::Option* option) { return option->needs(server); };
  needs(
      add_number(command, "--clients", n_clients, 1u, kMostClients, "Requests under way at most"));
  needs(add_number(command, "--requests", n_requests, 1u, 1u << 20,
                   "How many, of a trace the first"));
  needs(add_number(
      command, "--rate", rate, 0, kMostNumber,
      "Arrivals a second, in bursts as chance has them (0: the next when one has ended)"));
  needs(command.add_option(
            "--load-trace", trace,
            "Arrivals, lengths and shared parts of Azure's CSV or Mooncake's JSONL instead"))
      ->type_name("FILE");
  needs(add_number(command, "--speed-up", speed_up, kLeastNumber, kMostNumber,
                   "Arrivals come this much faster"));
  needs(add_number(command, "--prefixes", n_prefixes, 1u, 1u << 16,
                   "Different beginnings that prompts share"));
  needs(add_number(command, "--prefix-tokens", prefix_tokens, 0u, 1u << 20, "Words of these"));
  needs(add_number(command, "--prompt-tokens", prompt_tokens, 1u, 1u << 20,
                   "Words behind them, in the median"));
  needs(add_number(command, "--output-tokens", output_tokens, 1u, 1u << 20,
                   "Tokens of an answer, in the median"));
  needs(add_number(command, "--load-seed", seed, uint64_t{0}, uint64_t{1} << 53,
                   "Another number: other requests of the same kind"));
  needs(command.add_option("--server-model", model,
                           "Model to ask for (default: the server's first)"));
  needs(command.add_option("--api-key", api_key, "Key to send")->envname("PUMICE_API_KEY"));
  needs(command.add_option("--goodput", goodput,
                           "Objectives a request must meet to count: 'ttft:MS tpot:MS'"));
}

Status bench_server(const BenchOptions& options) {
  PUMICE_TRY_STATUS(require_md_or_json(options));
  const ServerFlags& flags = options.server;
  PUMICE_TRY(const ServerAddress address, ServerAddress::parse(flags.url, flags.api_key));
  Goodput goodput;
  if (!flags.goodput.empty()) {
    PUMICE_TRY(goodput, parse_goodput(flags.goodput));
  }
  PUMICE_TRY(std::vector<bench::LoadRequest> requests, requests_of(flags));
  std::string model = flags.model;
  if (model.empty()) {
    PUMICE_TRY(model, first_model(address));
  }
  Load load(flags, address, model, std::move(requests));
  const std::vector<bench::LoadSample> samples = load.run();
  if (samples.empty()) return make_error(ErrorCode::kCancelled, "interrupted");
  bench::LoadObjectives objectives;
  if (goodput.ttft_s > 0) objectives.ttft_s = goodput.ttft_s;
  if (goodput.tpot_s > 0) objectives.tpot_s = goodput.tpot_s;
  nlohmann::json report = load_report_json(samples, load.seconds(), objectives);
  report.update({{"bench", "server"},
                 {"build_commit", bench::build_commit()},
                 {"command", options.command},
                 {"server", flags.url},
                 {"model", model},
                 {"clients", flags.n_clients}});
  print_report(
      options, [&] { return report; }, [&] { return bench::load_report_text(report); });
  if (report["failed"] == samples.size()) {
    return make_error(ErrorCode::kBadFile, "every request failed: {}", samples.front().error);
  }
  return {};
}

}  // namespace pumice::tools
