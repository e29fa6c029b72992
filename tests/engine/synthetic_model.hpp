// Small random Llama models (models/synthetic.hpp) in temporary files.
#pragma once

#include <cstdint>
#include <filesystem>

#include "format/weight_type.hpp"

namespace pumice::test {

struct SyntheticModel {
  uint32_t n_layers = 2;
  uint32_t n_embd = 64;
  uint32_t n_heads = 4;
  uint32_t n_kv_heads = 2;
  uint32_t n_ff = 96;
  uint32_t n_vocab = 96;
  uint32_t context_length = 512;
  uint32_t seed = 1;
  const WeightType* type = &weight_type("F32");
};

/// Removed when destroyed.
class TemporaryFile {
 public:
  explicit TemporaryFile(std::filesystem::path path) : path_(std::move(path)) {}
  ~TemporaryFile() {
    std::error_code error;
    std::filesystem::remove(path_, error);
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

/// Errors fail the test.
TemporaryFile write_synthetic_model(const SyntheticModel& shape);

}  // namespace pumice::test
