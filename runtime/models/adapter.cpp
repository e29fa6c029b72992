#include "models/adapter.hpp"

#include <fmt/core.h>
#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "base/check.hpp"
#include "base/printable.hpp"
#include "models/fingerprint.hpp"
#include "models/model_source.hpp"
#include "shaders/lora/lora.hpp"

namespace pumice {
namespace {

constexpr std::string_view kSuffixA = ".lora_a";
constexpr std::string_view kSuffixB = ".lora_b";

/// What an adapter has for one matrix.
struct Pair {
  const GgufTensor* a = nullptr;
  const GgufTensor* b = nullptr;
};

Error refused(const AdapterSource& adapter, std::string_view tensor, const std::string& reason) {
  return make_error(ErrorCode::kBadFile, "adapter {}: {}: {}", printable(adapter.name),
                    printable(tensor), reason);
}

Result<std::string> kind_of_file(const GgufFile& file, std::string_view key) {
  PUMICE_TRY(const std::string_view value, file.get_or<std::string_view>(key, ""));
  return std::string(value);
}

/// By the name of the base's matrix.
Result<std::map<std::string_view, Pair>> pairs_of(const AdapterSource& adapter) {
  std::map<std::string_view, Pair> pairs;
  for (const GgufTensor& tensor : adapter.file->tensors()) {
    const bool is_a = tensor.name.ends_with(kSuffixA);
    if (!is_a && !tensor.name.ends_with(kSuffixB)) {
      return refused(adapter, tensor.name,
                     "neither .lora_a nor .lora_b; what replaces tensors of the base is not "
                     "supported, merge it into the model");
    }
    if (!tensor.type->has_codec()) {
      return refused(adapter, tensor.name,
                     fmt::format("weight type {} is not supported yet", tensor.type->name));
    }
    Pair& pair = pairs[tensor.name.substr(0, tensor.name.size() - kSuffixA.size())];
    (is_a ? pair.a : pair.b) = &tensor;
  }
  if (pairs.empty()) {
    return make_error(ErrorCode::kBadFile, "adapter {}: it adds to no matrix",
                      printable(adapter.name));
  }
  return pairs;
}

Status check_shape(const AdapterSource& adapter, const TensorSpec& base, const Pair& pair) {
  const auto dims = [](const GgufTensor& tensor) {
    return fmt::format("{} x {} x {}", tensor.dims[0], tensor.dims[1], tensor.dims[2]);
  };
  const uint64_t rank = pair.a->dims[1];
  const std::array<uint64_t, 4> a = {base.dims[0], rank, 1, 1};
  const std::array<uint64_t, 4> b = {rank, base.dims[1], 1, 1};
  if (pair.a->dims != a || pair.b->dims != b) {
    return refused(adapter, base.name,
                   fmt::format("its lora_a and lora_b are {} and {}; the matrix of the base has {} "
                               "columns and {} rows",
                               dims(*pair.a), dims(*pair.b), base.dims[0], base.dims[1]));
  }
  if (rank > AdapterSource::kMostRank) {
    return refused(
        adapter, base.name,
        fmt::format("rank {} is above the {} that are supported", rank, AdapterSource::kMostRank));
  }
  return {};
}

uint32_t padded(uint64_t rank) {
  constexpr uint32_t kGroup = ops::Lora::kRankGroup;
  return static_cast<uint32_t>((rank + kGroup - 1) / kGroup * kGroup);
}

/// Ranks of what one adapter adds, by tensor.
Result<std::map<TensorId, uint32_t>> ranks_of(const Program& program,
                                              const std::set<TensorId>& factors,
                                              const AdapterSource& adapter) {
  PUMICE_TRY(const std::string architecture, kind_of_file(*adapter.file, "general.architecture"));
  if (architecture != program.architecture) {
    return make_error(ErrorCode::kBadFile,
                      "adapter {}: it is for architecture {}, and the model is {}",
                      printable(adapter.name), printable(architecture), program.architecture);
  }
  using Pairs = std::map<std::string_view, Pair>;
  PUMICE_TRY(const Pairs pairs, pairs_of(adapter));
  std::map<TensorId, uint32_t> ranks;
  for (const auto& [name, pair] : pairs) {
    if (pair.a == nullptr || pair.b == nullptr) {
      return refused(adapter, name,
                     fmt::format("{} is missing", pair.a == nullptr ? "lora_a" : "lora_b"));
    }
    const auto found = std::ranges::find(program.tensors, name, &TensorSpec::name);
    if (found == program.tensors.end()) {
      return refused(adapter, name,
                     "the model does not have this tensor: is it the adapter's base?");
    }
    const auto id = static_cast<TensorId>(found - program.tensors.begin());
    if (!factors.contains(id)) {
      return refused(adapter, name,
                     "adapters of embeddings, experts and matrices of single heads are not "
                     "supported; merge it into the model");
    }
    PUMICE_TRY_STATUS(check_shape(adapter, *found, pair));
    ranks[id] = static_cast<uint32_t>(pair.a->dims[1]);
  }
  return ranks;
}

}  // namespace

Result<AdapterSource> AdapterSource::open(std::string name, const std::filesystem::path& path,
                                          float scale) {
  PUMICE_TRY(GgufFile file, GgufFile::open(path));
  return of_file(std::move(name), std::make_shared<const GgufFile>(std::move(file)), scale);
}

Result<AdapterSource> AdapterSource::of_file(std::string name, std::shared_ptr<const GgufFile> file,
                                             float scale) {
  if (name.empty()) return make_error(ErrorCode::kInvalidArgument, "an adapter needs a name");
  const auto bad = [&](const std::string& reason) {
    return make_error(ErrorCode::kBadFile, "adapter {}: {}", printable(name), reason);
  };
  if (!std::isfinite(scale)) {
    return make_error(ErrorCode::kInvalidArgument, "adapter {}: its scale must be finite",
                      printable(name));
  }
  PUMICE_TRY(const std::string type, kind_of_file(*file, "general.type"));
  PUMICE_TRY(const std::string kind, kind_of_file(*file, "adapter.type"));
  if (type != "adapter" || kind != "lora") {
    return bad(
        fmt::format("not a LoRA file: general.type is '{}' and adapter.type '{}' where "
                    "'adapter' and 'lora' are wanted",
                    printable(type), printable(kind)));
  }
  if (file->find("adapter.alora.invocation_tokens") != nullptr) {
    return bad("activated LoRA (adapter.alora.invocation_tokens) is not supported");
  }
  if (!file->has_tensor_data()) return bad("the file holds no tensor data");
  PUMICE_TRY(const float alpha, file->get_or<float>("adapter.lora.alpha", 0));
  if (!std::isfinite(alpha)) return bad("adapter.lora.alpha must be finite");
  PUMICE_TRY(auto fingerprint, fingerprint_of(*file));
  fingerprint[0] ^= XXH3_64bits(&scale, sizeof scale);
  return AdapterSource{.name = std::move(name),
                       .file = std::move(file),
                       .alpha = alpha,
                       .scale = scale,
                       .fingerprint = fingerprint};
}

float AdapterSource::factor(uint32_t rank) const {
  return alpha == 0 ? scale : scale * alpha / static_cast<float>(rank);
}

std::set<TensorId> adaptable_matrices(const Program& program) {
  std::set<TensorId> factors;
  std::set<TensorId> others;
  for (const Op& op : program.ops) {
    const auto* const linear = std::get_if<op::Linear>(&op.what);
    for (const TensorId id : op_tensors(op.what)) {
      (linear != nullptr && linear->weight.tensor == id ? factors : others).insert(id);
    }
  }
  for (const TensorId id : others) factors.erase(id);
  return factors;
}

Result<Program> with_adapters(Program program, std::span<const AdapterSource> adapters) {
  if (adapters.empty()) return program;
  if (program.pooling) {
    return make_error(ErrorCode::kInvalidArgument,
                      "adapters are for models that write text; {} is an embedding model",
                      program.architecture);
  }
  if (adapters.size() > AdapterSource::kMost) {
    return make_error(ErrorCode::kInvalidArgument, "{} adapters are more than the {} of a model",
                      adapters.size(), AdapterSource::kMost);
  }
  const std::set<TensorId> factors = adaptable_matrices(program);
  std::map<TensorId, uint32_t> all;
  for (const AdapterSource& adapter : adapters) {
    if (std::ranges::find(program.adapters, adapter.name, &ProgramAdapter::name) !=
        program.adapters.end()) {
      return make_error(ErrorCode::kInvalidArgument, "two adapters have the name {}",
                        printable(adapter.name));
    }
    using Ranks = std::map<TensorId, uint32_t>;
    PUMICE_TRY(const Ranks ranks, ranks_of(program, factors, adapter));
    for (const auto& [id, rank] : ranks) all[id] = std::max(all[id], padded(rank));
    program.adapters.push_back({adapter.name, adapter.fingerprint});
  }
  for (const auto& [id, rank] : all) {
    const TensorSpec& base = program.tensors[id];
    // Kernels count in 32 bits.
    if (adapters.size() * rank * std::max(base.dims[0], base.dims[1]) > UINT32_MAX) {
      return make_error(ErrorCode::kInvalidArgument,
                        "{}: {} adapters of rank {} are too many for so large a matrix", base.name,
                        adapters.size(), rank);
    }
    program.adapted.push_back({id, rank});
  }
  return program;
}

Result<AdapterMatrices> adapter_matrices(const Program& program, const AdaptedMatrix& matrix,
                                         std::span<const AdapterSource> adapters) {
  const TensorSpec& base = program.tensors[matrix.tensor];
  const auto n_in = static_cast<uint32_t>(base.dims[0]);
  const auto n_out = static_cast<uint32_t>(base.dims[1]);
  const size_t a_size = size_t{matrix.rank} * n_in;
  const size_t b_size = size_t{matrix.rank} * n_out;
  AdapterMatrices all{.a = std::vector<float>(adapters.size() * a_size),
                      .b = std::vector<float>(adapters.size() * b_size)};
  for (size_t i = 0; i < adapters.size(); ++i) {
    const ModelSource source(*adapters[i].file);
    const GgufTensor* const a = source.file().find_tensor(base.name + std::string(kSuffixA));
    const GgufTensor* const b = source.file().find_tensor(base.name + std::string(kSuffixB));
    if (a == nullptr || b == nullptr) continue;
    const auto rank = static_cast<uint32_t>(a->dims[1]);
    PUMICE_CHECK(rank <= matrix.rank, "an adapter that was not checked");
    PUMICE_TRY(const std::vector<float> a_values, source.values(*a));
    PUMICE_TRY(std::vector<float> b_values, source.values(*b));
    for (float& value : b_values) value *= adapters[i].factor(rank);
    ops::Lora::pack(a_values, rank, n_in, n_in, 1, std::span(all.a).subspan(i * a_size, a_size));
    ops::Lora::pack(b_values, rank, n_out, 1, rank, std::span(all.b).subspan(i * b_size, b_size));
  }
  return all;
}

}  // namespace pumice
