#include "bench/test_grid.hpp"

#include <fmt/core.h>

#include <algorithm>

namespace pumice::bench {
namespace {

bool share_an_engine(const ModelTest& a, const ModelTest& b) {
  return a.n_batch == b.n_batch && a.n_ubatch == b.n_ubatch && a.n_parallel == b.n_parallel &&
         (a.n_depth > 0) == (b.n_depth > 0);
}

double seconds_of(const DefaultSizes& sizes, double prefill_s_per_token,
                  double decode_s_per_token) {
  return (sizes.repetitions + 1) *
         (sizes.n_prompt * prefill_s_per_token + sizes.n_gen * decode_s_per_token);
}

}  // namespace

std::string ModelTest::name() const {
  std::string name;
  if (n_prompt > 0) name = fmt::format("pp{}", n_prompt);
  if (n_gen > 0) name += fmt::format("{}tg{}", name.empty() ? "" : "+", n_gen);
  if (n_depth > 0) name += fmt::format(" @ d{}", n_depth);
  if (n_parallel > 1) name += fmt::format(" x{}", n_parallel);
  return name;
}

uint64_t ModelTest::context_tokens() const {
  constexpr uint32_t kLeastBeyondDepth = 32;  // filling the context takes whole blocks
  const uint32_t timed = std::max(n_prompt, 1u) + n_gen + 1;
  return uint64_t{n_depth} + (n_depth > 0 ? std::max(timed, kLeastBeyondDepth) : timed);
}

std::vector<ModelTest> TestGrid::tests() const {
  std::vector<ModelTest> tests;
  ModelTest test;
  const auto add = [&](uint32_t prompt, uint32_t gen) {
    test.n_prompt = prompt;
    test.n_gen = gen;
    if (prompt + gen > 0) tests.push_back(test);
  };
  for (const uint32_t batch : n_batch) {
    for (const uint32_t ubatch : n_ubatch) {
      for (const uint32_t parallel : n_parallel) {
        for (const uint32_t depth : n_depth) {
          test = {.n_depth = depth, .n_parallel = parallel, .n_batch = batch, .n_ubatch = ubatch};
          for (const uint32_t prompt : n_prompt) add(prompt, 0);
          for (const uint32_t gen : n_gen) add(0, gen);
          for (const auto& [prompt, gen] : prompt_and_gen) add(prompt, gen);
        }
      }
    }
  }
  return tests;
}

std::vector<TestGroup> group_tests(std::span<const ModelTest> tests) {
  std::vector<TestGroup> groups;
  for (size_t first = 0; first < tests.size();) {
    size_t end = first;
    TestGroup group;
    while (end < tests.size() && share_an_engine(tests[first], tests[end])) {
      group.context_tokens = std::max(group.context_tokens, tests[end++].context_tokens());
    }
    group.tests = tests.subspan(first, end - first);
    group.has_depth = tests[first].n_depth > 0;
    groups.push_back(group);
    first = end;
  }
  return groups;
}

std::string default_model(const vk::DevicePlan& plan) {
  struct Candidate {
    const char* name;
    double weight_bytes;  // about, in Q4_K with a Q6_K output
  };
  constexpr Candidate kLargestFirst[] = {{"llama-8b:q4_k", 4.9e9}, {"llama-1b:q4_k", 0.81e9}};
  for (const Candidate& candidate : kLargestFirst) {
    if (plan.device_class != vk::DeviceClass::kCpu &&
        candidate.weight_bytes * 2 <= static_cast<double>(plan.device_budget_bytes)) {
      return candidate.name;
    }
  }
  return "small-0.1b:q4_k";
}

DefaultSizes default_sizes(double prefill_s_per_token, double decode_s_per_token, double seconds) {
  constexpr uint32_t kLeastPrompt = 32;
  DefaultSizes sizes;
  const auto too_long = [&] {
    return seconds_of(sizes, prefill_s_per_token, decode_s_per_token) > seconds;
  };
  if (!too_long()) return sizes;
  sizes.scaled_down = true;
  sizes.repetitions = 3;
  while (too_long() && sizes.n_prompt > kLeastPrompt) {
    sizes.n_prompt /= 2;
    sizes.n_gen /= 2;
  }
  return sizes;
}

}  // namespace pumice::bench
