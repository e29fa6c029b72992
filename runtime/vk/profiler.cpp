#include "vk/profiler.hpp"

#include <algorithm>
#include <vector>

namespace pumice::vk {

Status Profiler::add(const RecordedWork& work) {
  PUMICE_TRY(const std::vector<double> times_ns, work.command_times_ns());
  for (size_t i = 0; i < times_ns.size(); ++i) {
    const CommandInfo& command = work.commands()[i];
    Row& row = rows_[std::string(command.label)];
    ++row.calls;
    row.time_ns += times_ns[i];
    row.cost += command.cost;
  }
  return {};
}

std::string Profiler::table() const {
  std::vector<std::pair<std::string, Row>> sorted(rows_.begin(), rows_.end());
  std::ranges::sort(
      sorted, [](const auto& a, const auto& b) { return a.second.time_ns > b.second.time_ns; });
  double total_ns = 0;
  for (const auto& [label, row] : sorted) total_ns += row.time_ns;
  std::string text = fmt::format("{:<32} {:>8} {:>12} {:>7} {:>9} {:>9}\n", "kernel", "calls", "ms",
                                 "share", "GB/s", "GFLOP/s");
  for (const auto& [label, row] : sorted) {
    text += fmt::format("{:<32} {:>8} {:>12.3f} {:>6.1f}% {:>9.2f} {:>9.2f}\n", label, row.calls,
                        row.time_ns * 1e-6, 100 * row.time_ns / total_ns,
                        row.gigabytes_per_second(), row.teraflops() * 1e3);
  }
  return text;
}

}  // namespace pumice::vk
