#include "tools/serve/service/metrics.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
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

/// Metrics of one family of names, each with the samples of all models.
class Page {
 public:
  Page(std::string& out, std::string prefix, std::span<const ModelMetrics> models)
      : out_(out), prefix_(std::move(prefix)), models_(models) {}

  /// `value_of`: of a ModelMetrics.
  template <typename ValueOf>
  void value(std::string_view type, std::string_view name, std::string_view help,
             ValueOf value_of) {
    each(type, name, help,
         [&](const ModelMetrics& model) { sample(model, name, value_of(model)); });
  }
  template <typename CountsOf>
  void buckets(std::string_view name, std::string_view help, CountsOf counts_of) {
    each("histogram", name, help, [&](const ModelMetrics& model) {
      counts_of(model).write(prefix_ + std::string(name), labels_of(model), out_);
    });
  }
  /// `write`: the samples of a model.
  template <typename Write>
  void each(std::string_view type, std::string_view name, std::string_view help, Write write) {
    fmt::format_to(std::back_inserter(out_), "# HELP {0}{1} {2}\n# TYPE {0}{1} {3}\n", prefix_,
                   name, help, type);
    for (const ModelMetrics& model : models_) write(model);
  }
  template <typename T>
  void sample(const ModelMetrics& model, std::string_view name, T value,
              std::string_view more = {}) {
    fmt::format_to(std::back_inserter(out_), "{}{}{{{}{}}} {}\n", prefix_, name, labels_of(model),
                   more, value);
  }

 private:
  static std::string labels_of(const ModelMetrics& model) {
    return fmt::format("model_name=\"{}\"", escaped(model.model));
  }

  std::string& out_;
  const std::string prefix_;
  const std::span<const ModelMetrics> models_;
};

/// Which adapters requests have, as routers read it: names in labels, and the time as value.
void write_adapters(std::span<const ModelMetrics> models, Page& page) {
  if (std::ranges::all_of(models, [](const ModelMetrics& m) { return m.adapters.empty(); })) return;
  const double now_s =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  constexpr std::string_view kName = "lora_requests_info";
  page.each("gauge", kName, "Adapters of requests, at this time", [&](const ModelMetrics& model) {
    std::vector<std::string> running, waiting;
    for (size_t i = 0; i < std::min(model.stats.adapters.size(), model.adapters.size()); ++i) {
      const std::string name = escaped(model.adapters[i]);
      if (model.stats.adapters[i].running > 0) running.push_back(name);
      if (model.stats.adapters[i].waiting > 0) waiting.push_back(name);
    }
    page.sample(
        model, kName, now_s,
        fmt::format(",max_lora=\"{}\",running_lora_adapters=\"{}\",waiting_lora_adapters=\"{}\"",
                    model.adapters.size(), fmt::join(running, ","), fmt::join(waiting, ",")));
  });
}

}  // namespace

void BucketCounts::add(double value) {
  const auto it = std::lower_bound(bounds_.begin(), bounds_.end(), value);
  ++counts_[static_cast<size_t>(it - bounds_.begin())];
  sum_ += value;
  ++count_;
}

