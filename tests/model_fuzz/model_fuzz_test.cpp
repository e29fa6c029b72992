// PUMICE_FUZZ_STEPS and PUMICE_FUZZ_SEED say how long and from where (docs/TESTING.md).
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "base/check.hpp"
#include "tests/model_fuzz/fuzz_world.hpp"

namespace pumice::model_fuzz {
namespace {

uint64_t from_environment(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

TEST(ModelFuzz, AgreesWithANaiveCacheAndScheduler) {
  const uint64_t n_steps = from_environment("PUMICE_FUZZ_STEPS", 50'000);
  const uint64_t first_seed = from_environment("PUMICE_FUZZ_SEED", 1);
  uint64_t n_done = 0;
  uint64_t seed = first_seed;
  NaiveCounts total;
  for (; n_done < n_steps; ++seed) {
    World world(seed);
    int step = 0;
    try {
      for (; step < 400; ++step) world.step();
      world.finish();
    } catch (const std::logic_error& error) {
      FAIL() << fmt::format("seed {} ({}), step {}: check: {}", seed, world.description(), step,
                            error.what());
    } catch (const Divergence& error) {
      FAIL() << fmt::format("seed {} ({}), step {}: {}", seed, world.description(), step,
                            error.what());
    }
    n_done += 400;
    const NaiveCounts& counts = world.counts();
    total.arrived += counts.arrived;
    total.finished += counts.finished;
    total.cancelled += counts.cancelled;
    total.preemptions += counts.preemptions;
    total.steps += counts.steps;
    total.failed_steps += counts.failed_steps;
  }
  fmt::print(
      "{} random steps, seeds {} to {}: {} requests, {} finished, {} cancelled, {} "
      "preemptions, {} steps computed, {} rolled back; no divergence, no block leaked\n",
      n_done, first_seed, seed - 1, total.arrived, total.finished, total.cancelled,
      total.preemptions, total.steps, total.failed_steps);
  // The dice reach what they are thrown for.
  EXPECT_GT(total.finished, n_done / 100);
  EXPECT_GT(total.preemptions, n_done / 1000);
  EXPECT_GT(total.failed_steps, n_done / 200);
}

}  // namespace
}  // namespace pumice::model_fuzz
