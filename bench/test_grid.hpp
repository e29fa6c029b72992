// The tests of `pumice bench` on a model, in llama-bench's vocabulary, and the engines they need.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "vk/plan.hpp"

namespace pumice::bench {

/// `n_parallel` requests at once, each with a context of `n_depth` tokens, read `n_prompt` tokens
/// and generate `n_gen`. One of the two may be 0.
struct ModelTest {
  uint32_t n_prompt = 0;
  uint32_t n_gen = 0;
  uint32_t n_depth = 0;     ///< tokens in the context before the clock starts
  uint32_t n_parallel = 1;  ///< requests
  uint32_t n_batch = 512;   ///< token budget of a step
  uint32_t n_ubatch = 512;  ///< prompt tokens of one request in a step

  /// "pp512", "tg128", "pp512+tg128", then " @ d4096" and " x4" where there is depth or company.
  std::string name() const;
  /// Timed tokens, of all requests.
  uint64_t n_tokens() const { return uint64_t{n_parallel} * (n_prompt + n_gen); }
  /// Positions that one request fills.
  uint64_t context_tokens() const;
};

/// Lists of which every combination is a test; of `prompt_and_gen` each pair.
struct TestGrid {
  std::vector<uint32_t> n_prompt;
  std::vector<uint32_t> n_gen;
  std::vector<std::pair<uint32_t, uint32_t>> prompt_and_gen;
  std::vector<uint32_t> n_depth = {0};
  std::vector<uint32_t> n_parallel = {1};
  std::vector<uint32_t> n_batch = {512};
  std::vector<uint32_t> n_ubatch = {512};

  /// In the order of the lists, batches outermost, then parallel, depth, and pp, tg, pg. Zeros in
  /// n_prompt and n_gen are left out.
  std::vector<ModelTest> tests() const;
};

/// Tests that share an engine, in their order.
struct TestGroup {
  std::span<const ModelTest> tests;
  uint64_t context_tokens = 0;  ///< of the longest
  bool has_depth = false;       ///< the engine must keep prefixes
};
/// Views into `tests`.
std::vector<TestGroup> group_tests(std::span<const ModelTest> tests);

/// The synthetic model ("preset:type") used when none was asked for: the largest of Llama 8B, 1B
/// and a small one whose weights take at most half of the device's memory; the small one on CPU
/// drivers.
std::string default_model(const vk::DevicePlan& plan);

/// Sizes used when none were asked for.
struct DefaultSizes {
  uint32_t n_prompt = 512;
  uint32_t n_gen = 128;
  uint32_t repetitions = 5;
  bool scaled_down = false;
};
/// pp512 and tg128 five times, or less where that would take longer than `seconds` at these speeds:
/// first three repetitions, then both sizes halved, down to pp32 and tg8.
DefaultSizes default_sizes(double prefill_s_per_token, double decode_s_per_token, double seconds);

}  // namespace pumice::bench
