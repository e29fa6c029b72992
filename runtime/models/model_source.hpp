// Where a model comes from: metadata, the tensors' shapes, and their bytes, which lie in a file or
// are made as they are read. What loads or describes a model takes this, and a GgufFile converts to
// it.
#pragma once

#include <atomic>
#include <filesystem>
#include <memory>
#include <span>
#include <vector>

#include "base/result.hpp"
#include "format/gguf.hpp"
#include "models/adapter.hpp"
#include "models/synthetic.hpp"
#include "shaders/common/weight_matrix.hpp"

namespace pumice {

/// Copyable; any number of threads may read.
class ModelSource {
 public:
  /// A view of a file, which must outlive it.
  ModelSource(const GgufFile& file)  // NOLINT(google-explicit-constructor)
      : file_(std::shared_ptr<const GgufFile>(), &file) {}
  /// Errors: those of GgufFile::open.
  static Result<ModelSource> open(const std::filesystem::path& path);
  /// The model whose file `write_synthetic_model` would write, to the byte, without any file. Holds
  /// its header in memory, and no weights.
  static Result<ModelSource> synthetic(const SyntheticModel& model);

  /// The same model, whose requests may each have one of these (with_adapters).
  ModelSource with_adapters(std::vector<AdapterSource> adapters) const;
  std::span<const AdapterSource> adapters() const { return *adapters_; }

  /// Metadata, and tensors by name.
  const GgufFile& file() const { return *file_; }
  /// How many programs were built of it and its copies (families.hpp).
  uint32_t n_programs() const { return *n_programs_; }
  void count_program() const { ++*n_programs_; }
  bool has_tensor_data() const { return synthetic_ != nullptr || file_->has_tensor_data(); }

  /// The blocks of one of file().tensors() from `first_block` on; `out` holds a whole number of
  /// them. Errors: GgufFile::read's.
  Status read(const GgufTensor& tensor, uint64_t first_block, std::span<std::byte> out) const;
  /// All of a small tensor as floats. Its type must have a codec. Errors: as `read`.
  Result<std::vector<float>> values(const GgufTensor& tensor) const;
  /// Rows [first_row, first_row + n_rows) of a matrix, for WeightMatrix::upload. A tensor of
  /// several matrices counts as one of all their rows. Valid as long as this source.
  WeightSource matrix(const GgufTensor& tensor, uint32_t first_row, uint32_t n_rows) const;

 private:
  const SyntheticTensor& made(const GgufTensor& tensor) const;

  std::shared_ptr<const GgufFile> file_;
  std::shared_ptr<const SyntheticModel> synthetic_;  // null for a file
  std::shared_ptr<const std::vector<AdapterSource>> adapters_ =
      std::make_shared<const std::vector<AdapterSource>>();
  std::shared_ptr<std::atomic<uint32_t>> n_programs_ = std::make_shared<std::atomic<uint32_t>>(0);
};

}  // namespace pumice
