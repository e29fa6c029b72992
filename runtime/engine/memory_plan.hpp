// What running a model takes of a device's memory, all of it together and before any of it is
// allocated: weights, keys and values, activations, and what steps need beside them. Plans are made
// of a model's shape, options and numbers of a device; nothing is opened or loaded.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "engine/engine_options.hpp"
#include "engine/engine_sizes.hpp"
#include "models/model.hpp"
#include "models/model_plan.hpp"
#include "vk/device.hpp"
#include "vk/plan.hpp"
#include "vk/snapshot.hpp"

namespace pumice {

/// What a plan must know of a device.
struct DeviceMemory {
  std::string name;
  uint64_t free_bytes = 0;  ///< of the budget, of which others' and this process's are taken off
  uint64_t slab_bytes = 0;
  uint32_t max_items = UINT32_MAX;  ///< of attention in a step; StepArgs::lay_out
  bool maps_all = false;            ///< the host writes device memory in place
  /// By MemoryDomain: whether it lies in the heap that the budget is of.
  std::array<bool, vk::kMemoryDomainCount> is_budgeted = {true, true, true};
  /// Memory that kernels read beside that heap, and of it what a model may take; nothing where
  /// there is only one.
  std::optional<vk::MemoryDomain> beside = {};
  uint64_t beside_bytes = 0;
};
/// Of a device that is not open, or has `used_bytes` allocated.
DeviceMemory device_memory(const vk::DeviceSnapshot& snapshot, const vk::DevicePlan& plan,
                           uint64_t used_bytes = 0);
DeviceMemory device_memory(vk::Device& device);

enum class MemoryUse { kWeights, kKv, kActivations, kReserve };
inline constexpr std::array<std::string_view, 4> kMemoryUseNames = {"weights", "kv", "activations",
                                                                    "reserve"};

struct MemoryLine {
  std::string_view purpose;  ///< as in the device's ledger
  MemoryUse use = MemoryUse::kReserve;
  vk::MemoryDomain domain = vk::MemoryDomain::kDevice;
  uint64_t bytes = 0;
  bool passing = false;  ///< staging, at most: allocated only while something moves
};

struct MemoryPlan {
  uint32_t context_tokens = 0;
  std::vector<MemoryLine> lines;
  uint64_t budgeted_bytes = 0;  ///< of the lines that count against the device's budget
  /// Pieces of the weights that lie on the device (Model::load); the others, which a token reads
  /// least of for their size, have no room there.
  uint32_t weight_pieces = UINT32_MAX;
  uint64_t beside_bytes = 0;     ///< of the others
  double beside_read_bytes = 0;  ///< of them, by a token that is decoded, alone in its step
  /// What keeps it from the device besides its bytes; empty: nothing.
  std::string obstacle;

  uint64_t bytes(MemoryUse use) const;
  /// With what passes; without, what the ledger has while nothing moves.
  uint64_t total_bytes(bool with_passing = true) const;
};

/// One type for keys and values, of those in which all heads of the model can be kept, the largest
/// first.
std::vector<KvType> kv_choices(const Program& program);

/// Plans for one model on one device. Options are those of an engine; a context of 0 is the
/// model's.
///
/// Weights that do not fit beside all else are planned in memory beside the device's, as few as
/// leave room for the context, or one of kRoomTokens if that is longer.
class MemoryPlanner {
 public:
  /// Of a model that is still to be loaded. Errors: those of ModelPlan::lowered.
  static Result<MemoryPlanner> of_plan(std::shared_ptr<const ModelPlan> model, DeviceMemory device,
                                       const FusionRules& fusion = {});
  /// Of one that has been: its weights' bytes on the device count as free before the plan, and as
  /// part of it.
  static Result<MemoryPlanner> of_loaded(const Model& model, vk::Device& device,
                                         const FusionRules& fusion = {});

  /// Plans with so much free memory at most, weights of a loaded model in it.
  void use_at_most(uint64_t bytes) { device_.free_bytes = std::min(device_.free_bytes, bytes); }

  const Program& program() const { return model_->program(); }
  const DeviceMemory& device() const { return device_; }

  /// Errors: those of engine_sizes, of which only options are the cause.
  Result<EngineSizes> sizes(EngineOptions options) const;
  Result<MemoryPlan> plan(const EngineOptions& options) const;
  bool fits(const MemoryPlan& plan) const {
    return plan.obstacle.empty() && plan.budgeted_bytes <= device_.free_bytes;
  }
  /// The longest context up to `most` that fits beside all weights, or up to kRoomTokens beside
  /// some; a multiple of a block, or `most`. 0: none does.
  uint32_t largest_context(EngineOptions options, uint32_t most) const;
  /// Errors (kDoesNotFit): it does not fit, with the numbers and what would.
  Status check(const EngineOptions& options) const;

  static constexpr uint32_t kRoomTokens = 4096;

 private:
  MemoryPlanner(std::shared_ptr<const ModelPlan> model, std::shared_ptr<const Lowered> lowered,
                DeviceMemory device, WeightMemory weights)
      : model_(std::move(model)),
        lowered_(std::move(lowered)),
        device_(std::move(device)),
        weights_(std::move(weights)) {}
  EngineOptions with_context(EngineOptions options) const;
  Result<MemoryPlan> plan_all(const EngineOptions& options) const;
  bool place_beside(MemoryPlan& plan, uint64_t room_bytes) const;
  uint32_t longest(EngineOptions options, uint32_t most, bool beside) const;
  std::string what_would_fit(const EngineOptions& options) const;

  std::shared_ptr<const ModelPlan> model_;
  std::shared_ptr<const Lowered> lowered_;  // by the engine's rules
  DeviceMemory device_;
  WeightMemory weights_;
};

/// "812.0 MiB", "4.58 GiB"
std::string memory_text(uint64_t bytes);

}  // namespace pumice
