#include "models/weights.hpp"

#include <algorithm>

namespace pumice {
namespace {

/// A matrix of the model; describe_model has checked that it exists and fits the config.
WeightSource source_of(const ModelSource& model, const std::string& name) {
  const GgufTensor* tensor = model.file().find_tensor(name);
  PUMICE_CHECK(tensor != nullptr, "unchecked tensor " + name);
  return model.matrix(*tensor);
}

/// Consecutive sources that share a dispatch.
std::vector<std::vector<WeightSource>> stacks_of(const std::vector<WeightSource>& sources) {
  std::vector<std::vector<WeightSource>> stacks;
  for (const WeightSource& source : sources) {
    if (!stacks.empty()) {
      std::vector<WeightSource> together = stacks.back();
      together.push_back(source);
      if (can_stack(together)) {
        stacks.back() = std::move(together);
        continue;
      }
    }
    stacks.push_back({source});
  }
  return stacks;
}

/// Every group of matrices that is uploaded as one, in the order the decoder uses them.
std::vector<std::vector<WeightSource>> layer_groups(const ModelSource& model,
                                                    const TensorNames& names, uint32_t layer) {
  const auto source = [&](const std::string& tensor) {
    return source_of(model, names.layer(layer, tensor));
  };
  return {{source(names.attn_q), source(names.attn_k), source(names.attn_v)},
          {source(names.attn_output)},
          {source(names.ffn_gate), source(names.ffn_up)},
          {source(names.ffn_down)}};
}

constexpr uint64_t kAlignment = 256;

uint64_t aligned(uint64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

class ModelWeights::Loader {
 public:
  Loader(const std::shared_ptr<vk::Device>& device, const ModelSource& source,
         const ModelDescription& model, vk::Arena& arena, const Progress& progress)
      : source_(source),
        names_(model.names),
        arena_(arena),
        uploader_(device),
        part_bytes_(device->plan().slab_bytes),
        progress_(progress) {
    for (const GgufTensor& tensor : source.file().tensors()) total_bytes_ += tensor.n_bytes;
  }

  Result<WeightMatrix> matrix(const std::vector<WeightSource>& sources) {
    PUMICE_TRY(WeightMatrix matrix, WeightMatrix::upload(uploader_, arena_, sources, part_bytes_));
    for (const WeightSource& source : sources) advance(source.file_bytes());
    return matrix;
  }
  Result<WeightMatrix> matrix(const std::string& name) {
    return matrix(std::vector<WeightSource>{source_of(source_, name)});
  }

  /// A vector, as floats.
  Result<vk::BufferRange> vector(const std::string& name) {
    const GgufTensor& tensor = *source_.file().find_tensor(name);
    PUMICE_TRY(const std::vector<float> values, source_.values(tensor));
    PUMICE_TRY(const vk::BufferRange range, arena_.allocate(values.size() * sizeof(float)));
    PUMICE_TRY_STATUS(uploader_.write(range, std::span<const float>(values)));
    advance(tensor.n_bytes);
    return range;
  }

  Result<StackedMatrices> stack(const std::vector<WeightSource>& sources) {
    StackedMatrices result;
    for (const std::vector<WeightSource>& together : stacks_of(sources)) {
      PUMICE_TRY(WeightMatrix member, matrix(together));
      const uint32_t n_rows = member.n_rows;
      result.members.push_back({std::move(member), result.n_outputs});
      result.n_outputs += n_rows;
    }
    return result;
  }

  Result<LayerWeights> layer(uint32_t index) {
    const auto groups = layer_groups(source_, names_, index);
    LayerWeights weights;
    PUMICE_TRY(weights.attn_norm, vector(names_.layer(index, names_.attn_norm)));
    PUMICE_TRY(weights.qkv, stack(groups[0]));
    PUMICE_TRY(weights.attn_output, matrix(groups[1]));
    PUMICE_TRY(weights.ffn_norm, vector(names_.layer(index, names_.ffn_norm)));
    PUMICE_TRY(weights.gate_up, stack(groups[2]));
    PUMICE_TRY(weights.ffn_down, matrix(groups[3]));
    return weights;
  }

 private:
  void advance(uint64_t bytes) {
    done_bytes_ += bytes;
    if (progress_) progress_(done_bytes_, total_bytes_);
  }

  const ModelSource& source_;
  const TensorNames& names_;
  vk::Arena& arena_;
  vk::Uploader uploader_;
  uint64_t part_bytes_;
  const Progress& progress_;
  uint64_t done_bytes_ = 0;
  uint64_t total_bytes_ = 0;
};

Result<ModelWeights> ModelWeights::load(const std::shared_ptr<vk::Device>& device,
                                        const ModelSource& source, const ModelDescription& model,
                                        const Progress& progress) {
  ModelWeights weights(std::make_shared<vk::Arena>(device, vk::MemoryDomain::kDevice, "weights",
                                                   resident_weight_bytes(source, model)));
  Loader loader(device, source, model, *weights.arena_, progress);
  PUMICE_TRY(weights.token_embd_, loader.matrix(model.names.token_embd));
  for (uint32_t layer = 0; layer < model.config.n_layers; ++layer) {
    PUMICE_TRY(weights.layers_.emplace_back(), loader.layer(layer));
  }
  PUMICE_TRY(weights.output_norm_, loader.vector(model.names.output_norm));
  weights.tied_ = source.file().find_tensor(model.names.output) == nullptr;
  if (!weights.tied_) {
    PUMICE_TRY(weights.output_, loader.matrix(model.names.output));
  }
  return weights;
}

ModelWeights ModelWeights::first_layers(uint32_t n_layers) const {
  ModelWeights shorter = *this;
  shorter.layers_.resize(std::min<size_t>(n_layers, layers_.size()));
  return shorter;
}

std::vector<const WeightType*> ModelWeights::matrix_types() const {
  std::set<const WeightType*> types{output().type};
  for (const LayerWeights& layer : layers_) {
    types.insert({layer.attn_output.type, layer.ffn_down.type});
    for (const StackedMatrices* stack : {&layer.qkv, &layer.gate_up}) {
      for (const StackedMatrices::Member& member : stack->members) types.insert(member.matrix.type);
    }
  }
  return {types.begin(), types.end()};
}

uint64_t resident_weight_bytes(const ModelSource& source, const ModelDescription& model) {
  const TensorNames& names = model.names;
  const auto matrix_bytes = [](const std::vector<WeightSource>& sources) {
    return aligned(WeightMatrix::resident_bytes(sources));
  };
  const uint64_t norm_bytes = aligned(model.config.n_embd * sizeof(float));
  uint64_t bytes = matrix_bytes({source_of(source, names.token_embd)}) + norm_bytes;
  if (source.file().find_tensor(names.output) != nullptr) {
    bytes += matrix_bytes({source_of(source, names.output)});
  }
  for (uint32_t layer = 0; layer < model.config.n_layers; ++layer) {
    bytes += 2 * norm_bytes;
    for (const auto& group : layer_groups(source, names, layer)) {
      for (const auto& stack : stacks_of(group)) bytes += matrix_bytes(stack);
    }
  }
  return bytes;
}

}  // namespace pumice
