// `pumice tune`: races the rows of tuning that a device could take for the shapes of its cases, and keeps what is
// faster. A row is timed in the place of the one that is chosen now, on the same case, which must also be computed
// right. Losers are dropped after one case; a winner must win again, in alternation with what it would replace, and
// pass the op's own cases.
//
// The search is by coordinates, as autotuners of BLAS do it (Whaley & Dongarra, "Automatically Tuned Linear Algebra
// Software", 1998): first the table's other rows, then, from the best so far, one number after the other.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bench/timing.hpp"
#include "shaders/op_case.hpp"
#include "vk/pipeline.hpp"
#include "vk/tuning_rows.hpp"

namespace pumice::bench {

/// A row that is faster than the one before it.
struct TunedRow {
  std::string op;
  std::string shape;   ///< the row's conditions; empty: all shapes
  std::string row;     ///< the line, without a comment
  std::string before;  ///< the one that was chosen
  double gain = 1;     ///< times as fast, on all cases that chose it
  std::vector<std::string> cases;
};

struct TunerReport {
  std::vector<TunedRow> rows;
  size_t n_raced = 0;    ///< rows that were timed
  size_t n_wrong = 0;    ///< of these, those that computed something else
  size_t n_choices = 0;  ///< that were raced for, of n_all
  size_t n_all = 0;
  std::optional<Error> ended;  ///< why it stopped early: device loss, an interrupt
};

/// Nanoseconds that a row takes, in `repetitions` samples; nothing: it cannot be taken. Errors: of
/// kSelfTestFailed the row is out, others end the race.
using TimeRow =
    std::function<Result<std::optional<double>>(const vk::TuningRow& row, uint32_t repetitions)>;

/// What a race is about.
struct Race {
  const vk::TuningTable& table;
  std::string conditions;           ///< of the rows that are made
  vk::TuningRow before;             ///< what is chosen now
  std::vector<vk::TuningRow> rows;  ///< others of the table that would do
};

struct RaceResult {
  std::optional<vk::TuningRow> winner;  ///< none: what is chosen now is the fastest
  double gain = 1;
  size_t n_raced = 0;
  size_t n_wrong = 0;
};

/// By how much a row must be faster, in the race and when it is timed again: less is noise.
constexpr double kLeastGain = 1.03;

/// Races until `out_of_time`; what has won by then counts. Errors: those of `time`.
Result<RaceResult> run_race(const Race& race, const TimeRow& time,
                            const std::function<bool()>& out_of_time);

struct TunerOptions {
  TimingOptions timing;
  double time_limit_s = 0;  ///< no row is timed later than this; 0: no limit
  /// Told before each race, and each first timing of a case.
  std::function<void(size_t done, size_t total, const std::string& next)> progress = {};
};

/// Makes the pipelines that choose by these rows before others.
using MakePipelines =
    std::function<std::shared_ptr<vk::PipelineLibrary>(std::vector<vk::TuningRow> preferred)>;

/// Race for all that these cases choose. `checks` are cases of the ops that a winner must pass.
TunerReport tune(const MakePipelines& make_pipelines, std::span<const ops::OpCase> cases,
                 std::span<const ops::OpCase> checks, const TunerOptions& options);

}  // namespace pumice::bench
