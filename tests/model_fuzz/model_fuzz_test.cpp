// PUMICE_FUZZ_STEPS and PUMICE_FUZZ_SEED say how long and from where (docs/TESTING.md).
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "base/check.hpp"
#include "tests/model_fuzz/cache_world.hpp"
#include "tests/model_fuzz/fuzz_world.hpp"

namespace pumice::model_fuzz {
namespace {

uint64_t from_environment(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

/// Episodes of 400 random steps each. `world` is what failed where.
template <typename World, typename Add>
void run_worlds(const char* name, const Add& add) {
  const uint64_t n_steps = from_environment("PUMICE_FUZZ_STEPS", 50'000);
  const uint64_t first_seed = from_environment("PUMICE_FUZZ_SEED", 1);
  uint64_t n_done = 0;
  uint64_t seed = first_seed;
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
    add(world.counts());
  }
  fmt::print("{}: {} random steps, seeds {} to {}; no divergence, no block leaked\n", name, n_done,
             first_seed, seed - 1);
}

TEST(ModelFuzz, AgreesWithANaiveCacheAndScheduler) {
  NaiveCounts total;
  run_worlds<World>("scheduler", [&](const NaiveCounts& counts) {
    total.arrived += counts.arrived;
    total.finished += counts.finished;
    total.cancelled += counts.cancelled;
    total.preemptions += counts.preemptions;
    total.steps += counts.steps;
    total.failed_steps += counts.failed_steps;
    total.losses += counts.losses;
    total.turns += counts.turns;
    total.made_way += counts.made_way;
    total.drafted += counts.drafted;
    total.refusals += counts.refusals;
  });
  if (HasFatalFailure()) return;
  fmt::print(
      "{} requests, {} finished, {} cancelled, {} preemptions, {} of them for one that started, {} "
      "turns of classes, {} steps computed, {} rolled back, {} devices lost, {} tokens of drafts "
      "verified, {} drafts refused in part\n",
      total.arrived, total.finished, total.cancelled, total.preemptions, total.made_way,
      total.turns, total.steps, total.failed_steps, total.losses, total.drafted, total.refusals);
  // The dice reach what they are thrown for.
  EXPECT_GT(total.finished, total.steps / 8);
  EXPECT_GT(total.preemptions - total.made_way, total.steps / 500);
  EXPECT_GT(total.made_way, total.steps / 100);
  EXPECT_GT(total.turns, total.steps / 100);
  EXPECT_GT(total.failed_steps, total.steps / 20);
  EXPECT_GE(total.losses, total.steps / 500);
  EXPECT_GT(total.drafted, total.steps / 50);
  EXPECT_GT(total.refusals, total.steps / 200);
}

TEST(ModelFuzz, TheCacheAloneAgreesWithANaiveOne) {
  CacheWorld::Counts total;
  run_worlds<CacheWorld>("cache", [&](const CacheWorld::Counts& counts) {
    total.begun += counts.begun;
    total.cached_tokens += counts.cached_tokens;
    total.shortened += counts.shortened;
    total.committed += counts.committed;
    total.behind += counts.behind;
    total.rewound += counts.rewound;
    total.not_rewound += counts.not_rewound;
    total.losses += counts.losses;
  });
  if (HasFatalFailure()) return;
  fmt::print(
      "{} sequences, {} cached tokens, {} hits shortened by a group, {} steps committed, {} "
      "entries behind windows, {} times gone back, {} times refused, {} devices lost\n",
      total.begun, total.cached_tokens, total.shortened, total.committed, total.behind,
      total.rewound, total.not_rewound, total.losses);
  EXPECT_GT(total.cached_tokens, total.begun);
  EXPECT_GT(total.shortened, total.begun / 20);
  EXPECT_GT(total.committed, total.begun);
  EXPECT_GT(total.rewound, total.begun / 4);
  EXPECT_GT(total.not_rewound, total.begun / 20);
  EXPECT_GE(total.losses, total.begun / 500);
}

}  // namespace
}  // namespace pumice::model_fuzz
