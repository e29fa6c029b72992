#include "bench/tuner.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cmath>
#include <limits>

#include "base/check.hpp"
#include "bench/ops_bench.hpp"
#include "bench/statistics.hpp"
#include "shaders/common/tuning.hpp"

namespace pumice::bench {
namespace {

constexpr uint32_t kFirstSamples = 3;
constexpr uint32_t kConfirmingRounds = 3;
constexpr double kLost = 1.25;  // times as slow on one case: no other is tried
constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr size_t kCasesOfRace = 3;  // that a row is timed on
constexpr size_t kMostChecks = 24;  // cases that a winner must pass

using Numbers = std::vector<std::pair<std::string, uint32_t>>;

std::string line_of(const Race& race, const std::string& choice, const Numbers& numbers) {
  std::string line = race.table.name;
  if (!choice.empty()) line += " " + choice;
  if (!race.conditions.empty()) line += " if " + race.conditions;
  if (!numbers.empty()) line += " use";
  for (const auto& [name, value] : numbers) line += fmt::format(" {}={}", name, value);
  return line;
}

vk::TuningRow row_of(const Race& race, const std::string& choice, const Numbers& numbers) {
  const auto rows =
      vk::parse_tuning_rows("tuned", line_of(race, choice, numbers), {&race.table, 1});
  PUMICE_CHECK(rows.ok() && rows->size() == 1, "a row that its table does not allow");
  return rows->front();
}

/// What a row is, whatever it holds for.
bool is_alike(const vk::TuningRow& a, const vk::TuningRow& b) {
  return a.choice == b.choice && a.numbers == b.numbers;
}

/// One run of a race.
class Racing {
 public:
  Racing(const Race& race, const TimeRow& time, const std::function<bool()>& out_of_time)
      : race_(race), time_(time), out_of_time_(out_of_time) {}

  Result<RaceResult> run() {
    PUMICE_TRY(const std::optional<double> before_ns, time_(race_.before, kFirstSamples));
    if (!before_ns) return result_;
    best_ns_ = *before_ns;
    known_.push_back(race_.before);
    for (const vk::TuningRow& row : race_.rows) PUMICE_TRY_STATUS(try_row(row.choice, row.numbers));
    bool improved = true;
    while (improved && !out_of_time_()) {
      PUMICE_TRY(improved, try_numbers());
    }
    if (!result_.winner) return result_;
    PUMICE_TRY_STATUS(confirm());
    return result_;
  }

 private:
  const vk::TuningRow& best() const { return result_.winner ? *result_.winner : race_.before; }

  Status try_row(const std::string& choice, const Numbers& numbers) {
    const vk::TuningRow row = row_of(race_, choice, numbers);
    const auto same = [&](const vk::TuningRow& other) { return is_alike(row, other); };
    if (out_of_time_() || std::ranges::any_of(known_, same)) return {};
    known_.push_back(row);
    const Result<std::optional<double>> ns = time_(row, kFirstSamples);
    if (!ns.ok() && ns.error().code != ErrorCode::kSelfTestFailed) return ns.error();
    ++result_.n_raced;
    if (!ns.ok()) {
      ++result_.n_wrong;
    } else if (*ns && **ns * kLeastGain < best_ns_) {
      best_ns_ = **ns;
      result_.winner = row;
    }
    return {};
  }

  /// All that differ from the best in one number. Whether one of them is better.
  Result<bool> try_numbers() {
    const vk::TuningRow from = best();
    for (const vk::TuningTable::Number& number : race_.table.numbers) {
      if (!race_.table.has(number, from.choice)) continue;
      for (const uint32_t value : number.values) {
        Numbers numbers = from.numbers;
        const auto at = std::ranges::find(numbers, number.name, &Numbers::value_type::first);
        PUMICE_CHECK(at != numbers.end(), "a row without a number of its table");
        at->second = value;
        PUMICE_TRY_STATUS(try_row(from.choice, numbers));
      }
    }
    return !is_alike(best(), from);
  }

  /// In alternation with what it would replace.
  Status confirm() {
    std::vector<double> gains;
    for (uint32_t i = 0; i < kConfirmingRounds; ++i) {
      PUMICE_TRY(const std::optional<double> before_ns, time_(race_.before, kFirstSamples));
      PUMICE_TRY(const std::optional<double> now_ns, time_(*result_.winner, kFirstSamples));
      if (before_ns && now_ns) gains.push_back(*before_ns / *now_ns);
    }
    result_.gain = gains.empty() ? 0 : summarize(gains).median;
    if (result_.gain < kLeastGain) {
      result_.winner.reset();
      result_.gain = 1;
    }
    return {};
  }

