#include "models/model.hpp"

#include "vk/device.hpp"

namespace pumice {

Result<std::shared_ptr<const Model>> Model::load(const std::shared_ptr<vk::Device>& device,
                                                 const GgufFile& file,
                                                 const ModelWeights::Progress& progress) {
  PUMICE_TRY(ModelDescription description, describe_model(file));
  const uint64_t needed = resident_weight_bytes(file, description);
  PUMICE_TRY_STATUS(device->check_fits(needed, "the weights"));
  PUMICE_TRY(ModelWeights weights, ModelWeights::load(device, file, description, progress));
  return std::make_shared<const Model>(Model{std::move(description), std::move(weights)});
}

}  // namespace pumice
