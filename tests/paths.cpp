#include "tests/paths.hpp"

namespace pumice::test {

std::filesystem::path shared_path(const std::string& relative) {
  return std::filesystem::path(PUMICE_SHARED_DIR) / relative;
}

std::filesystem::path source_path(const std::string& relative) {
  return std::filesystem::path(PUMICE_SOURCE_DIR) / relative;
}

}  // namespace pumice::test
