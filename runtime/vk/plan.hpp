// Policy: what this project does with a device, decided from its snapshot alone. Pure functions, so
// every decision is tested on snapshots of hardware nobody here has.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.hpp"
#include "base/result.hpp"
#include "vk/driver.hpp"
#include "vk/plan_options.hpp"
#include "vk/quirks.hpp"
#include "vk/snapshot.hpp"

namespace pumice::vk {

enum class DeviceClass { kGpu, kCpu };
std::string_view device_class_name(DeviceClass device_class);  ///< "gpu", "cpu"

enum class MemoryDomain {
  kDevice,    ///< weights, KV, activations; the host does not map it
  kUpload,    ///< host writes, device reads; host-visible and coherent
  kReadback,  ///< device writes, host reads; coherent, and host-cached where there is such a type
};
constexpr size_t kMemoryDomainCount = 3;

struct MemoryChoice {
  uint32_t type = 0;  ///< memory type index
  uint32_t heap = 0;
  bool device_local = false;
  bool host_visible = false;
  bool coherent = false;  ///< host and device see each other's writes
  bool cached = false;
};

/// One thing that works without, and whether it is used. `pumice info` prints these.
struct OptionalCapability {
  std::string name;  ///< Vulkan's name of the feature
  bool enabled = false;
  std::string reason;  ///< if not enabled: "the device lacks it", "withdrawn by option", …
};

struct DevicePlan {
  PlanOptions limits;  ///< the options it was planned with
  DeviceClass device_class = DeviceClass::kGpu;
  uint32_t api_version = 0;  ///< the device's, VK_MAKE_API_VERSION
  Quirks quirks;
  DriverFacts driver;  ///< for rows of tuning (tuning_rows.hpp)
  /// Set for a driver without hardware (RADV's null device): pipelines are compiled to learn what
  /// its compiler makes of them, and nothing is allocated or submitted.
  bool compile_only = false;

  DeviceFeatures features;              ///< to enable, exactly
  std::vector<std::string> extensions;  ///< to enable, exactly
  bool has_memory_budget = false;       ///< VK_EXT_memory_budget is among them
  std::vector<OptionalCapability> optional;

  uint32_t queue_family = 0;
  uint32_t timestamp_valid_bits = 0;  ///< 0: no timestamps, profile with the host's clock
  double timestamp_period_ns = 0;

  std::array<MemoryChoice, kMemoryDomainCount> memory;
  bool unified_memory = false;        ///< host and device share one memory: uploads save nothing
  uint64_t slab_bytes = 0;            ///< largest allocation and buffer to make
  uint64_t device_budget_bytes = 0;   ///< of the kDevice heap, headroom for others taken off
  uint32_t max_allocation_count = 0;  ///< live allocations, of any size

  uint32_t max_workgroup_invocations = 0;
  std::array<uint32_t, 3> max_workgroup_size = {};
  std::array<uint32_t, 3> max_workgroup_count = {};
  uint32_t max_shared_bytes = 0;
  uint32_t max_push_constant_bytes = 0;

  /// The subgroup size every kernel runs at; 0 if the driver may choose another for each pipeline,
  /// and then `subgroup` allows no operation, since kernels could not know how wide they are.
  uint32_t subgroup_size = 0;
  /// Pass it in VkPipelineShaderStageRequiredSubgroupSizeCreateInfo, and full subgroups if enabled.
  bool require_subgroup_size = false;
  /// The size that kernels with cooperative matrices run at, 0 if it is not known. The narrowest of
  /// the device: matrix units are made for it (Intel's for 8 or 16, AMD's for 32).
  uint32_t matrix_subgroup_size = 0;
  SubgroupFacts subgroup;  ///< operations kernels may use, after withdrawals
  IntegerDotFacts integer_dot;
  std::vector<MatrixShape> matrix_shapes;  ///< subgroup-scope ones; empty unless enabled
  Matrix2Facts matrix2;                    ///< zero unless workgroup scope is enabled
  /// Workgroup-scope ones; empty unless workgroup scope and flexible dimensions are enabled.
  std::vector<FlexibleMatrixShape> flexible_matrix_shapes;

  const MemoryChoice& domain(MemoryDomain d) const { return memory[static_cast<size_t>(d)]; }
  /// Whether it lies in the heap that device memory comes from, which budgets are about.
  bool is_budgeted(MemoryDomain d) const {
    return domain(d).heap == domain(MemoryDomain::kDevice).heap;
  }
  /// Memory that kernels read beside that heap; nothing where there is only one.
  std::optional<MemoryDomain> beside_device() const;
};

/// What every usable device has, and is enabled on it.
std::span<bool DeviceFeatures::*const> required_features();

/// A faster variant of something that works without, and the extension it comes from (null: core).
struct OptionalFeature {
  bool DeviceFeatures::*member;
  const char* extension;
};
std::span<const OptionalFeature> optional_features();

/// What the device lacks of the floor: Vulkan 1.3, buffer device addresses, timeline semaphores,
/// synchronization2, subgroup-size control, maintenance4, push constants of 128 bytes, 16 KiB of
/// shared memory, workgroups of 128, a compute queue, mappable and device memory. Empty: usable.
std::vector<std::string> missing_requirements(const DeviceSnapshot& snapshot);

/// kNoDevice naming everything lacking; kInvalidArgument for options that name no feature or ask
/// for a subgroup size the device cannot give.
Result<DevicePlan> plan_device(const DeviceSnapshot& snapshot, const PlanOptions& options = {});

/// Choose the memory of each domain among the types in `allowed_types` (VkMemoryRequirements'
/// memoryTypeBits), and what follows from it: the budget, and whether memory is unified.
/// `plan_device` takes all types to be allowed. Errors: kNoDevice when none serves a domain; the
/// plan is then unchanged.
Status plan_memory(const DeviceSnapshot& snapshot, uint32_t allowed_types, DevicePlan& plan);

/// One line on the device, one for each quirk, debug lines for optional capabilities.
void log_plan(const DeviceSnapshot& snapshot, const DevicePlan& plan, const Logger& logger);

}  // namespace pumice::vk
