// A model ready to run: its program and its weights on one device. Shared by engines.
#pragma once

#include <array>
#include <memory>

#include "base/result.hpp"
#include "models/program.hpp"
#include "models/weight_placement.hpp"
#include "models/weights.hpp"

namespace pumice {

struct Model {
  Program program;
  std::shared_ptr<WeightPlacement> weights;
  /// Tells models apart: a hash of metadata, tensor shapes and a sample of each tensor's bytes. A
  /// synthetic model's is that of its file.
  std::array<uint64_t, 2> fingerprint = {};

  /// Build the program, check it and upload the weights, the first `n_on_device` pieces to the
  /// device's memory and others beside it (MemoryPlan::weight_pieces). Errors: kBadFile,
  /// kDoesNotFit (saying by how much), kDeviceLost.
  static Result<std::shared_ptr<const Model>> load(const std::shared_ptr<vk::Device>& device,
                                                   const ModelSource& source,
                                                   const ModelWeights::Progress& progress = {},
                                                   uint32_t n_on_device = UINT32_MAX);
  /// The same of a program that was built and checked: one that embeds, which the other refuses
  /// (kInvalidArgument). Weights that it does not read stay in the file.
  static Result<std::shared_ptr<const Model>> load(const std::shared_ptr<vk::Device>& device,
                                                   const ModelSource& source, Program program,
                                                   const ModelWeights::Progress& progress = {},
                                                   uint32_t n_on_device = UINT32_MAX);

  uint32_t n_layers() const { return static_cast<uint32_t>(program.layers.size()); }

  /// The model of the first `n_layers` layers and what follows this one's last, for checks that
  /// would take too long with all. Shares the device memory; has another fingerprint if layers are
  /// missing.
  std::shared_ptr<const Model> first_layers(uint32_t n_layers) const;
};

}  // namespace pumice
