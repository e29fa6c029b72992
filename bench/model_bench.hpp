// `pumice bench -m FILE`: how fast a model reads prompts (pp) and generates (tg), each by itself.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "engine/engine.hpp"

namespace pumice::bench {

/// Exactly one of the two is not 0.
struct ModelTest {
  uint32_t n_prompt = 0;  ///< tokens read at once, from an empty context to the first new token
  uint32_t n_gen = 0;     ///< tokens generated one by one, from an empty context

  uint32_t n_tokens() const { return n_prompt + n_gen; }
  std::string name() const;  ///< "pp512", "tg128", as llama-bench says
};

struct ModelRow {
  ModelTest test;
  std::string started;             ///< UTC, "2026-01-31T12:00:00Z"
  std::vector<double> samples_ns;  ///< of the whole test
  std::optional<Error> error;      ///< why there are no or fewer samples

  std::vector<double> samples_per_second() const;  ///< tokens per second of each sample
};

/// What a record says besides its times.
struct ModelFacts {
  std::string filename;
  std::string type;         ///< "llama 1.24 B Q4_K": architecture, parameters, commonest type
  uint64_t size_bytes = 0;  ///< of all tensors in the file
  uint64_t n_params = 0;
};
ModelFacts model_facts(const std::string& filename, const GgufFile& file);

/// Positions an engine needs for these tests.
uint32_t context_for(std::span<const ModelTest> tests);

/// Run a test `repetitions` times after a warm-up. Prompts are random tokens and nothing is
/// tokenised; a token's choice (greedy, on the device) is in the time. The engine should keep no
/// prefixes. `stop` is asked between steps.
ModelRow bench_model(Engine& engine, uint32_t n_vocab, const ModelTest& test, uint32_t repetitions,
                     const std::function<bool()>& stop);

/// An array of records with llama-bench's keys, and ours: device, variants, median.
nlohmann::json to_json(std::span<const ModelRow> rows, const ModelFacts& model,
                       const Engine& engine, const vk::Device& device);

/// A table like llama-bench's.
std::string to_markdown(std::span<const ModelRow> rows, const ModelFacts& model,
                        const vk::Device& device);

}  // namespace pumice::bench
