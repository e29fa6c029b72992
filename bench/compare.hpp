// `pumice bench --compare`: what became faster or slower from one results file to others.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bench/result_file.hpp"
#include "bench/statistics.hpp"

namespace pumice::bench {

/// How much faster than the base: 2 is half the time. The interval is what the quartiles of both
/// sides allow; it is the ratio itself where both have one sample.
struct SpeedRatio {
  double ratio = 0;
  double low = 0;
  double high = 0;
};
/// Of medians. Neither side may be empty.
SpeedRatio speed_ratio(std::span<const double> base, std::span<const double> other,
                       bool more_is_better);

struct ComparedCell {
  const ResultRow* row = nullptr;   ///< nullptr: the file has no such row
  Summary summary;                  ///< in the row's unit; only without a problem
  std::optional<SpeedRatio> ratio;  ///< to the base, if both sides have a score
};

struct ComparedRow {
  std::string name;  ///< the test, and what else tells rows of a file apart
  std::string unit;
  std::vector<ComparedCell> cells;  ///< one for each file, the base first
};

/// Points into the files it was made of.
struct Comparison {
  std::vector<const ResultFile*> files;  ///< the base first
  std::vector<ComparedRow> rows;         ///< in the base's order, then what only others have

  size_t n_ratios() const;
};

/// Rows match by test and unit. Model, device and settings count too where they vary within a file;
/// where they only differ between files they are what is compared, and the head of the report says
/// so. Rows of one file that are still equal match in their order. At least two files.
Comparison compare(std::span<const ResultFile> files);

nlohmann::json to_json(const Comparison& comparison);
std::string to_markdown(const Comparison& comparison);

}  // namespace pumice::bench
