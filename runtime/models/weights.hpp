// A model's weights in device memory, in the resident layout of their types.
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <vector>

#include "base/result.hpp"
#include "models/model_config.hpp"
#include "models/model_source.hpp"
#include "shaders/common/weight_matrix.hpp"
#include "vk/memory.hpp"

namespace pumice {

/// Matrices that read the same input and write side by side: stacked into one where their types
/// agree, so that one dispatch serves them all.
struct StackedMatrices {
  struct Member {
    WeightMatrix matrix;
    uint32_t first_column = 0;  ///< of its outputs in the stack's
  };
  std::vector<Member> members;
  uint32_t n_outputs = 0;
};

struct LayerWeights {
  vk::BufferRange attn_norm;
  StackedMatrices qkv;
  WeightMatrix attn_output;
  vk::BufferRange ffn_norm;
  StackedMatrices gate_up;
  WeightMatrix ffn_down;
};

/// Copies share the device memory.
class ModelWeights {
 public:
  /// Called with bytes of the source done and in all.
  using Progress = std::function<void(uint64_t done, uint64_t total)>;

  /// Repack and upload every tensor the decoder reads. The source may go afterwards.
  /// Host memory is bounded by a few MiB and the largest vector. Errors: kDoesNotFit (memory),
  /// kDeviceLost.
  static Result<ModelWeights> load(const std::shared_ptr<vk::Device>& device,
                                   const ModelSource& source, const ModelDescription& model,
                                   const Progress& progress = {});

  const WeightMatrix& token_embd() const { return token_embd_; }
  /// The matrix behind the logits; the embedding itself where they are tied.
  const WeightMatrix& output() const { return tied_ ? token_embd_ : output_; }
  const vk::BufferRange& output_norm() const { return output_norm_; }
  const std::vector<LayerWeights>& layers() const { return layers_; }

  /// These without the layers from `n_layers` on.
  ModelWeights first_layers(uint32_t n_layers) const;

  /// Types of the matrices that GEMMs read: each needs its pipelines.
  std::vector<const WeightType*> matrix_types() const;

 private:
  class Loader;
  explicit ModelWeights(std::shared_ptr<vk::Arena> arena) : arena_(std::move(arena)) {}

  std::shared_ptr<vk::Arena> arena_;
  WeightMatrix token_embd_;
  WeightMatrix output_;
  bool tied_ = false;
  vk::BufferRange output_norm_;
  std::vector<LayerWeights> layers_;
};

/// Bytes of device memory that `load` will take.
uint64_t resident_weight_bytes(const ModelSource& source, const ModelDescription& model);

}  // namespace pumice
