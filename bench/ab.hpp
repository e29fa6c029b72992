// Two configurations measured in turns, so that a slow drift of the machine meets both alike.
#pragma once

#include <array>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "bench/model_bench.hpp"
#include "bench/ratio.hpp"
#include "engine/engine.hpp"

namespace pumice::bench {

/// A, B, and A once more: what A differs from itself by is what noise is.
inline constexpr size_t kAbSides = 3;
inline constexpr std::array<std::string_view, kAbSides> kAbNames = {"a", "b", "a_again"};

/// One test of all sides. Round i of all of them read the same prompt.
struct AbRow {
  ModelTest test;
  std::array<std::vector<double>, kAbSides> samples_ns;  ///< of whole rounds only
  std::vector<std::array<uint8_t, kAbSides>> order;      ///< of each round
  std::optional<Error> error;                            ///< why there are fewer rounds

  /// Tokens per second of B over those of A: above 1, B is faster.
  RatioInterval ratio() const { return paired_ratio(samples_ns[0], samples_ns[1]); }
  /// The same of A over A.
  RatioInterval null() const { return paired_ratio(samples_ns[0], samples_ns[2]); }
};

/// `rounds` rounds after a warm-up. Each round runs every side once, in an order drawn with a fixed
/// seed (randomised complete blocks). `first_sample` and `stop` as in bench_model.
AbRow bench_ab(std::span<Engine* const, kAbSides> engines, uint32_t n_vocab, const ModelTest& test,
               uint32_t rounds, const std::function<bool()>& stop, uint32_t first_sample = 0);

/// What a report says of each side.
struct AbSide {
  std::string configuration;
  std::string limit;  ///< of its device
  EngineOptions options = {};
  std::set<std::string> variants = {};  ///< that ran
  nlohmann::json tuning = {};           ///< tuning_to_json of its pipelines
};

nlohmann::json to_json(std::span<const AbRow> rows, const AbSide& a, const AbSide& b);
std::string to_markdown(std::span<const AbRow> rows, const AbSide& a, const AbSide& b);

}  // namespace pumice::bench
