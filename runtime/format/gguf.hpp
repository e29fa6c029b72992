// Reading GGUF v2 and v3 (little-endian). Opening reads the header (everything before the tensor
// data) into memory and checks it completely; keys and strings are views into it, valid as long as
// the GgufFile (moving it keeps them valid). Tensor data are read when they are asked for.
//
// What opening checks, so that users need not: counts and lengths against the file's size before
// anything is allocated; keys and tensor names (UTF-8, unique, not empty); value types; dimensions,
// offsets and alignment; tensors inside the file, with the padding after the last one, and not
// overlapping. String *values* may be any bytes, as vocabularies in the wild are; GgufValue::as
// checks those it returns. A file that ends exactly where tensor data would begin is a valid header
// without data: it can be described but not loaded.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "format/gguf_value.hpp"
#include "format/input_file.hpp"
#include "format/weight_type.hpp"

namespace pumice {

struct GgufPart;

struct GgufTensor {
  std::string_view name;
  const WeightType* type = nullptr;
  uint32_t n_dims = 0;
  /// dims[0] varies fastest: a matrix has dims[0] columns (inputs) and dims[1] rows (outputs).
  /// Unused dimensions are 1.
  std::array<uint64_t, 4> dims = {1, 1, 1, 1};
  uint64_t n_bytes = 0;
  uint64_t offset = 0;  ///< in the data section
  uint32_t part = 0;    ///< of a model in several files: which, from 0

  uint64_t n_elements() const { return dims[0] * dims[1] * dims[2] * dims[3]; }
};

/// Move-only; safe to read from several threads.
class GgufFile {
 public:
  /// A file may have this many; beyond, it is refused, which bounds the memory spent on a file.
  static constexpr uint64_t kMaxMetadata = uint64_t{1} << 16;
  static constexpr uint64_t kMaxTensors = uint64_t{1} << 18;
  /// All that is before the tensor data. The largest vocabularies take a tenth of it.
  static constexpr uint64_t kMaxHeaderBytes = uint64_t{1} << 28;

  /// Errors (kBadFile) are one line that names the path and the field. The first part of a model
  /// in several files opens all of them (gguf_parts.hpp), with the tensors of all and its own
  /// metadata; another part is an error that says which to open. `open_file`: how each is opened.
  static Result<GgufFile> open(const std::filesystem::path& path,
                               const OpenFile& open_file = InputFile::open);
  /// The same for one file that is in memory already; `bytes` must outlive the GgufFile. `name`
  /// stands for the path in errors. A part of several has its own tensors only.
  static Result<GgufFile> from_memory(std::span<const std::byte> bytes, std::string_view name);

  uint32_t version() const { return version_; }
  uint64_t alignment() const { return alignment_; }
  /// Files that it is read from.
  size_t n_parts() const { return 1 + others_.size(); }
  /// Of all parts.
  uint64_t size_bytes() const;
  /// Where the tensor data begin in the first part; the size of a file that has no tensors.
  uint64_t header_bytes() const { return header_bytes_; }
  /// False only if there are tensors but a file ends before their data.
  bool has_tensor_data() const;
  /// Bytes of one of tensors() from `first_byte` on; any number of threads at once. Errors
  /// (kBadFile): the file has been cut since it was opened, or cannot be read.
  Status read(const GgufTensor& tensor, uint64_t first_byte, std::span<std::byte> out) const;

  /// In file order, part after part.
  std::span<const GgufValue> metadata() const { return metadata_; }
  std::span<const GgufTensor> tensors() const { return tensors_; }
  /// Null if there is none.
  const GgufValue* find(std::string_view key) const;
  const GgufTensor* find_tensor(std::string_view name) const;

  /// The value of a key, which must exist. T as in GgufValue::as.
  template <typename T>
  Result<T> get(std::string_view key) const {
    const GgufValue* value = find(key);
    if (value == nullptr) return missing(key);
    return value->as<T>();
  }
  /// `fallback` if the key is absent; an error if it has the wrong type.
  template <typename T>
  Result<T> get_or(std::string_view key, T fallback) const {
    const GgufValue* value = find(key);
    if (value == nullptr) return fallback;
    return value->as<T>();
  }
  template <typename T>
  Result<std::vector<T>> get_vector(std::string_view key, uint64_t max_count) const {
    const GgufValue* value = find(key);
    if (value == nullptr) return missing(key);
    return value->as_vector<T>(max_count);
  }
  Result<GgufStrings> get_strings(std::string_view key) const {
    const GgufValue* value = find(key);
    if (value == nullptr) return missing(key);
    return value->as_strings();
  }

 private:
  class Parser;
  GgufFile() = default;
  static Result<GgufFile> open_one(const std::filesystem::path& path, const OpenFile& open_file);
  Status open_others(const std::filesystem::path& path, const OpenFile& open_file);
  Status add_part(const std::filesystem::path& path, const GgufPart& expected,
                  const OpenFile& open_file);
  Status check_parts(std::span<const std::filesystem::path> paths);
  Status read_own(const GgufTensor& tensor, uint64_t first_byte, std::span<std::byte> out) const;
  static Error missing(std::string_view key);

  std::vector<GgufFile> others_;       // parts behind the first
  std::optional<InputFile> input_;     // empty for a file in memory
  std::span<const std::byte> memory_;  // of a file in memory
  std::vector<std::byte> header_;      // of one that is not; keys and strings lie in it
  uint64_t size_bytes_ = 0;
  uint64_t header_bytes_ = 0;
  uint32_t version_ = 0;
  uint64_t alignment_ = 32;
  bool has_data_ = true;
  std::vector<GgufValue> metadata_;
  std::vector<GgufTensor> tensors_;
  std::vector<uint32_t> metadata_by_key_;  // indices, sorted by key
  std::vector<uint32_t> tensors_by_name_;
};

}  // namespace pumice
