#include "models/synthetic_adapter.hpp"

#include <cmath>
#include <string>
#include <vector>

#include "format/gguf_writer.hpp"
#include "format/random_weights.hpp"
#include "models/adapter.hpp"
#include "models/families.hpp"

namespace pumice {
namespace {

constexpr float kShare = 0.5f;  // of a product, that is added

struct AdapterTensor {
  std::string name;
  std::vector<uint64_t> dims;
  float deviation = 0;
};

}  // namespace

Status write_synthetic_adapter(const ModelSource& base, const SyntheticAdapter& adapter,
                               const std::filesystem::path& path, OutputFile::Existing existing) {
  if (adapter.rank == 0 || adapter.rank > AdapterSource::kMostRank) {
    return make_error(ErrorCode::kInvalidArgument, "rank {}: must be from 1 to {}", adapter.rank,
                      AdapterSource::kMostRank);
  }
  PUMICE_TRY(const Program program, build_program(base));
  const auto rank = static_cast<float>(adapter.rank);
  std::vector<AdapterTensor> tensors;
  for (const TensorId id : adaptable_matrices(program)) {
    const TensorSpec& matrix = program.tensors[id];
    const auto n_in = static_cast<float>(matrix.dims[0]);
    tensors.push_back(
        {matrix.name + ".lora_a", {matrix.dims[0], adapter.rank}, 1 / std::sqrt(n_in)});
    tensors.push_back(
        {matrix.name + ".lora_b", {adapter.rank, matrix.dims[1]}, kShare / std::sqrt(rank)});
  }
  const WeightType& type = weight_type("F16");
  GgufHeader header;
  header.set("general.architecture", program.architecture);
  header.set("general.type", "adapter");
  header.set("general.name", "random adapter");
  header.set("adapter.type", "lora");
  header.set("adapter.lora.alpha", rank);  // as it is
  for (const AdapterTensor& tensor : tensors) header.add_tensor(tensor.name, type, tensor.dims);
  PUMICE_TRY(GgufWriter writer, GgufWriter::create(path, std::move(header), existing));
  for (const AdapterTensor& tensor : tensors) {
    std::vector<std::byte> bytes(type.file_bytes(tensor.dims[0] * tensor.dims[1]));
    RandomWeights(type, random_key(adapter.seed, tensor.name), tensor.deviation).fill(0, bytes);
    PUMICE_TRY_STATUS(writer.write(bytes));
  }
  return writer.finish();
}

}  // namespace pumice
