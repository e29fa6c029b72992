// A model's weights in device memory, in the resident layout of their types.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "models/model_plan.hpp"
#include "models/model_source.hpp"
#include "shaders/common/weight_matrix.hpp"
#include "vk/memory.hpp"

namespace pumice {

/// The ledger's purpose of pieces that do not lie on the device.
inline constexpr const char* kWeightsBeside = "weights beside the device";

/// Matrices that read the same input and write side by side. Neighbours whose types agree are one
/// matrix, so that one dispatch serves them all.
struct StackedMatrices {
  struct Member {
    WeightMatrix matrix;
    uint32_t first_column = 0;  ///< of its outputs in the stack's
  };
  std::vector<Member> members;
  uint32_t n_outputs = 0;
};

/// Views of weights in memory of a device. Matrices lie in the pieces of a WeightLayout, each an arena
/// of its own; vectors beside them. Copies share the memory.
class ModelWeights {
 public:
  /// Called with bytes of the source done and in all.
  using Progress = std::function<void(uint64_t done, uint64_t total)>;

  /// Repack and upload all that the dispatches of a plan of this source read, all but the first
  /// `n_on_device` pieces to memory beside the device's (vk::DevicePlan::beside_device). The source
  /// may go afterwards. Host memory is bounded by a few MiB and the largest vector. Errors:
  /// kDoesNotFit (memory), kDeviceLost.
  static Result<ModelWeights> load(const std::shared_ptr<vk::Device>& device,
                                   const ModelSource& source, const ModelPlan& plan,
                                   const Progress& progress = {},
                                   uint32_t n_on_device = UINT32_MAX);

  /// A group of matrices, as it was loaded, or from those it was loaded with.
  StackedMatrices stack(std::span<const MatrixRows> group) const;
  /// One matrix; where it was stacked, the rows that are its own.
  const WeightMatrix& matrix(const MatrixRows& rows) const;
  /// Of device memory.
  uint64_t resident_bytes() const { return resident_bytes_; }
  /// The same with what is left over at the ends of slabs.
  uint64_t allocated_bytes() const;
  /// Floats of these tensors, one after the other, as they were loaded, or of one of them.
  vk::BufferRange vector(std::span<const TensorId> tensors) const;

  /// What adapters have for one of Program::adapted; see ops::Lora::Args.
  struct Adapters {
    vk::BufferRange a;
    vk::BufferRange b;
  };
  /// As they were loaded.
  const Adapters& adapters(uint32_t matrix) const { return adapters_[matrix]; }

  std::span<const std::shared_ptr<const vk::Arena>> pieces() const { return pieces_; }
  /// The same weights, of which one piece lies in another arena of such slabs.
  ModelWeights with_piece(size_t index, std::shared_ptr<const vk::Arena> arena) const;

 private:
  class Loader;
  using Key = std::pair<TensorId, uint32_t>;  // and first row
  static Key key(const MatrixRows& rows) { return {rows.tensor, rows.first_row}; }

  ModelWeights() = default;

  struct Stack {
    std::vector<Key> keys;
    StackedMatrices matrices;
  };
  std::vector<std::shared_ptr<const vk::Arena>> pieces_;
  std::shared_ptr<const vk::Arena> vector_arena_;
  uint64_t resident_bytes_ = 0;
  std::map<Key, Stack> stacks_;           // by their first matrix
  std::map<Key, WeightMatrix> matrices_;  // each, where it lies in its stack
  std::map<std::vector<TensorId>, vk::BufferRange> vectors_;
  std::vector<Adapters> adapters_;
};

}  // namespace pumice
