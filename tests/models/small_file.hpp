// A GGUF file of a few F32 tensors, in memory.
#pragma once

#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "format/gguf.hpp"
#include "format/gguf_writer.hpp"

namespace pumice::test {

struct SmallTensor {
  std::string name;
  std::vector<uint64_t> dims;
  std::vector<float> values = {};  ///< empty: zeros
};

class SmallFile {
 public:
  explicit SmallFile(const std::vector<SmallTensor>& tensors, GgufHeader header = GgufHeader()) {
    for (const SmallTensor& tensor : tensors) {
      header.add_tensor(tensor.name, weight_type("F32"), tensor.dims);
    }
    bytes_ = header.to_bytes().value();
    for (const SmallTensor& tensor : tensors) {
      uint64_t n = 1;
      for (const uint64_t dim : tensor.dims) n *= dim;
      std::vector<float> values = tensor.values;
      values.resize(n);
      bytes_.append(reinterpret_cast<const char*>(values.data()), n * sizeof(float));
      bytes_.resize((bytes_.size() + 31) / 32 * 32);
    }
    file_ = GgufFile::from_memory(std::as_bytes(std::span(bytes_)), "small").value();
  }
  SmallFile(const SmallFile&) = delete;
  SmallFile& operator=(const SmallFile&) = delete;

  const GgufFile& file() const { return *file_; }

 private:
  std::string bytes_;
  std::optional<GgufFile> file_;
};

}  // namespace pumice::test
