#include "bench/ops_report.hpp"

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "bench/build_info.hpp"
#include "bench/device_record.hpp"
#include "bench/statistics.hpp"
#include "shaders/spirv.hpp"

namespace pumice::bench {
namespace {

using Json = nlohmann::json;

const char* clock_name(const vk::Device& device) {
  return has_device_clock(device) ? "device timestamps" : "host clock around submissions";
}

std::string join(const std::vector<std::string>& parts) {
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : " + ") + part;
  return text;
}

/// Three significant digits, without an exponent.
std::string rounded(double value) {
  if (value >= 100) return fmt::format("{:.0f}", value);
  if (value >= 10) return fmt::format("{:.1f}", value);
  if (value >= 1) return fmt::format("{:.2f}", value);
  return fmt::format("{:.3f}", value);
}

Json row_to_json(const OpRow& row) {
  Json json{{"op", row.op}, {"case", row.name}};
  if (row.error) {
    json["error"] = row.error->message;
    json["wrong"] = row.error->code == ErrorCode::kSelfTestFailed;
    return json;
  }
  const vk::Cost cost = row.timing.cost();
  json["labels"] = row.labels();
  json["dispatches"] = row.timing.commands.size();
  json["bytes"] = cost.bytes;
  json["flops"] = cost.flops;
  json["samples_ns"] = row.timing.samples_ns;
  json["runs_per_sample"] = row.timing.runs_per_sample;
  json["median_ns"] = row.median_ns();
  json["gigabytes_per_second"] = row.gigabytes_per_second();
  json["teraflops"] = row.teraflops();
  json["limit"] = row.limit.what;
  json["limit_ns"] = row.limit.ns;
  json["percent_of_limit"] = row.percent_of_limit();
  return json;
}

std::string row_to_markdown(const OpRow& row) {
  if (row.error) {
    const bool wrong = row.error->code == ErrorCode::kSelfTestFailed;
    return fmt::format("| {} | {} | {}: {} | | | | | | | |\n", row.op, row.name,
                       wrong ? "WRONG" : "failed", row.error->message);
  }
  const vk::Cost cost = row.timing.cost();
  return fmt::format("| {} | {} | {} | {} | {:.0f} % | {} | {} | {} | {} | {:.0f} % of {} |\n",
                     row.op, row.name, join(row.labels()), rounded(row.median_ns() * 1e-3),
                     summarize(row.timing.samples_ns).spread_percent(),
                     rounded(static_cast<double>(cost.bytes) * 1e-6),
                     rounded(static_cast<double>(cost.flops) * 1e-9),
                     rounded(row.gigabytes_per_second()), rounded(row.teraflops()),
                     row.percent_of_limit(), row.limit.what);
}

}  // namespace

Json to_json(const OpsReport& report, const vk::Device& device) {
  Json json{{"bench", "ops"},
            {"pumice_version", PUMICE_VERSION},
            {"build_commit", build_commit()},
            {"build_dirty", build_is_dirty()},
            {"shader_hash", fmt::format("{:016x}", spirv_hash())},
            {"device", device_to_json(device)},
            {"clock", clock_name(device)},
            {"scaled_down", report.scale.small},
            {"rotation_bytes", report.scale.rotation_bytes},
            {"working_set_bytes", report.peaks.working_set_bytes}};
  json["peaks"] = Json::array();
  for (const Peak& peak : report.peaks.peaks) {
    json["peaks"].push_back({{"name", peak.name},
                             {"value", peak.value()},
                             {"unit", unit_name(peak.unit)},
                             {"bytes", peak.cost.bytes},
                             {"flops", peak.cost.flops},
                             {"samples_ns", peak.samples_ns}});
  }
  json["peaks_absent"] = report.peaks.absent;
  json["ops"] = Json::array();
  for (const OpRow& row : report.rows) json["ops"].push_back(row_to_json(row));
  json["left_out"] = report.n_left_out;
  if (report.ended) json["ended"] = report.ended->message;
  return json;
}

std::string to_markdown(const OpsReport& report, const vk::Device& device) {
  const vk::DeviceSnapshot& snapshot = device.snapshot();
  std::string text =
      fmt::format("{} ({}, {} {}, Vulkan {}), timed by {}\n", snapshot.name,
                  vk::device_type_name(snapshot.type), snapshot.driver_name, snapshot.driver_info,
                  vk::format_api_version(snapshot.api_version), clock_name(device));
  if (report.scale.small) {
    text += "A CPU driver: the set of shapes was scaled down, see docs/BENCHMARKING.md\n";
  }
  text += "\n| peak | value | unit | spread |\n|---|---:|---|---:|\n";
  for (const Peak& peak : report.peaks.peaks) {
    text += fmt::format("| {} | {} | {} | {:.0f} % |\n", peak.name, rounded(peak.value()),
                        unit_name(peak.unit), summarize(peak.samples_ns).spread_percent());
  }
  for (const std::string& absent : report.peaks.absent) text += "Not measured: " + absent + "\n";
  text += fmt::format("Bandwidth over {} MiB\n\n", report.peaks.working_set_bytes >> 20);
  text +=
      "| op | case | kernels | us | spread | MB | GFLOP | GB/s | TFLOP/s | limit |\n"
      "|---|---|---|---:|---:|---:|---:|---:|---:|---:|\n";
  for (const OpRow& row : report.rows) text += row_to_markdown(row);
  if (report.n_left_out > 0) {
    text += fmt::format("\n{} more rows were left out for time (--seconds 0 measures all)\n",
                        report.n_left_out);
  }
  if (report.ended) text += "\nEnded early: " + report.ended->message + "\n";
  return text;
}

}  // namespace pumice::bench
