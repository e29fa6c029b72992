// A model ready to run: its description and its weights on one device. Shared by engines.
#pragma once

#include <array>
#include <memory>

#include "base/result.hpp"
#include "models/families.hpp"
#include "models/weights.hpp"

namespace pumice {

struct Model {
  ModelDescription description;
  ModelWeights weights;
  /// Tells models apart: a hash of metadata, tensor shapes and a sample of each tensor's bytes. A
  /// synthetic model's is that of its file.
  std::array<uint64_t, 2> fingerprint = {};

  const ModelConfig& config() const { return description.config; }

  /// Describe, check and upload. Errors: kBadFile, kDoesNotFit (saying by how much), kDeviceLost.
  static Result<std::shared_ptr<const Model>> load(const std::shared_ptr<vk::Device>& device,
                                                   const ModelSource& source,
                                                   const ModelWeights::Progress& progress = {});

  /// The model of the first `n_layers` layers and this one's output, for checks that would take too
  /// long with all. Shares the device memory; has another fingerprint if layers are missing.
  std::shared_ptr<const Model> first_layers(uint32_t n_layers) const;
};

}  // namespace pumice
