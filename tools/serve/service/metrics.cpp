#include "tools/serve/service/metrics.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>

namespace pumice::serve {
namespace {

/// A label's value between its quotes.
std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\' || c == '"') out += '\\';
    if (c == '\n') {
      out += "\\n";
    } else {
      out += c;
    }
  }
  return out;
}

/// Metrics of one family of names, all with the same labels.
class Page {
 public:
  Page(std::string& out, std::string prefix, std::string labels)
      : out_(out), prefix_(std::move(prefix)), labels_(std::move(labels)) {}

  template <typename T>
  void value(std::string_view type, std::string_view name, std::string_view help, T value,
             std::string_view more = {}) {
    head(type, name, help);
    sample(name, value, more);
  }
  void head(std::string_view type, std::string_view name, std::string_view help) {
    fmt::format_to(std::back_inserter(out_), "# HELP {0}{1} {2}\n# TYPE {0}{1} {3}\n", prefix_,
                   name, help, type);
  }
  template <typename T>
  void sample(std::string_view name, T value, std::string_view more = {}) {
    fmt::format_to(std::back_inserter(out_), "{}{}{{{}{}}} {}\n", prefix_, name, labels_, more,
                   value);
  }
  void buckets(std::string_view name, std::string_view help, const BucketCounts& counts) {
    counts.write(prefix_ + std::string(name), help, labels_, out_);
  }

 private:
  std::string& out_;
  std::string prefix_;
  std::string labels_;
};

}  // namespace

void BucketCounts::add(double value) {
  const auto it = std::lower_bound(bounds_.begin(), bounds_.end(), value);
  ++counts_[static_cast<size_t>(it - bounds_.begin())];
  sum_ += value;
  ++count_;
}

void BucketCounts::write(std::string_view name, std::string_view help, std::string_view labels,
                         std::string& out) const {
  auto to = std::back_inserter(out);
  fmt::format_to(to, "# HELP {0} {1}\n# TYPE {0} histogram\n", name, help);
  uint64_t below = 0;
  for (size_t i = 0; i < counts_.size(); ++i) {
    below += counts_[i];
    const std::string bound = i < bounds_.size() ? fmt::format("{}", bounds_[i]) : "+Inf";
    fmt::format_to(to, "{}_bucket{{{},le=\"{}\"}} {}\n", name, labels, bound, below);
  }
  fmt::format_to(to, "{0}_sum{{{1}}} {2}\n{0}_count{{{1}}} {3}\n", name, labels, sum_, count_);
}

std::vector<double> Metrics::times(double least_s) {
  std::vector<double> bounds;
  for (double decade = least_s; decade < 1000; decade *= 10) {
    // Rounded, so that 0.1 is "0.1".
    for (const double factor : {1.0, 2.5, 5.0}) {
      bounds.push_back(std::stod(fmt::format("{:.6g}", decade * factor)));
    }
  }
  return bounds;
}

std::vector<double> Metrics::lengths() {
  std::vector<double> bounds;
  for (double n = 1; n <= 1048576; n *= 4) bounds.push_back(n);
  return bounds;
}

void Metrics::add(const RequestSummary& request) {
  ++finished_[{request.finish, request.status}];
  generated_tokens_ += request.generated_tokens;
  if (!request.ran) return;
  prompt_tokens_ += request.prompt_tokens;
  queue_.add(request.queue_s);
  prefill_.add(request.prefill_s);
  decode_.add(request.decode_s);
  inference_.add(request.prefill_s + request.decode_s);
  ttft_.add(request.ttft_s);
  total_.add(request.total_s);
  if (request.generated_tokens > request.n_choices) {
    const double gaps = static_cast<double>(request.generated_tokens) / request.n_choices - 1;
    tpot_.add(request.decode_s / gaps);
  }
  prompts_.add(request.prompt_tokens);
  generations_.add(request.generated_tokens);
  if (request.max_tokens != 0) asked_.add(request.max_tokens);
}

