#include "models/model.hpp"

#include <xxhash.h>

#include <algorithm>

#include "vk/device.hpp"

namespace pumice {
namespace {

std::array<uint64_t, 2> fingerprint_of(const GgufFile& file) {
  constexpr size_t kSampleBytes = 4096;  // of each end of a tensor: whole files take long to read
  XXH3_state_t* const state = XXH3_createState();
  XXH3_128bits_reset(state);
  const auto add = [&](std::string_view bytes) {
    const uint64_t length = bytes.size();
    XXH3_128bits_update(state, &length, sizeof length);
    XXH3_128bits_update(state, bytes.data(), bytes.size());
  };
  for (const GgufValue& value : file.metadata()) {
    add(value.key);
    add(value.describe());
  }
  for (const GgufTensor& tensor : file.tensors()) {
    add(tensor.name);
    add(tensor.type->name);
    XXH3_128bits_update(state, tensor.dims.data(), sizeof tensor.dims);
    const auto bytes = tensor.bytes();
    const size_t n = std::min(bytes.size(), kSampleBytes);
    XXH3_128bits_update(state, bytes.data(), n);
    XXH3_128bits_update(state, bytes.data() + bytes.size() - n, n);
  }
  const XXH128_hash_t hash = XXH3_128bits_digest(state);
  XXH3_freeState(state);
  return {hash.low64, hash.high64};
}

}  // namespace

Result<std::shared_ptr<const Model>> Model::load(const std::shared_ptr<vk::Device>& device,
                                                 const GgufFile& file,
                                                 const ModelWeights::Progress& progress) {
  PUMICE_TRY(ModelDescription description, describe_model(file));
  const uint64_t needed = resident_weight_bytes(file, description);
  PUMICE_TRY_STATUS(device->check_fits(needed, "the weights"));
  PUMICE_TRY(ModelWeights weights, ModelWeights::load(device, file, description, progress));
  return std::make_shared<const Model>(
      Model{std::move(description), std::move(weights), fingerprint_of(file)});
}

}  // namespace pumice
