#include "bench/perplexity.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "base/parallel.hpp"

namespace pumice::bench {
namespace {

/// Rows of logits on their way to a sink, which takes them on all cores: exponentials of a large
/// vocabulary cost the host more than a fast device needs to compute them.
class RowBatch {
 public:
  explicit RowBatch(const RowSink& sink) : sink_(sink) {}

  void add(size_t row, std::span<const float> logits) {
    rows_.push_back(row);
    n_logits_ = logits.size();
    logits_.insert(logits_.end(), logits.begin(), logits.end());
    if (rows_.size() == kRows && status_.ok()) status_ = flush();
  }
  Status flush() {
    PUMICE_TRY_STATUS(status_);
    const std::span<const float> all(logits_);
    const Status status = for_each_on_threads(rows_.size(), 0, [&](size_t i) {
      return sink_(rows_[i], all.subspan(i * n_logits_, n_logits_));
    });
    rows_.clear();
    logits_.clear();
    return status;
  }

 private:
  static constexpr size_t kRows = 64;

  const RowSink& sink_;
  std::vector<size_t> rows_;
  std::vector<float> logits_;  // of each row, one after the other
  size_t n_logits_ = 0;
  Status status_;
};

}  // namespace

std::vector<TokenId> TextWindows::prompt(uint32_t window) const {
  const auto first = tokens.begin() + static_cast<ptrdiff_t>(size_t{window} * window_tokens);
  std::vector<TokenId> prompt(first, first + window_tokens);
  if (bos) prompt.front() = *bos;
  return prompt;
}

TokenId TextWindows::target(size_t row) const {
  const size_t window = row / rows_per_window();
  return tokens[window * window_tokens + first_scored() + row % rows_per_window() + 1];
}

LogSoftmax::LogSoftmax(std::span<const float> logits) {
  const float max = *std::ranges::max_element(logits);
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - max);
  max_ = max;
  log_sum_ = std::log(sum);
}

Mean mean_of(std::span<const double> samples) {
  if (samples.empty()) return {};
  const auto n = static_cast<double>(samples.size());
  const double mean = std::accumulate(samples.begin(), samples.end(), 0.0) / n;
  double squares = 0;
  for (const double sample : samples) squares += (sample - mean) * (sample - mean);
  return {.value = mean, .error = samples.size() > 1 ? std::sqrt(squares / (n - 1) / n) : 0};
}

Perplexity perplexity_of(std::span<const double> nll) {
  const Mean mean = mean_of(nll);
  const double value = std::exp(mean.value);
  return {.value = value, .error = value * mean.error, .nll = mean.value};
}

EngineOptions window_options(const TextWindows& windows, EngineOptions options) {
  options.context_tokens = windows.window_tokens;
  options.n_sequences =
      std::clamp(options.token_budget / windows.window_tokens, 1u, std::max(windows.count(), 1u));
  options.prefix_cache = false;  // every position is computed
  options.prompt_logits = true;
  options.greedy_only = true;
  return options;
}

Status for_each_row(Engine& engine, const TextWindows& windows, const RowSink& sink,
                    const RowProgress& progress) {
  RowBatch batch(sink);
  uint32_t n_submitted = 0;
  size_t n_scored = 0;
  std::map<RequestId, uint32_t> under_way;
  const auto submit = [&]() -> Status {
    const uint32_t window = n_submitted;
    const uint32_t first = windows.first_scored();
    const uint32_t n_rows = windows.rows_per_window();
    const auto on_logits = [&, window, first, n_rows](uint32_t position,
                                                      std::span<const float> logits) {
      if (position >= first + n_rows) return;
      batch.add(size_t{window} * n_rows + position - first, logits);
      ++n_scored;
    };
    PUMICE_TRY(const RequestId id, engine.submit({.prompt = windows.prompt(window),
                                                  .on_logits = on_logits,
                                                  .first_logits = first}));
    under_way.emplace(id, window);
    ++n_submitted;
    return {};
  };
  const auto run = [&]() -> Status {
    while (n_submitted < windows.count() || !under_way.empty()) {
      while (n_submitted < windows.count() && under_way.size() < engine.options().n_sequences) {
        PUMICE_TRY_STATUS(submit());
      }
      PUMICE_TRY(const std::vector<StepEvent> events, engine.step());
      for (const StepEvent& event : events) {
        if (event.finished) under_way.erase(event.request);
      }
      if (!progress(n_scored)) return make_error(ErrorCode::kCancelled, "interrupted");
    }
    return batch.flush();
  };
  const Status status = run();
  for (const auto& request : under_way) engine.cancel(request.first);
  return status;
}

}  // namespace pumice::bench
