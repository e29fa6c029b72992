#include "models/fingerprint.hpp"

#include <xxhash.h>

#include <algorithm>
#include <memory>
#include <string_view>
#include <vector>

namespace pumice {

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

}  // namespace pumice
