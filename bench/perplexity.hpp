// How well a model predicts a text: the logits of the second half of each of its windows against
// the tokens that follow. Windows, BOS and positions are those of llama.cpp's perplexity tool, so
// the numbers compare.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "base/result.hpp"
#include "engine/engine.hpp"

namespace pumice::bench {

/// A text cut into whole windows; what is left over at its end is not used.
struct TextWindows {
  std::vector<TokenId> tokens;
  uint32_t window_tokens = 0;       ///< at least kLeastWindow
  std::optional<TokenId> bos = {};  ///< stands in place of each window's first token

  static constexpr uint32_t kLeastWindow = 4;

  uint32_t count() const { return static_cast<uint32_t>(tokens.size() / window_tokens); }
  /// The first position of a window whose logits are scored. The last is that before its last
  /// token.
  uint32_t first_scored() const { return window_tokens / 2; }
  uint32_t rows_per_window() const { return window_tokens - 1 - first_scored(); }
  size_t n_rows() const { return size_t{count()} * rows_per_window(); }

  std::vector<TokenId> prompt(uint32_t window) const;
  /// What the model should have predicted there: the token behind the row's position.
  TokenId target(size_t row) const;
};

/// softmax(logits), of which only logarithms are ever needed.
class LogSoftmax {
 public:
  explicit LogSoftmax(std::span<const float> logits);
  /// ln of the probability of a token with that logit.
  double of(float logit) const { return static_cast<double>(logit) - max_ - log_sum_; }
  float max() const { return static_cast<float>(max_); }

 private:
  double max_ = 0;
  double log_sum_ = 0;  // of exp(logit - max)
};

/// Mean of samples and how sure it is.
struct Mean {
  double value = 0;
  double error = 0;  ///< standard error; 0 for one sample
};
Mean mean_of(std::span<const double> samples);

/// e to the mean of negative log-likelihoods, with the error that follows from theirs.
struct Perplexity {
  double value = 0;
  double error = 0;
  double nll = 0;  ///< the mean
};
Perplexity perplexity_of(std::span<const double> nll);

/// The engine's options for such windows, beyond what its caller chooses: as many windows in a step
/// as its token budget holds.
EngineOptions window_options(const TextWindows& windows, EngineOptions options);

/// Gets the logits of each row, rows numbered through all windows, from several threads at once.
using RowSink = std::function<Status(size_t row, std::span<const float> logits)>;
/// Says whether to go on; `rows` that were scored so far are not always the first ones.
using RowProgress = std::function<bool(size_t rows)>;

/// Computes every window on an idle engine made with `window_options`. Errors: the engine's and the
/// sink's; kCancelled when `progress` says so.
Status for_each_row(Engine& engine, const TextWindows& windows, const RowSink& sink,
                    const RowProgress& progress);

}  // namespace pumice::bench
