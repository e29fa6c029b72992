#include <fstream>
#include <sstream>

#include "base/processor.hpp"

namespace pumice {
namespace {

namespace fs = std::filesystem;

constexpr const char* kGovernor = "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor";

/// Lines of "key : value", one paragraph a core.
void read_cores(const fs::path& path, ProcessorState& state) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(": ");
    const std::string value = colon == std::string::npos ? "" : line.substr(colon + 2);
    if (line.starts_with("processor")) ++state.n_cores;
    if (line.starts_with("model name")) state.name = value;
    if (!line.starts_with("cpu MHz")) continue;
    double clock_mhz = 0;
    if (std::istringstream(value) >> clock_mhz) state.clocks_mhz.push_back(clock_mhz);
  }
}

}  // namespace

ProcessorState read_processor_state(const fs::path& root) {
  ProcessorState state;
  read_cores(root / "proc/cpuinfo", state);
  std::ifstream governor(root / kGovernor);
  std::getline(governor, state.governor);
  double load = 0;
  if (std::ifstream(root / "proc/loadavg") >> load) state.load_1m = load;
  return state;
}

}  // namespace pumice