  const Race& race_;
  const TimeRow& time_;
  const std::function<bool()>& out_of_time_;
  RaceResult result_;
  double best_ns_ = 0;
  std::vector<vk::TuningRow> known_;
};

const vk::TuningTable& table_of(const std::string& name) {
  return *std::ranges::find(ops::tuning_tables(), name, &vk::TuningTable::name);
}

/// Whether ops that are planned on these pipelines choose the row.
bool is_chosen(const vk::PipelineLibrary& pipelines, const vk::TuningRow& row) {
  return std::ranges::any_of(pipelines.choices(), [&](const vk::TuningChoice& choice) {
    return choice.row.table == row.table && choice.row.text == row.text;
  });
}

class Tuner {
 public:
  Tuner(const MakePipelines& make_pipelines, std::span<const ops::OpCase> cases,
        std::span<const ops::OpCase> checks, const TunerOptions& options)
      : make_pipelines_(make_pipelines), cases_(cases), checks_(checks), options_(options) {
    out_of_time_ = [this] {
      return options_.time_limit_s > 0 && ns_since(start_) > options_.time_limit_s * 1e9;
    };
  }

  TunerReport run() {
    const Status status = tune_all();
    if (!status.ok()) report_.ended = status.error();
    return std::move(report_);
  }

 private:
  /// What one table is asked for one shape.
  struct Choice {
    vk::TuningChoice now;
    std::vector<const ops::OpCase*> cases;
  };

  Status tune_all() {
    PUMICE_TRY(const std::vector<Choice> choices, find_choices());
    report_.n_all = choices.size();
    for (const Choice& choice : choices) {
      if (out_of_time_()) break;
      progress(report_.n_choices, choices.size(),
               choice.now.row.table + " " + choice.now.shape.text());
      PUMICE_TRY_STATUS(tune_one(choice));
      ++report_.n_choices;
    }
    return {};
  }

  /// In the order of the cases.
  Result<std::vector<Choice>> find_choices() {
    std::vector<Choice> choices;
    for (const ops::OpCase& one : cases_) {
      const auto pipelines = make_pipelines_(adopted_);
      progress(0, cases_.size(), one.op + " " + one.name);
      ops::OpBed bed(pipelines->device(), *pipelines);
      const Result<ops::PreparedOp> op = one.prepare(bed);
      if (!op.ok() && op.error().code == ErrorCode::kDoesNotFit) continue;
      if (!op.ok()) return op.error();
      for (vk::TuningChoice& choice : pipelines->choices()) {
        if (!concerns(choice, one)) continue;
        const auto known = std::ranges::find_if(choices, [&](const Choice& other) {
          return other.now.row.table == choice.row.table &&
                 other.now.shape.text() == choice.shape.text();
        });
        if (known != choices.end()) {
          known->cases.push_back(&one);
        } else {
          choices.push_back({std::move(choice), {&one}});
        }
      }
    }
    return choices;
  }

  /// Products are planned for all numbers of rows together: whether a choice is one for those of
  /// this case.
  static bool concerns(const vk::TuningChoice& choice, const ops::OpCase& one) {
    const std::string& table = choice.row.table;
    // What finishing saves is in dispatches that no product is timed with.
    if (table == "gemv_finish") return false;
    if (one.op == "gemv" && table.starts_with("gemm")) return false;
    if (one.op == "gemm" && table.starts_with("gemv")) return false;
    const auto* tile_rows = choice.shape.find("tile_rows");
    if (tile_rows == nullptr) return true;
    const uint64_t rows = std::get<vk::TuningSize>(*tile_rows)[0];
    return one.name.find(fmt::format(" rows={} ", rows)) != std::string::npos;
  }