std::string Metrics::text(const Server& server, const host::Stats& stats) const {
  std::string out;
  const auto write = [&](const std::string& prefix) {
    Page page(out, prefix, fmt::format("model_name=\"{}\"", escaped(server.model)));
    page.value("gauge", "num_requests_running", "Choices that run", stats.running_requests);
    page.value("gauge", "num_requests_waiting", "Choices that wait", stats.waiting_requests);
    page.value("gauge", "kv_cache_usage_perc", "Share of the KV pool that running requests use",
               stats.kv_usage);
    page.value("gauge", "cache_config_info", "The KV pool", 1,
               fmt::format(",block_size=\"{}\",num_gpu_blocks=\"{}\",num_cpu_blocks=\"0\","
                           "cache_dtype=\"{}\"",
                           stats.block_tokens, stats.kv_blocks, escaped(server.kv_type)));
    page.value("counter", "prefix_cache_queries_total", "Tokens looked up in the prefix cache",
               stats.queried_tokens);
    page.value("counter", "prefix_cache_hits_total", "Tokens found there", stats.hit_tokens);
    page.value("counter", "prompt_tokens_total", "Tokens of prompts", prompt_tokens_);
    page.value("counter", "generation_tokens_total", "Tokens generated", generated_tokens_);
    page.value("counter", "num_preemptions_total", "Requests that made room and began again",
               stats.preemptions);
    page.head("counter", "request_success_total", "Requests that ended, by why");
    for (const auto& [key, n] : finished_) {
      if (key.second != 200) continue;
      page.sample("request_success_total", n,
                  fmt::format(",finished_reason=\"{}\"", escaped(key.first)));
    }
    page.buckets("time_to_first_token_seconds", "Arrival to first token", ttft_);
    page.buckets("inter_token_latency_seconds", "Each gap between two tokens", gaps_);
    page.buckets("time_per_output_token_seconds", "Mean gap behind the first token", tpot_);
    page.buckets("e2e_request_latency_seconds", "Arrival to end", total_);
    page.buckets("request_queue_time_seconds", "Arrival to first step", queue_);
    page.buckets("request_prefill_time_seconds", "First step to first token", prefill_);
    page.buckets("request_decode_time_seconds", "First token to last", decode_);
    page.buckets("request_inference_time_seconds", "First step to last token", inference_);
    page.buckets("request_prompt_tokens", "Tokens of a prompt", prompts_);
    page.buckets("request_generation_tokens", "Tokens of an answer", generations_);
    page.buckets("request_params_max_tokens", "What max_tokens asked for", asked_);
  };
  write("pumice:");
  Page own(out, "pumice:", fmt::format("model_name=\"{}\"", escaped(server.model)));
  own.head("counter", "requests_total", "Requests that are over, by status");
  for (const auto& [key, n] : finished_) {
    own.sample("requests_total", n,
               fmt::format(",status=\"{}\",finished_reason=\"{}\"", key.second, key.first));
  }
  own.value("counter", "tool_parse_fallback_total", "Calls of tools that were none, given as text",
            n_unparsed_);
  own.value("counter", "embedded_texts_total", "Texts that were turned into vectors", n_embedded_);
  own.value("counter", "steps_total", "Steps of the engine", stats.steps);
  own.value("counter", "failed_steps_total", "Of those, that failed", stats.failed_steps);
  own.value("counter", "lost_devices_total", "Devices that were lost and opened again",
            stats.n_lost_devices);
  own.value("gauge", "device_bytes", "Memory on the device", stats.device_bytes);
  own.value("gauge", "weight_bytes", "Of that, weights", stats.weight_bytes);
  own.value("gauge", "kv_bytes", "Of that, the KV pool", stats.kv_bytes);
  own.value("gauge", "context_tokens", "Of one request", server.window_tokens);
  if (server.prefix_store != nullptr) {
    const PrefixStoreStats store = server.prefix_store->stats();
    own.value("gauge", "prefix_store_bytes", "In the prefix store, as far as is known",
              store.bytes);
    own.value("counter", "prefix_store_read_pages_total", "Pages read from it", store.read_pages);
    own.value("counter", "prefix_store_written_pages_total", "Pages written to it",
              store.written_pages);
    own.value("counter", "prefix_store_dropped_pages_total",
              "Pages that were not written: the disk was too slow, or refused",
              store.dropped_pages);
    own.value("counter", "prefix_store_removed_files_total", "Files removed to make room",
              store.removed_files);
    own.value("counter", "prefix_store_damaged_files_total", "Damaged files, removed",
              store.damaged_files);
  }
  if (server.vllm_names) write("vllm:");
  return out;
}

}  // namespace pumice::serve
