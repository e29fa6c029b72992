// `pumice bench --explain`: what tests cost on paper, how fast this device could be at best, and
// how fast it was.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "bench/model_bench.hpp"
#include "bench/model_cost.hpp"
#include "bench/peaks.hpp"
#include "engine/engine.hpp"
#include "shaders/common/tuning.hpp"

namespace pumice::bench {

struct PhaseCost {
  uint64_t n_steps = 0;
  uint32_t rows = 0;        ///< of its largest step
  uint32_t logit_rows = 0;  ///< likewise
  StepWork cost;            ///< of all its steps
};

/// Steps as the engine would plan them at best: prompts share a step's budget as far as it goes.
struct TestCost {
  PhaseCost prefill;  ///< no steps without a prompt
  PhaseCost decode;   ///< no steps without generation
};
/// Errors (kInvalidArgument): counts beyond 64 bits.
Result<TestCost> test_cost(const ModelShape& shape, const ModelTest& test);

/// The arithmetic that an engine computes each part in.
struct ArithmeticInUse {
  std::array<vk::Arithmetic, kPartCount> many_rows{};
  std::array<vk::Arithmetic, kPartCount> few_rows{};
  uint32_t most_few_rows = 0;  ///< Linear::tuned_gemv_rows

  vk::Arithmetic of(const PhaseCost& phase, Part component) const;
};
/// Tokens of a short prompt whose products are those of any longer one: of experts, enough pairs.
uint32_t rows_of_a_prompt(const ModelShape& shape, const ops::TuningTarget& target);
/// Runs a short request and reads what its dispatches declare. The engine must be idle, with room
/// for the prompt and 8 positions more in a step. Errors: those of the engine.
Result<ArithmeticInUse> arithmetic_in_use(Engine& engine, uint32_t n_prompt);

/// What floors are computed from.
struct DeviceSpeeds {
  Roofline roofline;  ///< its bandwidth is that of reading
  ArithmeticInUse arithmetic;
};
/// Of measured peaks: floors are about reading, whatever copying reaches.
Roofline reading_roofline(const Peaks& peaks);

/// No engine that keeps to the cost model's bytes can be faster: a component takes its
/// memory_bytes() at the read bandwidth or its flops at the peak, whichever is later, and
/// components wait for one another.
Limit floor_of(const DeviceSpeeds& speeds, const PhaseCost& phase, Part component);
Limit floor_of(const DeviceSpeeds& speeds, const PhaseCost& phase);

struct ExplainedTest {
  ModelTest test;
  TestCost cost;
  std::optional<ModelRow> measured;
};

struct ExplainReport {
  ModelRecord model;
  ModelShape shape;
  std::vector<ExplainedTest> tests;
  std::optional<Peaks> peaks;
  std::optional<DeviceSpeeds> speeds;
  std::optional<Error> ended;  ///< why measuring stopped early
};

/// Everything, with samples, so that every printed number can be computed again.
nlohmann::json to_json(const ExplainReport& report);
std::string to_markdown(const ExplainReport& report);

}  // namespace pumice::bench
