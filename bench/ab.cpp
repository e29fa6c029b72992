#include "bench/ab.hpp"

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include <random>

#include "bench/configuration.hpp"
#include "bench/statistics.hpp"

namespace pumice::bench {
namespace {

using Json = nlohmann::json;

constexpr uint32_t kOrderSeed = 1;
constexpr const char* kMethod =
    "Hodges-Lehmann estimate and exact Wilcoxon signed-rank interval of the logarithms of paired "
    "ratios";

Status fill(AbRow& row, std::span<Engine* const, kAbSides> engines, uint32_t n_vocab,
            uint32_t rounds, const std::function<bool()>& stop, uint32_t first_sample) {
  for (Engine* engine : engines) {
    PUMICE_TRY_STATUS(warm_up(*engine, n_vocab, row.test, first_sample, stop));
  }
  std::mt19937 random(kOrderSeed);
  for (uint32_t round = 0; round < rounds; ++round) {
    std::array<uint8_t, kAbSides> order = {0, 1, 2};
    for (size_t i = kAbSides; i-- > 1;) std::swap(order[i], order[random() % (i + 1)]);
    std::array<double, kAbSides> ns = {};
    for (const uint8_t side : order) {
      PUMICE_TRY(const Sample sample,
                 run_sample(*engines[side], n_vocab, row.test, first_sample + round + 1, stop));
      ns[side] = sample.ns;
    }
    row.order.push_back(order);
    for (size_t side = 0; side < kAbSides; ++side) row.samples_ns[side].push_back(ns[side]);
  }
  return {};
}

std::vector<double> rates(const AbRow& row, size_t side) {
  std::vector<double> result;
  for (const double ns : row.samples_ns[side])
    result.push_back(static_cast<double>(row.test.n_tokens()) * 1e9 / ns);
  return result;
}

Json to_json(const RatioInterval& interval) {
  return {{"ratio", interval.ratio},
          {"low", interval.low},
          {"high", interval.high},
          {"width_percent", interval.width_percent()},
          {"confidence", interval.confidence}};
}

Json to_json(const AbSide& side) {
  return {{"configuration", side.configuration},
          {"options", options_to_json(side.options)},
          {"limit", side.limit},
          {"variants", side.variants},
          {"tuning", side.tuning}};
}

const char* verdict(const AbRow& row) {
  const RatioInterval ratio = row.ratio();
  if (row.samples_ns[0].size() < kLeastPairs) return "too few rounds";
  if (!row.null().contains(1)) return "the machine is not steady";
  if (ratio.contains(1)) return "no difference shown";
  return ratio.ratio > 1 ? "B is faster" : "B is slower";
}

}  // namespace

AbRow bench_ab(std::span<Engine* const, kAbSides> engines, uint32_t n_vocab, const ModelTest& test,
               uint32_t rounds, const std::function<bool()>& stop, uint32_t first_sample) {
  AbRow row{.test = test};
  const Status status = fill(row, engines, n_vocab, rounds, stop, first_sample);
  if (!status.ok()) row.error = status.error();
  return row;
}

Json to_json(std::span<const AbRow> rows, const AbSide& a, const AbSide& b) {
  Json records = Json::array();
  for (const AbRow& row : rows) {
    Json record{{"test", row.test.name()},           {"n_prompt", row.test.n_prompt},
                {"n_gen", row.test.n_gen},           {"n_depth", row.test.n_depth},
                {"n_parallel", row.test.n_parallel}, {"order", row.order}};
    for (size_t side = 0; side < kAbSides; ++side) {
      const std::vector<double> per_second = rates(row, side);
      record[std::string(kAbNames[side])] = {{"samples_ns", row.samples_ns[side]},
                                             {"samples_ts", per_second},
                                             {"median_ts", summarize(per_second).median}};
    }
    record["b_over_a"] = to_json(row.ratio());
    record["null"] = to_json(row.null());
    record["verdict"] = verdict(row);
    if (row.error) record["error"] = row.error->message;
    records.push_back(std::move(record));
  }
  return {{"bench", "ab"},   {"method", kMethod}, {"order_seed", kOrderSeed},
          {"a", to_json(a)}, {"b", to_json(b)},   {"rows", records}};
}

std::string to_markdown(std::span<const AbRow> rows, const AbSide& a, const AbSide& b) {
  std::string text = fmt::format(
      "A: {}\nB: {}\n\n| test | rounds | A t/s | B t/s | B/A | 95 % interval | A/A interval | its "
      "width | |\n| --: | --: | --: | --: | --: | :-: | :-: | --: | :-- |\n",
      a.configuration, b.configuration);
  for (const AbRow& row : rows) {
    const RatioInterval ratio = row.ratio();
    const RatioInterval null = row.null();
    text += fmt::format(
        "| {} | {} | {:.2f} | {:.2f} | {:.3f} | {:.3f} – {:.3f} | {:.3f} – {:.3f} | {:.1f} % | {} "
        "|\n",
        row.test.name(), row.order.size(), summarize(rates(row, 0)).median,
        summarize(rates(row, 1)).median, ratio.ratio, ratio.low, ratio.high, null.low, null.high,
        null.width_percent(), row.error ? row.error->message : verdict(row));
  }
  return text;
}

}  // namespace pumice::bench
