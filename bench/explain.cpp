#include "bench/explain.hpp"

#include <algorithm>
#include <map>

#include "shaders/expert_gemm/expert_gemm.hpp"

namespace pumice::bench {
namespace {

PhaseCost prefill(const ModelShape& shape, const ModelTest& test) {
  PhaseCost phase;
  std::vector<uint32_t> done(test.n_parallel, 0);
  for (size_t first = 0; test.n_prompt > 0 && first < done.size();) {
    std::vector<StepRows> batch;
    uint32_t budget = test.n_batch;
    uint32_t n_logit_rows = 0;
    for (size_t i = first; i < done.size() && budget > 0; ++i) {
      const uint32_t n = std::min({test.n_ubatch, budget, test.n_prompt - done[i]});
      if (n == 0) continue;
      batch.push_back({test.n_depth + done[i], n});
      budget -= n;
      done[i] += n;
      if (done[i] == test.n_prompt) ++n_logit_rows;
    }
    while (first < done.size() && done[first] == test.n_prompt) ++first;
    phase.cost += step_cost(shape, batch, n_logit_rows);
    phase.rows = std::max(phase.rows, test.n_batch - budget);
    phase.logit_rows = std::max(phase.logit_rows, n_logit_rows);
    ++phase.n_steps;
  }
  return phase;
}

PhaseCost decode(const ModelShape& shape, const ModelTest& test) {
  PhaseCost phase;
  if (test.n_gen > 0) phase.rows = phase.logit_rows = test.n_parallel;
  phase.n_steps = test.n_gen;
  std::vector<StepRows> batch(test.n_parallel);
  for (uint32_t i = 0; i < test.n_gen; ++i) {
    std::ranges::fill(batch, StepRows{test.n_depth + test.n_prompt + i, 1});
    phase.cost += step_cost(shape, batch, test.n_parallel);
  }
  return phase;
}

}  // namespace

Result<TestCost> test_cost(const ModelShape& shape, const ModelTest& test) {
  // Bounds of the counts, from above: all rows see all positions, all steps read all weights.
  const double rows = static_cast<double>(test.n_tokens());
  const double positions = static_cast<double>(test.n_depth) + test.n_prompt + test.n_gen;
  const StepRows row{0, 1};
  const Amount token = step_cost(shape, {&row, 1}, 1).total();
  const double attention = static_cast<double>(shape.flops_per_pair()) * positions;
  const double bytes = static_cast<double>(shape.file_bytes) + static_cast<double>(token.bytes()) +
                       positions * static_cast<double>(shape.kv_bytes_per_token());
  constexpr double kMost = 9e18;
  if (rows * std::max(static_cast<double>(token.flops) + attention, bytes) > kMost) {
    return make_error(ErrorCode::kInvalidArgument,
                      "{}: too large to count; give fewer tokens (-p, -n, -d)", test.name());
  }
  return TestCost{.prefill = prefill(shape, test), .decode = decode(shape, test)};
}

vk::Arithmetic ArithmeticInUse::of(const PhaseCost& phase, Part component) const {
  const uint32_t rows = component == Part::kOutput ? phase.logit_rows : phase.rows;
  const auto& all = rows > most_few_rows ? many_rows : few_rows;
  return all.at(static_cast<size_t>(component));
}

uint32_t rows_of_a_prompt(const ModelShape& shape, const ops::TuningTarget& target) {
  const auto tuning = ops::ExpertGemm::tuned(target);
  uint32_t rows = 24;
  while (shape.n_experts > 0 && !tuning.suits(rows, shape.n_experts_used, shape.n_experts)) {
    rows *= 2;
  }
  return rows;
}

Result<ArithmeticInUse> arithmetic_in_use(Engine& engine, uint32_t n_prompt) {
  ArithmeticInUse result;
  engine.set_hooks({.observer = [&](const StepTrace& step, const vk::RecordedWork& work) {
    auto& arithmetic = step.prefill_tokens > 1 ? result.many_rows : result.few_rows;
    // A part is computed as most of its flops are.
    std::array<uint64_t, kPartCount> most{};
    for (const vk::CommandInfo& command : work.commands()) {
      if (command.scope.kind == vk::Scope::kNoKind) continue;
      uint64_t& flops = most.at(command.scope.kind);
      if (command.cost.flops <= flops) continue;
      flops = command.cost.flops;
      arithmetic.at(command.scope.kind) = command.cost.arithmetic;
    }
  }});
  const auto run = [&]() -> Status {
    PUMICE_TRY_STATUS(engine.submit({.prompt = std::vector<TokenId>(n_prompt, 0),
                                     .max_new_tokens = 3,
                                     .sampling = {.temperature = 0}}));
    while (!engine.idle()) PUMICE_TRY_STATUS(engine.step());
    return {};
  };
  const Status status = run();
  engine.set_hooks({});
  // A prompt has one row of logits, however long it is; many are a matrix product like any other.
  result.many_rows.at(static_cast<size_t>(Part::kOutput)) =
      result.many_rows.at(static_cast<size_t>(Part::kDown));
  if (!status.ok()) return status.error();
  return result;
}

Roofline reading_roofline(const Peaks& peaks) {
  Roofline roofline = peaks.roofline();
  for (const Peak& peak : peaks.peaks) {
    if (peak.name == "read bandwidth") roofline.bytes_per_ns = peak.value();
  }
  return roofline;
}

Limit floor_of(const DeviceSpeeds& speeds, const PhaseCost& phase, Part component) {
  const Amount& amount = phase.cost[component];
  return limit_of(speeds.roofline, vk::Cost{.bytes = amount.memory_bytes(),
                                            .flops = amount.flops,
                                            .arithmetic = speeds.arithmetic.of(phase, component)});
}

Limit floor_of(const DeviceSpeeds& speeds, const PhaseCost& phase) {
  Limit total;
  std::map<std::string, double> ns_by_bound;
  for (size_t i = 0; i < kPartCount; ++i) {
    const Limit limit = floor_of(speeds, phase, static_cast<Part>(i));
    total.ns += limit.ns;
    ns_by_bound[limit.what] += limit.ns;
  }
  const auto most =
      std::ranges::max_element(ns_by_bound, [](auto& a, auto& b) { return a.second < b.second; });
  total.what = most->first;
  return total;
}

}  // namespace pumice::bench
