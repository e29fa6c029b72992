#include "models/model.hpp"

#include <utility>

#include "models/fingerprint.hpp"
#include "vk/device.hpp"

namespace pumice {
Result<std::shared_ptr<const Model>> Model::load(const std::shared_ptr<vk::Device>& device,
                                                 const ModelSource& source,
                                                 std::shared_ptr<const ModelPlan> plan,
                                                 const ModelWeights::Progress& progress,
                                                 uint32_t n_on_device) {
  if (n_on_device == UINT32_MAX) {
    PUMICE_TRY_STATUS(device->check_fits(plan->weights().resident_bytes(), "the weights"));
  }
  PUMICE_TRY(ModelWeights weights,
             ModelWeights::load(device, source, *plan, progress, n_on_device));
  PUMICE_TRY(const auto fingerprint, fingerprint_of(source));
  auto placement = std::make_shared<WeightPlacement>(device, std::move(weights), n_on_device);
  return std::make_shared<const Model>(
      Model{plan, plan->program(), std::move(placement), fingerprint});
}

Result<std::shared_ptr<const Model>> Model::load(const std::shared_ptr<vk::Device>& device,
                                                 const ModelSource& source,
                                                 const ModelWeights::Progress& progress,
                                                 uint32_t n_on_device) {
  PUMICE_TRY(std::shared_ptr<const ModelPlan> plan, ModelPlan::of_source(source));
  return load(device, source, std::move(plan), progress, n_on_device);
}

std::shared_ptr<const Model> Model::first_layers(uint32_t n) const {
  const std::shared_ptr<const ModelPlan> shorter = plan->first_layers(n);
  std::array<uint64_t, 2> its_fingerprint = fingerprint;
  its_fingerprint[1] += program.layers.size() - shorter->program().layers.size();
  return std::make_shared<const Model>(
      Model{shorter, shorter->program(), weights, its_fingerprint});
}

}  // namespace pumice
