// What a step costs on this device, learned from the steps it ran:
//
//   seconds = fixed + per_row · decode rows + per_row_context · their contexts
//                   + per_token · prefill tokens + per_token_context · their positions
//
// Fitted by least squares with non-negative coefficients over exponentially weighted steps, each
// weighted by 1/seconds² of what it took or, if that is longer, was expected to take: relative
// errors count alike for short and long steps, and no single measurement moves the fit far. Pure
// arithmetic; not thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>

#include "base/result.hpp"

namespace pumice {

/// The work of a step, as far as its cost goes.
struct StepShape {
  uint32_t decode_rows = 0;
  uint64_t decode_context = 0;  ///< sum of the positions of the decode rows
  uint32_t prefill_tokens = 0;
  uint64_t prefill_context = 0;  ///< sum of the positions of the prefill tokens

  void add_decode(uint32_t position) {
    ++decode_rows;
    decode_context += position;
  }
  void add_prefill(uint32_t first_position, uint32_t n_tokens) {
    prefill_tokens += n_tokens;
    prefill_context += uint64_t{n_tokens} * first_position +
                       (n_tokens > 0 ? uint64_t{n_tokens} * (n_tokens - 1) / 2 : 0);
  }
  bool operator==(const StepShape&) const = default;
};

/// Seconds. Also the device model of a simulation.
struct StepCost {
  double fixed = 0;
  double per_row = 0;
  double per_row_context = 0;  ///< per row and position of its context
  double per_token = 0;
  double per_token_context = 0;  ///< per token and position before it

  double seconds(const StepShape& shape) const;
};

void to_json(nlohmann::json& json, const StepCost& cost);
/// Errors: kBadFile for a missing, negative or infinite coefficient.
Result<StepCost> step_cost_from_json(const nlohmann::json& json);

class CostModel {
 public:
  CostModel() = default;
  /// Start from a calibration kept from an earlier run (it counts as a handful of steps).
  explicit CostModel(const StepCost& known);

  /// Learn from a step that took `seconds`. A hiccup of the machine or of its clock hardly
  /// changes the chunks after it; a time that is not positive and finite is ignored.
  void observe(const StepShape& shape, double seconds);

  double predict(const StepShape& shape) const { return cost_.seconds(shape); }
  const StepCost& cost() const { return cost_; }

  /// Whether predictions mean anything: decode rows and prefill tokens have both been seen.
  bool calibrated() const { return seen_decode_ && seen_prefill_; }

  /// The most prefill tokens from `first_position` that fit into `seconds` beside `others`; 0 if
  /// none do, at most `most`.
  uint32_t tokens_within(double seconds, const StepShape& others, uint32_t first_position,
                         uint32_t most) const;

 private:
  static constexpr size_t kTerms = 5;
  using Terms = std::array<double, kTerms>;

  static Terms terms_of(const StepShape& shape);
  void accumulate(const Terms& terms, double seconds, double weight);
  void solve();

  StepCost cost_;
  std::array<Terms, kTerms> normal_{};  // weighted sum of terms · termsᵀ
  Terms moment_{};                      // weighted sum of terms · seconds
  bool seen_decode_ = false;
  bool seen_prefill_ = false;
  uint32_t n_observed_ = 0;
};

}  // namespace pumice
