// Model families: how each architecture's metadata becomes a ModelConfig. Adding one: a file in
// families/, a line in the list in families.cpp, a golden test (docs/ADDING_A_MODEL.md).
#pragma once

#include <span>
#include <string_view>

#include "base/result.hpp"
#include "format/gguf.hpp"
#include "models/model_config.hpp"

namespace pumice {

struct ModelFamily {
  std::string_view architecture;  ///< value of general.architecture
  Result<ModelDescription> (*describe)(const GgufFile& file);
};

std::span<const ModelFamily> model_families();

/// The description of a model file, checked: every dimension is in range and consistent with the
/// tensors' shapes. Errors (kBadFile) name the key or tensor; an unknown architecture is named
/// together with the known ones.
Result<ModelDescription> describe_model(const GgufFile& file);

namespace families {
Result<ModelDescription> describe_llama(const GgufFile& file);
}  // namespace families

}  // namespace pumice
