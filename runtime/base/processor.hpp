// What the system says of its processors at one moment.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace pumice {

/// Empty where the system does not say.
struct ProcessorState {
  std::string name;
  uint32_t n_cores = 0;
  std::vector<double> clocks_mhz;  ///< of each core
  std::string governor;            ///< of the first core: who chooses its clock
  std::optional<double> load_1m;   ///< runnable threads, mean of the last minute
};

/// `root` stands for "/" where the system says it in files.
ProcessorState read_processor_state(const std::filesystem::path& root = "/");

}  // namespace pumice
