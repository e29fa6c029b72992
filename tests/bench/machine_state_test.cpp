// Sensors are read where they are, and named where they are not.
#include "bench/machine_state.hpp"

#include <gtest/gtest.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <fstream>

namespace pumice::bench {
namespace {

/// A machine's files, removed when destroyed.
class Machine : public ::testing::Test {
 protected:
  ~Machine() override { std::filesystem::remove_all(root_); }
  void write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  void add_card(const std::string& name, const std::string& device) {
    write("sys/class/drm/" + name + "/device/vendor", "0x1002\n");
    write("sys/class/drm/" + name + "/device/device", device + "\n");
  }

  std::filesystem::path root_ =
      std::filesystem::temp_directory_path() / ("pumice-machine-" + std::to_string(::getpid()));
};

TEST_F(Machine, SensorsOfAGraphicsCardAreReadInTheirUnits) {
  add_card("card1", "0x744c");
  add_card("card0", "0x1111");
  const std::string sensors = "sys/class/drm/card1/device/hwmon/hwmon3/";
  write(sensors + "freq1_input", "2304000000\n");
  write(sensors + "temp1_input", "61500\n");
  write(sensors + "power1_average", "212000000\n");
  write("sys/class/drm/card1/device/pp_dpm_mclk", "0: 96Mhz\n1: 1249Mhz *\n");
  const auto reading = read_sysfs_gpu(0x1002, 0x744c, root_);
  EXPECT_EQ(reading.at("source"), "sysfs");
  EXPECT_NEAR(reading.at("clock_mhz").get<double>(), 2304, 1e-6);
  EXPECT_NEAR(reading.at("memory_clock_mhz").get<double>(), 1249, 1e-6);
  EXPECT_NEAR(reading.at("temperature_c").get<double>(), 61.5, 1e-6);
  EXPECT_NEAR(reading.at("power_w").get<double>(), 212, 1e-6);
  EXPECT_FALSE(reading.contains("absent"));
}

TEST_F(Machine, WhatNoSensorSaysIsNamed) {
  add_card("card0", "0x744c");
  EXPECT_EQ(read_sysfs_gpu(0x1002, 0x744c, root_).at("absent").at("power_w"),
            "not reported by its driver");
  EXPECT_EQ(read_sysfs_gpu(0x1002, 0x9999, root_).at("absent").at("clock_mhz"),
            "no driver reports on this device");
  add_card("card1", "0x744c");
  const auto twins = read_sysfs_gpu(0x1002, 0x744c, root_);
  EXPECT_EQ(twins.at("absent").at("clock_mhz"),
            "2 devices of this kind, and no way to tell them apart");
  EXPECT_FALSE(twins.contains("source"));
}

TEST_F(Machine, TheProcessorSaysNameClocksAndLoad) {
  write("proc/cpuinfo",
        "processor\t: 0\nmodel name\t: Some CPU\ncpu MHz\t\t: 2200.5\n\n"
        "processor\t: 1\nmodel name\t: Some CPU\ncpu MHz\t\t: 3100\n");
  write("proc/loadavg", "1.25 0.9 0.5 1/100 4242\n");
  const auto reading = read_processor(root_);
  EXPECT_EQ(reading.at("name"), "Some CPU");
  EXPECT_EQ(reading.at("cores"), 2);
  EXPECT_EQ(reading.at("clock_mhz"), (nlohmann::json{2200.5, 3100.0}));
  EXPECT_EQ(reading.at("load_1m"), 1.25);
  EXPECT_TRUE(reading.at("absent").contains("governor"));
  EXPECT_TRUE(read_processor(root_ / "none").at("absent").contains("name"));
}

}  // namespace
}  // namespace pumice::bench
