#include "models/synthetic.hpp"

#include <algorithm>

#include "base/ascii.hpp"
#include "base/printable.hpp"
#include "models/synthetic_metadata.hpp"
#include "models/synthetic_vocabulary.hpp"

namespace pumice {
Result<const WeightType*> parse_weight_type(std::string_view name) {
  const std::string upper = upper_case(name);
  std::string known;
  for (const WeightType& type : weight_types()) {
    if (!type.has_codec()) continue;
    if (type.name == upper) return &type;
    known += (known.empty() ? "" : ", ") + std::string(type.name);
  }
  return make_error(ErrorCode::kInvalidArgument, "there is no weight type '{}' (known: {})",
                    printable(upper), known);
}

uint64_t SyntheticTensor::n_elements() const {
  uint64_t n = 1;
  for (const uint64_t dim : dims) n *= dim;
  return n;
}

uint64_t SyntheticModel::n_parameters() const {
  uint64_t n = 0;
  for (const SyntheticTensor& tensor : tensors_) n += tensor.n_elements();
  return n;
}

uint64_t SyntheticModel::data_bytes() const {
  uint64_t n = 0;
  for (const SyntheticTensor& tensor : tensors_) n += tensor.n_bytes();
  return n;
}

GgufHeader SyntheticModel::header() const {
  const SyntheticShape& s = shape_;
  GgufHeader header;
  header.set("general.architecture", s.architecture);
  header.set("general.type", "model");
  header.set("general.name",
             fmt::format("synthetic {} {} seed {}", s.name, options_.type->name, options_.seed));
  header.set("general.description", "random weights written by pumice synth");
  header.set("general.file_type", options_.type->file_type);
  header.set("general.quantization_version", uint32_t{2});
  SyntheticMetadata(s).add_to(header);
  if (has_vocabulary_) add_synthetic_vocabulary(header, s.n_vocab);
  for (const SyntheticTensor& tensor : tensors_) {
    header.add_tensor(tensor.name, *tensor.type, tensor.dims);
  }
  return header;
}

std::function<void(uint64_t, std::span<std::byte>)> SyntheticModel::filler(
    const SyntheticTensor& tensor) const {
  if (!tensor.values.empty()) {
    return [values = std::as_bytes(std::span(tensor.values))](uint64_t first_block,
                                                              std::span<std::byte> out) {
      std::ranges::copy(values.subspan(first_block * sizeof(float), out.size()), out.begin());
    };
  }
  const uint64_t key = random_key(options_.seed, tensor.name);
  return [weights = RandomWeights(*tensor.type, key, tensor.deviation, tensor.mean)](
             uint64_t first_block, std::span<std::byte> out) { weights.fill(first_block, out); };
}

void SyntheticModel::fill(const SyntheticTensor& tensor, uint64_t first_block,
                          std::span<std::byte> out) const {
  filler(tensor)(first_block, out);
}

}  // namespace pumice
