// What a server counts of its requests, and how Prometheus reads it. On the server's thread; a
// scrape copies numbers and never waits for the device.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "host/host.hpp"

namespace pumice::serve {

/// Cumulative counts up to fixed bounds, as Prometheus has them.
class BucketCounts {
 public:
  explicit BucketCounts(std::vector<double> bounds)
      : bounds_(std::move(bounds)), counts_(bounds_.size() + 1) {}
  void add(double value);
  /// Samples of the metric `name`; `labels` without braces.
  void write(std::string_view name, std::string_view labels, std::string& out) const;

 private:
  std::vector<double> bounds_;
  std::vector<uint64_t> counts_;
  double sum_ = 0;
  uint64_t count_ = 0;
};

/// What is known of a request once it is over. Seconds.
struct RequestSummary {
  std::string id;
  std::string path;
  unsigned status = 0;
  std::string finish;  ///< "stop", "length", "tool_calls", "abort", "error"
  bool stream = false;
  uint32_t prompt_tokens = 0, cached_tokens = 0, generated_tokens = 0;
  uint32_t max_tokens = 0;  ///< 0: none were asked for
  uint32_t n_choices = 1;
  uint32_t preemptions = 0;
  double queue_s = 0, prefill_s = 0, decode_s = 0, ttft_s = 0, total_s = 0;
  bool ran = false;  ///< the times are known
};

struct ModelMetrics;

/// Of one model.
class Metrics {
 public:
  /// When it was generated.
  void add_token() { ++generated_tokens_; }
  /// A gap between two tokens of one choice.
  void add_gap(double seconds) { gaps_.add(seconds); }
  void add(const RequestSummary& request);
  void add_unparsed(uint32_t n) { n_unparsed_ += n; }
  void add_embedded(uint64_t n_texts, uint64_t n_tokens) {
    n_embedded_ += n_texts;
    prompt_tokens_ += n_tokens;
  }
  void add_load() { ++n_loads_; }
  /// Seconds that it was counted for.
  double uptime_s() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - started_).count();
  }

 private:
  std::map<std::pair<std::string, unsigned>, uint64_t> finished_;  // by finish and status
  const std::chrono::steady_clock::time_point started_ = std::chrono::steady_clock::now();
  uint64_t prompt_tokens_ = 0, generated_tokens_ = 0;
  uint64_t n_unparsed_ = 0, n_embedded_ = 0, n_loads_ = 0;
  BucketCounts ttft_{times(0.001)}, gaps_{times(0.001)}, tpot_{times(0.001)}, total_{times(0.01)},
      queue_{times(0.001)}, prefill_{times(0.001)}, decode_{times(0.01)}, inference_{times(0.01)};
  BucketCounts prompts_{lengths()}, generations_{lengths()}, asked_{lengths()};

  friend std::string metrics_text(std::span<const ModelMetrics> models, bool vllm_names);
  static std::vector<double> times(double least_s);
  static std::vector<double> lengths();
};

/// A model's metrics and what else is told of it.
struct ModelMetrics {
  std::string model;
  std::vector<std::string> adapters = {};  ///< names, by Program::adapters
  std::string kv_type;
  const Metrics* counts = nullptr;
  bool is_loaded = true;
  uint32_t window_tokens = 0;  ///< as the rest, of one that is loaded
  host::Stats stats = {};
  std::optional<PrefixStoreStats> prefix_store = {};  ///< nothing: there is none
};

/// Prometheus' text format 0.0.4: each metric once, with a sample of each model. `vllm_names`: by
/// that server's names too.
std::string metrics_text(std::span<const ModelMetrics> models, bool vllm_names);

}  // namespace pumice::serve
