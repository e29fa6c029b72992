// Model families: how each architecture's metadata becomes a ModelConfig. Adding one: a file in
// families/, a line in the list in families.cpp, a golden test (docs/ADDING_A_MODEL.md).
#pragma once

#include <span>
#include <string_view>

#include "base/result.hpp"
#include "models/model_config.hpp"
#include "models/model_source.hpp"

namespace pumice {

struct ModelFamily {
  std::string_view architecture;  ///< value of general.architecture
  Result<ModelDescription> (*describe)(const ModelSource& source);
};

std::span<const ModelFamily> model_families();

/// The description of a model, checked: every dimension is in range and consistent with the
/// tensors' shapes. Errors (kBadFile) name the key or tensor; an unknown architecture is named
/// together with the known ones.
Result<ModelDescription> describe_model(const ModelSource& source);

namespace families {
Result<ModelDescription> describe_llama(const ModelSource& source);
}  // namespace families

}  // namespace pumice
