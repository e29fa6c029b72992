// Reading the metadata keys that families share ("<architecture>.block_count" and so on).
#pragma once

#include <string>
#include <string_view>

#include "base/result.hpp"
#include "models/model_config.hpp"
#include "models/model_source.hpp"

namespace pumice {

class Metadata {
 public:
  Metadata(const ModelSource& source, std::string_view prefix)
      : source_(source), file_(source.file()), prefix_(prefix) {}

  /// The value of "<prefix>.<key>", which must exist.
  template <typename T>
  Result<T> get(std::string_view key) const {
    return file_.get<T>(full(key));
  }
  template <typename T>
  Result<T> get_or(std::string_view key, T fallback) const {
    return file_.get_or<T>(full(key), fallback);
  }

  /// Layers, widths, heads, vocabulary and context length; checks ranges. The vocabulary size comes
  /// from the embedding tensor, which the file must have.
  Status read_dimensions(ModelConfig& config) const;

  /// Rotary dimensions, base and scaling (none, linear, yarn) and rope_freqs.
  Status read_rope(ModelConfig& config) const;

 private:
  std::string full(std::string_view key) const { return prefix_ + "." + std::string(key); }
  /// A positive count of at most `limit`.
  Result<uint32_t> count(std::string_view key, uint32_t limit) const;

  const ModelSource& source_;
  const GgufFile& file_;
  std::string prefix_;
};

}  // namespace pumice
