#include "scheduler/cost_model.hpp"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

namespace pumice {
namespace {

// Contexts are counted in thousands, so that the terms are of like size.
constexpr double kContextUnit = 1024;
constexpr double kForgetting = 0.98;  // a step counts half after 34 others
constexpr uint32_t kTrusted = 8;      // steps before predictions say what is an outlier

constexpr std::pair<const char*, double StepCost::*> kCoefficients[] = {
    {"fixed_s", &StepCost::fixed},
    {"per_row_s", &StepCost::per_row},
    {"per_row_context_s", &StepCost::per_row_context},
    {"per_token_s", &StepCost::per_token},
    {"per_token_context_s", &StepCost::per_token_context},
};

}  // namespace

double StepCost::seconds(const StepShape& shape) const {
  return fixed + per_row * shape.decode_rows +
         per_row_context * static_cast<double>(shape.decode_context) +
         per_token * shape.prefill_tokens +
         per_token_context * static_cast<double>(shape.prefill_context);
}

void to_json(nlohmann::json& json, const StepCost& cost) {
  json = nlohmann::json::object();
  for (const auto& [name, member] : kCoefficients) json[name] = cost.*member;
}

Result<StepCost> step_cost_from_json(const nlohmann::json& json) {
  StepCost cost;
  for (const auto& [name, member] : kCoefficients) {
    if (!json.is_object() || !json.contains(name) || !json[name].is_number()) {
      return make_error(ErrorCode::kBadFile, "device model: the number \"{}\" is missing", name);
    }
    cost.*member = json[name].get<double>();
    if (!std::isfinite(cost.*member) || cost.*member < 0) {
      return make_error(ErrorCode::kBadFile, "device model: \"{}\" must be finite and not negative",
                        name);
    }
  }
  return cost;
}

CostModel::CostModel(const StepCost& known) : cost_(known) {
  // Steps that the calibration would explain exactly, enough of them to be five equations.
  for (const auto& [rows, context, tokens] : {std::array<uint32_t, 3>{1, 16, 0},
                                              {8, 16, 0},
                                              {1, 2048, 0},
                                              {0, 0, 64},
                                              {0, 0, 512},
                                              {0, 4096, 64},
                                              {4, 512, 128}}) {
    StepShape shape;
    for (uint32_t i = 0; i < rows; ++i) shape.add_decode(context);
    if (tokens > 0) shape.add_prefill(context, tokens);
    observe(shape, std::max(known.seconds(shape), 1e-9));
  }
  cost_ = known;
}

CostModel::Terms CostModel::terms_of(const StepShape& shape) {
  return {1.0, static_cast<double>(shape.decode_rows),
          static_cast<double>(shape.decode_context) / kContextUnit,
          static_cast<double>(shape.prefill_tokens),
          static_cast<double>(shape.prefill_context) / kContextUnit};
}

void CostModel::observe(const StepShape& shape, double seconds) {
  if (!(seconds > 0) || !std::isfinite(seconds)) return;
  // Weighted by its own time, a step far too long says little; one far too short would say all.
  double scale = seconds;
  if (calibrated() && n_observed_ >= kTrusted) scale = std::max(scale, predict(shape));
  ++n_observed_;
  seen_decode_ = seen_decode_ || shape.decode_rows > 0;
  seen_prefill_ = seen_prefill_ || shape.prefill_tokens > 0;
  accumulate(terms_of(shape), seconds, 1 / (scale * scale));
  solve();
}

void CostModel::accumulate(const Terms& terms, double seconds, double weight) {
  for (size_t i = 0; i < kTerms; ++i) {
    for (size_t j = 0; j < kTerms; ++j) {
      normal_[i][j] = kForgetting * normal_[i][j] + weight * terms[i] * terms[j];
    }
    moment_[i] = kForgetting * moment_[i] + weight * terms[i] * seconds;
  }
}

// Coordinate descent on the normal equations, each coefficient kept from going negative (the
// non-negative least squares of Franc, Hlaváč and Navara, 2005). It starts from the last solution,
// so what recent steps do not tell apart stays as it was.
void CostModel::solve() {
  Terms x{cost_.fixed, cost_.per_row, cost_.per_row_context * kContextUnit, cost_.per_token,
          cost_.per_token_context * kContextUnit};
  constexpr int kSweeps = 16;
  for (int sweep = 0; sweep < kSweeps; ++sweep) {
    double moved = 0;
    for (size_t i = 0; i < kTerms; ++i) {
      if (!(normal_[i][i] > 0)) continue;
      double residual = moment_[i];
      for (size_t j = 0; j < kTerms; ++j) residual -= normal_[i][j] * x[j];
      const double next = std::max(0.0, x[i] + residual / normal_[i][i]);
      moved = std::max(moved, std::abs(next - x[i]) / (next + 1e-12));
      x[i] = next;
    }
    if (moved < 1e-4) break;
  }
  cost_ = {x[0], x[1], x[2] / kContextUnit, x[3], x[4] / kContextUnit};
}

uint32_t CostModel::tokens_within(double seconds, const StepShape& others, uint32_t first_position,
                                  uint32_t most) const {
  const auto fits = [&](uint32_t n_tokens) {
    StepShape shape = others;
    shape.add_prefill(first_position, n_tokens);
    return predict(shape) <= seconds;
  };
  uint32_t low = 0;  // fits, or nothing does
  uint32_t high = most;
  while (low < high) {
    const uint32_t middle = low + (high - low + 1) / 2;
    if (fits(middle)) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

}  // namespace pumice
