// The metadata of a synthetic model: what its shape says, and what its extras add.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "format/gguf_writer.hpp"
#include "models/synthetic.hpp"

namespace pumice {

class SyntheticMetadata {
 public:
  /// A tensor that the extras name; without dimensions, one number.
  struct Tensor {
    std::string name;
    std::vector<uint64_t> dims;
  };

  explicit SyntheticMetadata(const SyntheticShape& shape);

  void add_to(GgufHeader& header) const;
  std::span<const Tensor> tensors() const { return tensors_; }

 private:
  using Value = std::variant<bool, uint32_t, float, std::string, std::vector<uint32_t>,
                             std::vector<float>, std::vector<std::string>>;

  void add_usual(const SyntheticShape& shape);
  void add_extras(std::string_view words);
  void add_extra(std::string_view word);
  void add_tensor(std::string_view name);
  void set(std::string key, Value value);
  uint32_t n_layers() const;

  std::string prefix_;
  std::vector<std::pair<std::string, Value>> keys_;  // in the order of the file
  std::vector<Tensor> tensors_;
};

}  // namespace pumice
