#include "models/model.hpp"

#include <xxhash.h>

#include <algorithm>
#include <utility>

#include "vk/device.hpp"

namespace pumice {
namespace {

Result<std::array<uint64_t, 2>> fingerprint_of(const ModelSource& source) {
  constexpr size_t kSampleBytes = 4096;  // of each end of a tensor: whole files take long to read
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> owned(XXH3_createState(),
                                                                       &XXH3_freeState);
  XXH3_state_t* const state = owned.get();
  XXH3_128bits_reset(state);
  const auto add = [&](std::string_view bytes) {
    const uint64_t length = bytes.size();
    XXH3_128bits_update(state, &length, sizeof length);
    XXH3_128bits_update(state, bytes.data(), bytes.size());
  };
  for (const GgufValue& value : source.file().metadata()) {
    add(value.key);
    add(value.describe());
  }
  std::vector<std::byte> blocks;
  const auto add_sample = [&](const GgufTensor& tensor, bool from_end) -> Status {
    const WeightType& type = *tensor.type;
    const uint64_t n_blocks = tensor.n_bytes / type.block_bytes;
    const uint64_t n =
        std::min<uint64_t>((kSampleBytes + type.block_bytes - 1) / type.block_bytes, n_blocks);
    blocks.resize(n * type.block_bytes);
    PUMICE_TRY_STATUS(source.read(tensor, from_end ? n_blocks - n : 0, blocks));
    const size_t n_bytes = std::min(blocks.size(), kSampleBytes);
    XXH3_128bits_update(state, blocks.data() + (from_end ? blocks.size() - n_bytes : 0), n_bytes);
    return {};
  };
  for (const GgufTensor& tensor : source.file().tensors()) {
    add(tensor.name);
    add(tensor.type->name);
    XXH3_128bits_update(state, tensor.dims.data(), sizeof tensor.dims);
    PUMICE_TRY_STATUS(add_sample(tensor, false));
    PUMICE_TRY_STATUS(add_sample(tensor, true));
  }
  const XXH128_hash_t hash = XXH3_128bits_digest(state);
  return std::array<uint64_t, 2>{hash.low64, hash.high64};
}

}  // namespace

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
