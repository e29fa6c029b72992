// Writing GGUF v3. Metadata and tensor infos are collected in a GgufHeader; tensor data is then
// streamed through a GgufWriter in chunks of any size, so memory does not grow with the model.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/output_file.hpp"
#include "base/result.hpp"
#include "format/gguf_value.hpp"
#include "format/weight_type.hpp"

namespace pumice {

/// Mistakes (duplicate or empty names, dimensions that do not fit the type) are reported by
/// GgufWriter::create.
class GgufHeader {
 public:
  /// Alignment of tensor data: a power of two. Written as general.alignment unless it is 32.
  explicit GgufHeader(uint32_t alignment = 32) : alignment_(alignment) {}

  /// T: bool, an integer, float or double, of exactly that GGUF type.
  template <typename T>
  requires std::integral<T> || std::floating_point<T>
  void set(std::string_view key, T value) {
    begin_value(key, type_of<T>());
    append(value);
  }
  void set(std::string_view key, std::string_view text);
  void set(std::string_view key, const char* text) { set(key, std::string_view(text)); }

  template <typename T>
  requires std::integral<T> || std::floating_point<T>
  void set_array(std::string_view key, std::span<const T> values) {
    begin_array(key, type_of<T>(), values.size());
    for (const T value : values) append(value);
  }
  void set_array(std::string_view key, std::span<const std::string> values);

  /// dims[0] varies fastest; 1 to 4 of them. Data is written in the order of these calls.
  void add_tensor(std::string_view name, const WeightType& type, std::vector<uint64_t> dims);

  /// The file up to its tensor data: what GgufFile::from_memory reads as a header without data.
  /// Errors (kBadFile): the mistakes above.
  Result<std::string> to_bytes() const;

 private:
  friend class GgufWriter;
  struct Tensor {
    std::string name;
    const WeightType* type;
    std::vector<uint64_t> dims;
    uint64_t n_bytes = 0;
    uint64_t offset = 0;
  };

  template <typename T>
  static constexpr GgufValueType type_of() {
    if constexpr (std::same_as<T, bool>) return GgufValueType::kBool;
    if constexpr (std::same_as<T, float>) return GgufValueType::kFloat32;
    if constexpr (std::same_as<T, double>) return GgufValueType::kFloat64;
    constexpr bool kSigned = std::is_signed_v<T>;
    if constexpr (sizeof(T) == 1) return kSigned ? GgufValueType::kInt8 : GgufValueType::kUint8;
    if constexpr (sizeof(T) == 2) return kSigned ? GgufValueType::kInt16 : GgufValueType::kUint16;
    if constexpr (sizeof(T) == 4) return kSigned ? GgufValueType::kInt32 : GgufValueType::kUint32;
    return kSigned ? GgufValueType::kInt64 : GgufValueType::kUint64;
  }
  template <typename T>
  void append(T value) {
    metadata_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void append_string(std::string_view text);
  void begin_value(std::string_view key, GgufValueType type);
  void begin_array(std::string_view key, GgufValueType element_type, uint64_t count);
  Status place_tensors();
  std::string encode() const;

  uint32_t alignment_;
  std::vector<std::string> keys_;
  std::string metadata_;  // encoded
  std::vector<Tensor> tensors_;
};

/// Writes an OutputFile, which takes its place at the path when finished; destroyed before that, it
/// leaves nothing. Move-only, one thread. Errors: OutputFile's, and kBadFile with the path for what
/// no file can hold.
class GgufWriter {
 public:
  /// Writes everything up to the tensor data.
  static Result<GgufWriter> create(const std::filesystem::path& path, GgufHeader header,
                                   OutputFile::Existing existing = OutputFile::Existing::kReplace);

  /// The next bytes of tensor data, all tensors one after the other; padding between them is
  /// written by the writer. More than the tensors hold is an error.
  Status write(std::span<const std::byte> bytes);

  /// Flush to disk and give the file its name. An error if tensor data is missing.
  Status finish();

 private:
  GgufWriter(std::filesystem::path path, GgufHeader header, OutputFile file)
      : path_(std::move(path)), file_(std::move(file)), header_(std::move(header)) {}
  Error failed(std::string_view what) const;
  Status start_next_tensor();

  std::filesystem::path path_;
  OutputFile file_;
  GgufHeader header_;
  size_t tensor_ = 0;            // being written
  uint64_t left_in_tensor_ = 0;  // bytes
};

}  // namespace pumice
