// A folder for one test, which takes itself away with all that is in it.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <random>
#include <string>
#include <system_error>

namespace pumice::test {

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::random_device random;
    const std::string name = "pumice-test-" + std::to_string(random());
    path_ = std::filesystem::temp_directory_path() / name;
    EXPECT_TRUE(std::filesystem::create_directory(path_)) << "another has it";
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace pumice::test