void BucketCounts::write(std::string_view name, std::string_view labels, std::string& out) const {
  auto to = std::back_inserter(out);
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

std::string metrics_text(std::span<const ModelMetrics> models, bool vllm_names) {
  using Model = const ModelMetrics&;
  std::string out;
  const auto write = [&](const std::string& prefix) {
    Page page(out, prefix, models);
    page.value("gauge", "num_requests_running", "Choices that run",
               [](Model m) { return m.stats.running_requests; });
    page.value("gauge", "num_requests_waiting", "Choices that wait",
               [](Model m) { return m.stats.waiting_requests; });
    page.value("gauge", "kv_cache_usage_perc", "Share of the KV pool that running requests use",
               [](Model m) { return m.stats.kv_usage; });
    page.each("gauge", "cache_config_info", "The KV pool", [&](Model m) {
      page.sample(m, "cache_config_info", 1,
                  fmt::format(",block_size=\"{}\",num_gpu_blocks=\"{}\",num_cpu_blocks=\"0\","
                              "cache_dtype=\"{}\"",
                              m.stats.block_tokens, m.stats.kv_blocks, escaped(m.kv_type)));
    });
    page.value("counter", "prefix_cache_queries_total", "Tokens looked up in the prefix cache",
               [](Model m) { return m.stats.queried_tokens; });
    page.value("counter", "prefix_cache_hits_total", "Tokens found there",
               [](Model m) { return m.stats.hit_tokens; });
    page.value("counter", "prompt_tokens_total", "Tokens of prompts",
               [](Model m) { return m.counts->prompt_tokens_; });
    page.value("counter", "generation_tokens_total", "Tokens generated",
               [](Model m) { return m.counts->generated_tokens_; });
    page.value("counter", "num_preemptions_total", "Requests that made room and began again",
               [](Model m) { return m.stats.preemptions; });
    write_adapters(models, page);
    page.each("counter", "request_success_total", "Requests that ended, by why", [&](Model m) {
      for (const auto& [key, n] : m.counts->finished_) {
        if (key.second != 200) continue;
        page.sample(m, "request_success_total", n,
                    fmt::format(",finished_reason=\"{}\"", escaped(key.first)));
      }
    });
    const auto buckets = [&](std::string_view name, std::string_view help,
                             BucketCounts Metrics::*counts) {
      page.buckets(name, help, [&](Model m) -> const BucketCounts& { return m.counts->*counts; });
    };
    buckets("time_to_first_token_seconds", "Arrival to first token", &Metrics::ttft_);
    buckets("inter_token_latency_seconds", "Each gap between two tokens", &Metrics::gaps_);
    buckets("time_per_output_token_seconds", "Mean gap behind the first token", &Metrics::tpot_);
    buckets("e2e_request_latency_seconds", "Arrival to end", &Metrics::total_);
    buckets("request_queue_time_seconds", "Arrival to first step", &Metrics::queue_);
    buckets("request_prefill_time_seconds", "First step to first token", &Metrics::prefill_);
    buckets("request_decode_time_seconds", "First token to last", &Metrics::decode_);
    buckets("request_inference_time_seconds", "First step to last token", &Metrics::inference_);
    buckets("request_prompt_tokens", "Tokens of a prompt", &Metrics::prompts_);
    buckets("request_generation_tokens", "Tokens of an answer", &Metrics::generations_);
    buckets("request_params_max_tokens", "What max_tokens asked for", &Metrics::asked_);
  };
  write("pumice:");
  Page own(out, "pumice:", models);
  own.each("counter", "requests_total", "Requests that are over, by status", [&](Model m) {
    for (const auto& [key, n] : m.counts->finished_) {
      own.sample(m, "requests_total", n,
                 fmt::format(",status=\"{}\",finished_reason=\"{}\"", key.second, key.first));
    }
  });
  own.value("counter", "tool_parse_fallback_total", "Calls of tools that were none, given as text",
            [](Model m) { return m.counts->n_unparsed_; });
  own.value("counter", "embedded_texts_total", "Texts that were turned into vectors",
            [](Model m) { return m.counts->n_embedded_; });
  own.value("counter", "steps_total", "Steps of the engine", [](Model m) { return m.stats.steps; });
  own.value("counter", "failed_steps_total", "Of those, that failed",
            [](Model m) { return m.stats.failed_steps; });
  own.value("counter", "lost_devices_total", "Devices that were lost and opened again",
            [](Model m) { return m.stats.n_lost_devices; });
  own.value("gauge", "model_loaded", "Whether the model is loaded",
            [](Model m) { return m.is_loaded ? 1 : 0; });
  own.value("counter", "model_loads_total", "How often it was loaded",
            [](Model m) { return m.counts->n_loads_; });
  own.value("gauge", "uptime_seconds", "Since the server began",
            [](Model m) { return m.counts->uptime_s(); });
  own.value("gauge", "device_bytes", "Memory on the device",
            [](Model m) { return m.stats.device_bytes; });
  own.value("gauge", "weight_bytes", "Of that, weights",
            [](Model m) { return m.stats.weight_bytes; });
  own.value("gauge", "kv_bytes", "Of that, the KV pool", [](Model m) { return m.stats.kv_bytes; });
  own.value("gauge", "context_tokens", "Of one request", [](Model m) { return m.window_tokens; });
  if (std::any_of(models.begin(), models.end(), [](Model m) { return m.prefix_store; })) {
    const auto store = [&](std::string_view type, std::string_view name, std::string_view help,
                           auto PrefixStoreStats::*number) {
      own.each(type, name, help, [&](Model m) {
        if (m.prefix_store) own.sample(m, name, (*m.prefix_store).*number);
      });
    };
    store("gauge", "prefix_store_bytes", "In the prefix store, as far as is known",
          &PrefixStoreStats::bytes);
    store("counter", "prefix_store_read_pages_total", "Pages read from it",
          &PrefixStoreStats::read_pages);
    store("counter", "prefix_store_written_pages_total", "Pages written to it",
          &PrefixStoreStats::written_pages);
    store("counter", "prefix_store_dropped_pages_total",
          "Pages that were not written: the disk was too slow, or refused",
          &PrefixStoreStats::dropped_pages);
    store("counter", "prefix_store_removed_files_total", "Files removed to make room",
          &PrefixStoreStats::removed_files);
    store("counter", "prefix_store_damaged_files_total", "Damaged files, removed",
          &PrefixStoreStats::damaged_files);
  }
  if (vllm_names) write("vllm:");
  return out;
}

}  // namespace pumice::serve
