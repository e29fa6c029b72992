// What a machine's own sensors say at one moment: clocks, temperature, power, memory, load. Taken
// before and after a measurement, for its record. Nothing is guessed: what no sensor says is named
// under "absent" with the reason.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>

#include "vk/device.hpp"

namespace pumice::bench {

/// {"time", "heaps": [{"budget_bytes", "usage_bytes"}], "processor": …, "gpu": …}. `gpu` is what
/// NVML says of the device of this UUID, else what the kernel's driver says in sysfs; a CPU driver
/// has none. Milliseconds; any thread.
nlohmann::json read_machine(const vk::Device& device);

/// {"name", "cores", "clock_mhz": [least, most], "governor", "load_1m", "absent": {…}}. `root`
/// stands for "/".
nlohmann::json read_processor(const std::filesystem::path& root = "/");

/// {"source", "clock_mhz", "memory_clock_mhz", "temperature_c", "power_w", "absent": {…}} of the
/// only device with these PCI ids under sysfs.
nlohmann::json read_sysfs_gpu(uint32_t vendor_id, uint32_t device_id,
                              const std::filesystem::path& root = "/");

}  // namespace pumice::bench