  Status tune_one(const Choice& choice) {
    // Evenly among all, so that small and large shapes have their say.
    std::vector<const ops::OpCase*> timed;
    const size_t n = std::min(choice.cases.size(), kCasesOfRace);
    for (size_t i = 0; i < n; ++i) timed.push_back(choice.cases[i * choice.cases.size() / n]);
    Race race{.table = table_of(choice.now.row.table),
              .conditions = choice.now.shape.text(),
              .before = choice.now.row,
              .rows = {}};
    const auto device = make_pipelines_(adopted_)->device();
    for (const vk::TuningRow* row :
         ops::tuning_rows(ops::TuningTarget(device->plan()), race.table.name, choice.now.shape)) {
      race.rows.push_back(*row);
    }
    std::vector<double> before_ns;  // of each case, for which a row is dropped early
    const auto time = [&](const vk::TuningRow& row,
                          uint32_t repetitions) -> Result<std::optional<double>> {
      return time_row(row, is_alike(row, race.before), timed, repetitions, before_ns);
    };
    PUMICE_TRY(const RaceResult result, run_race(race, time, out_of_time_));
    report_.n_raced += result.n_raced;
    report_.n_wrong += result.n_wrong;
    if (!result.winner) return {};
    const Status right = check(*result.winner, choice);
    if (!right.ok() && right.error().code == ErrorCode::kSelfTestFailed) {
      ++report_.n_wrong;
      return {};
    }
    PUMICE_TRY_STATUS(right);
    TunedRow tuned{.op = choice.cases.front()->op,
                   .shape = race.conditions,
                   .row = result.winner->text,
                   .before = race.before.text,
                   .gain = result.gain,
                   .cases = {}};
    for (const ops::OpCase* one : choice.cases) tuned.cases.push_back(one->name);
    report_.rows.push_back(std::move(tuned));
    adopted_.push_back(*result.winner);
    return {};
  }

  std::vector<vk::TuningRow> with(const vk::TuningRow& row) const {
    std::vector<vk::TuningRow> rows = {row};
    rows.insert(rows.end(), adopted_.begin(), adopted_.end());
    return rows;
  }

  /// The geometric mean over the cases. The first time is that of what is chosen now.
  Result<std::optional<double>> time_row(const vk::TuningRow& row, bool is_before,
                                         std::span<const ops::OpCase* const> cases,
                                         uint32_t repetitions, std::vector<double>& before_ns) {
    double logarithms = 0;
    for (size_t i = 0; i < cases.size(); ++i) {
      const auto pipelines = make_pipelines_(is_before ? adopted_ : with(row));
      TimingOptions timing = options_.timing;
      timing.repetitions = repetitions;
      PUMICE_TRY(const std::optional<Timing> times,
                 check_and_time(*pipelines, *cases[i], timing,
                                [&] { return is_before || is_chosen(*pipelines, row); }));
      if (!times) return std::optional<double>();
      const double ns = summarize(times->samples_ns).median;
      if (before_ns.size() == i) before_ns.push_back(ns);
      if (ns > kLost * before_ns[i] && !is_before) return std::optional(kNever);
      logarithms += std::log(ns);
    }
    return std::optional(std::exp(logarithms / static_cast<double>(cases.size())));
  }

  /// The cases of its op, of its type of weights where it has one.
  Status check(const vk::TuningRow& row, const Choice& choice) {
    const auto* type = choice.now.shape.find("type");
    const auto pipelines = make_pipelines_(with(row));
    size_t n_checked = 0;
    for (const ops::OpCase& one : checks_) {
      if (one.op != choice.cases.front()->op || n_checked == kMostChecks) continue;
      if (one.supported && !one.supported(pipelines->device()->plan())) continue;
      if (type != nullptr && !is_of_type(one.name, std::get<std::string>(*type))) continue;
      ops::OpBed bed(pipelines->device(), *pipelines);
      PUMICE_TRY(const ops::PreparedOp op, one.prepare(bed));
      PUMICE_TRY_STATUS(pipelines->compile());
      PUMICE_TRY_STATUS(ops::run_and_check(bed, op));
      ++n_checked;
    }
    return {};
  }

  /// "Q4_K broadcast rows=1 …" is of "q4_k".
  static bool is_of_type(const std::string& name, const std::string& type) {
    std::string word = name.substr(0, name.find(' '));
    std::ranges::transform(word, word.begin(), [](unsigned char c) { return std::tolower(c); });
    return word == type;
  }

  void progress(size_t done, size_t total, const std::string& next) const {
    if (options_.progress) options_.progress(done, total, next);
  }

  const MakePipelines& make_pipelines_;
  std::span<const ops::OpCase> cases_;
  std::span<const ops::OpCase> checks_;
  const TunerOptions& options_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::function<bool()> out_of_time_;
  std::vector<vk::TuningRow> adopted_;
  TunerReport report_;
};

}  // namespace

Result<RaceResult> run_race(const Race& race, const TimeRow& time,
                            const std::function<bool()>& out_of_time) {
  return Racing(race, time, out_of_time).run();
}

TunerReport tune(const MakePipelines& make_pipelines, std::span<const ops::OpCase> cases,
                 std::span<const ops::OpCase> checks, const TunerOptions& options) {
  return Tuner(make_pipelines, cases, checks, options).run();
}

}  // namespace pumice::bench
