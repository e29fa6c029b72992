// A model ready to run: its plan and its weights on one device. Shared by engines.
#pragma once

#include <array>
#include <memory>

#include "base/result.hpp"
#include "models/model_plan.hpp"
#include "models/program.hpp"
#include "models/weight_placement.hpp"
#include "models/weights.hpp"

namespace pumice {

struct Model {
  std::shared_ptr<const ModelPlan> plan;
  const Program& program;  ///< the plan's
  std::shared_ptr<WeightPlacement> weights;
  /// Tells models apart: a hash of metadata, tensor shapes and a sample of each tensor's bytes. A
  /// synthetic model's is that of its file.
  std::array<uint64_t, 2> fingerprint = {};

  /// Upload the weights of a plan of this source, the first `n_on_device` pieces to the device's
  /// memory and others beside it (MemoryPlan::weight_pieces). Weights that its program does not
  /// read stay in the file. Errors: kBadFile, kDoesNotFit (saying by how much), kDeviceLost.
  static Result<std::shared_ptr<const Model>> load(const std::shared_ptr<vk::Device>& device,
                                                   const ModelSource& source,
                                                   std::shared_ptr<const ModelPlan> plan,
                                                   const ModelWeights::Progress& progress = {},
                                                   uint32_t n_on_device = UINT32_MAX);
  /// The same by ModelPlan::of_source. Errors: also that one's.
  static Result<std::shared_ptr<const Model>> load(const std::shared_ptr<vk::Device>& device,
                                                   const ModelSource& source,
                                                   const ModelWeights::Progress& progress = {},
                                                   uint32_t n_on_device = UINT32_MAX);

  uint32_t n_layers() const { return static_cast<uint32_t>(program.layers.size()); }

  /// The model of the first `n_layers` layers and what follows this one's last, for checks that
  /// would take too long with all. Shares the device memory; has another fingerprint if layers are
  /// missing.
  std::shared_ptr<const Model> first_layers(uint32_t n_layers) const;
};

}  // namespace pumice
