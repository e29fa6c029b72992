#include "bench/ops_bench.hpp"

#include <algorithm>
#include <chrono>

#include "bench/statistics.hpp"

namespace pumice::bench {

Result<std::optional<Timing>> check_and_time(vk::PipelineLibrary& pipelines,
                                             const ops::OpCase& op_case,
                                             const TimingOptions& options,
                                             const std::function<bool()>& goes_on) {
  const auto go_on = [&]() -> Status {
    if (!options.stop || !options.stop()) return {};
    return make_error(ErrorCode::kCancelled, "interrupted");
  };
  ops::OpBed bed(pipelines.device(), pipelines);
  PUMICE_TRY_STATUS(go_on());
  PUMICE_TRY(const ops::PreparedOp op, op_case.prepare(bed));
  if (goes_on && !goes_on()) return std::optional<Timing>();
  PUMICE_TRY_STATUS(go_on());
  PUMICE_TRY_STATUS(pipelines.compile());
  PUMICE_TRY_STATUS(go_on());
  PUMICE_TRY_STATUS(ops::run_and_check(bed, op));
  const std::span<const Run> runs =
      op.rotation.empty() ? std::span(&op.record, 1) : std::span(op.rotation);
  PUMICE_TRY(Timing timing, time_runs(pipelines.device(), runs, options));
  return std::optional(std::move(timing));
}

double OpRow::median_ns() const { return summarize(timing.samples_ns).median; }

double OpRow::gigabytes_per_second() const {
  return static_cast<double>(timing.cost().bytes) / median_ns();
}

double OpRow::teraflops() const {
  return static_cast<double>(timing.cost().flops) / median_ns() * 1e-3;
}

double OpRow::percent_of_limit() const { return 100 * limit.ns / median_ns(); }

std::vector<std::string> OpRow::labels() const {
  std::vector<std::string> labels;
  for (const TimedCommand& command : timing.commands) {
    if (std::ranges::find(labels, command.label) == labels.end()) {
      labels.push_back(command.label);
    }
  }
  return labels;
}

OpRow bench_op(vk::PipelineLibrary& pipelines, const ops::OpCase& op_case, const Roofline& roofline,
               const TimingOptions& options) {
  OpRow row{.op = op_case.op, .name = op_case.name};
  Result<std::optional<Timing>> timing = check_and_time(pipelines, op_case, options);
  if (!timing.ok()) {
    row.error = timing.error();
    return row;
  }
  row.timing = std::move(**timing);
  row.limit = limit_of(roofline, row.timing.commands);
  return row;
}

double default_time_limit_s(const vk::DevicePlan& plan) {
  return plan.device_class == vk::DeviceClass::kCpu ? 50 : 120;
}

OpsReport bench_ops(vk::PipelineLibrary& pipelines, std::span<const ops::OpCase> cases,
                    const OpsOptions& options) {
  OpsReport report;
  const vk::DevicePlan& plan = pipelines.device()->plan();
  std::vector<const ops::OpCase*> chosen;
  for (const ops::OpCase& op_case : cases) {
    const std::string title = op_case.op + " " + op_case.name;
    if (title.find(options.filter) == std::string::npos) continue;
    if (!op_case.supported || op_case.supported(plan)) chosen.push_back(&op_case);
  }
  std::stable_partition(chosen.begin(), chosen.end(), [](const ops::OpCase* op_case) {
    return op_case->op != "gemv" && op_case->op != "gemm";
  });
  if (chosen.empty()) return report;
  const auto start = std::chrono::steady_clock::now();
  const auto out_of_time = [&] {
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    return options.time_limit_s > 0 && elapsed.count() > options.time_limit_s;
  };
  const auto progress = [&](size_t done, const std::string& next) {
    if (options.progress) options.progress(done, chosen.size(), next);
  };
  Result<Peaks> peaks =
      measure_peaks(pipelines, options.timing, [&](const std::string& what) { progress(0, what); });
  if (!peaks.ok()) {
    report.ended = peaks.error();
    return report;
  }
  report.peaks = std::move(*peaks);
  const Roofline roofline = report.peaks.roofline();
  for (const ops::OpCase* op_case : chosen) {
    if (out_of_time()) {
      report.n_left_out = chosen.size() - report.rows.size();
      break;
    }
    progress(report.rows.size(), op_case->op + " " + op_case->name);
    OpRow row = bench_op(pipelines, *op_case, roofline, options.timing);
    const std::optional<Error> error = row.error;
    const bool cancelled = error && error->code == ErrorCode::kCancelled;
    if (!cancelled) report.rows.push_back(std::move(row));
    if (cancelled || (error && error->code == ErrorCode::kDeviceLost)) {
      report.ended = error;
      break;
    }
  }
  return report;
}

Status verdict(const OpsReport& report) {
  if (report.ended) return *report.ended;
  const Error* other = nullptr;
  size_t n_wrong = 0;
  for (const OpRow& row : report.rows) {
    if (!row.error || row.error->code == ErrorCode::kDoesNotFit) continue;
    if (row.error->code == ErrorCode::kSelfTestFailed) {
      ++n_wrong;
    } else if (other == nullptr) {
      other = &*row.error;
    }
  }
  if (n_wrong > 0) {
    return make_error(ErrorCode::kSelfTestFailed,
                      "{} of {} rows computed wrong results on this device and have no score",
                      n_wrong, report.rows.size());
  }
  if (other != nullptr) return *other;
  return {};
}

}  // namespace pumice::bench
