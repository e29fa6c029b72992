#include "vk/plan.hpp"

#include <fmt/ranges.h>

#include <algorithm>

namespace pumice::vk {
namespace {

using F = DeviceFeatures;

// Every device that passes Vulkan 1.3 conformance has these; drivers that claim less are refused.
constexpr bool F::*kRequiredFeatures[] = {
    &F::buffer_device_address, &F::timeline_semaphore,    &F::host_query_reset,
    &F::synchronization2,      &F::subgroup_size_control, &F::maintenance4,
};

constexpr OptionalFeature kOptionalFeatures[] = {
    {&F::shader_float16, nullptr},
    {&F::shader_int8, nullptr},
    {&F::shader_int16, nullptr},
    {&F::shader_int64, nullptr},
    {&F::storage_8bit, nullptr},
    {&F::storage_16bit, nullptr},
    {&F::subgroup_extended_types, nullptr},
    {&F::scalar_block_layout, nullptr},
    {&F::memory_model, nullptr},
    {&F::memory_model_device_scope, nullptr},
    {&F::full_subgroups, nullptr},
    {&F::integer_dot, nullptr},
    {&F::pipeline_cache_control, nullptr},
    {&F::pipeline_executable_info, VK_KHR_PIPELINE_EXECUTABLE_PROPERTIES_EXTENSION_NAME},
    {&F::memory_priority, VK_EXT_MEMORY_PRIORITY_EXTENSION_NAME},
    {&F::pageable_memory, VK_EXT_PAGEABLE_DEVICE_LOCAL_MEMORY_EXTENSION_NAME},
    {&F::device_fault, VK_EXT_DEVICE_FAULT_EXTENSION_NAME},
    {&F::workgroup_explicit_layout, VK_KHR_WORKGROUP_MEMORY_EXPLICIT_LAYOUT_EXTENSION_NAME},
    {&F::cooperative_matrix, VK_KHR_COOPERATIVE_MATRIX_EXTENSION_NAME},
    {&F::bfloat16, VK_KHR_SHADER_BFLOAT16_EXTENSION_NAME},
    {&F::bfloat16_cooperative_matrix, VK_KHR_SHADER_BFLOAT16_EXTENSION_NAME},
    {&F::matrix2_workgroup_scope, VK_NV_COOPERATIVE_MATRIX_2_EXTENSION_NAME},
    {&F::matrix2_flexible_dimensions, VK_NV_COOPERATIVE_MATRIX_2_EXTENSION_NAME},
    {&F::matrix2_reductions, VK_NV_COOPERATIVE_MATRIX_2_EXTENSION_NAME},
    {&F::matrix2_conversions, VK_NV_COOPERATIVE_MATRIX_2_EXTENSION_NAME},
    {&F::matrix2_per_element, VK_NV_COOPERATIVE_MATRIX_2_EXTENSION_NAME},
    {&F::matrix2_tensor_addressing, VK_NV_COOPERATIVE_MATRIX_2_EXTENSION_NAME},
    {&F::matrix2_block_loads, VK_NV_COOPERATIVE_MATRIX_2_EXTENSION_NAME},
};

// A feature that may only be enabled together with another.
struct Dependency {
  bool F::*member;
  bool F::*needs;
};
constexpr Dependency kDependencies[] = {
    // With the memory model but not its device scope, Vulkan forbids that scope to every shader,
    // and GLSL's atomics and memory barriers have it.
    {&F::memory_model, &F::memory_model_device_scope},
    {&F::memory_model_device_scope, &F::memory_model},
    {&F::pageable_memory, &F::memory_priority},  // so says its extension
    {&F::cooperative_matrix, &F::memory_model},  // its SPIR-V declares the Vulkan memory model
    {&F::bfloat16_cooperative_matrix, &F::bfloat16},
    {&F::bfloat16_cooperative_matrix, &F::cooperative_matrix},
    {&F::matrix2_workgroup_scope, &F::cooperative_matrix},
    {&F::matrix2_flexible_dimensions, &F::cooperative_matrix},
    {&F::matrix2_reductions, &F::cooperative_matrix},
    {&F::matrix2_conversions, &F::cooperative_matrix},
    {&F::matrix2_per_element, &F::cooperative_matrix},
    {&F::matrix2_tensor_addressing, &F::cooperative_matrix},
    {&F::matrix2_block_loads, &F::matrix2_tensor_addressing},
};

constexpr std::string_view kOtherWithdrawables[] = {"subgroupOperations", "subgroupArithmetic",
                                                    "subgroupShuffle", "timestamps"};

constexpr uint64_t kMaxSlabBytes = uint64_t{1} << 30;
constexpr uint64_t kSlabGranularity = uint64_t{1} << 16;
constexpr uint32_t kPreferredSubgroupSize = 32;

std::string_view name_of(bool F::*member) {
  for (const FeatureName& feature : feature_names()) {
    if (feature.member == member) return feature.name;
  }
  return "?";
}

constexpr uint32_t kHostCoherent =
    VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
constexpr uint32_t kDeviceLocal = VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT;
constexpr uint32_t kHostCached = VK_MEMORY_PROPERTY_HOST_CACHED_BIT;
constexpr uint32_t kPlainBits = kHostCoherent | kDeviceLocal | kHostCached;
constexpr uint32_t kAllTypes = ~0u;

// Protected, lazily allocated, AMD's uncached and NVIDIA's RDMA types are never wanted.
bool is_plain(const MemoryType& type) { return (type.property_bits & ~kPlainBits) == 0; }

// The allowed type with the highest score; the driver's order, which is a preference, breaks ties.
template <typename Score>
std::optional<uint32_t> best_type(const DeviceSnapshot& snapshot, uint32_t allowed,
                                  const Score& score) {
  std::optional<uint32_t> best;
  int best_score = -1;
  for (uint32_t i = 0; i < snapshot.memory_types.size(); ++i) {
    const MemoryType& type = snapshot.memory_types[i];
    if (i >= 32 || (allowed >> i & 1) == 0) continue;
    if (!is_plain(type) || type.heap >= snapshot.heaps.size()) continue;
    const int s = score(type);
    if (s > best_score) {
      best_score = s;
      best = i;
    }
  }
  return best;
}

uint64_t largest_device_heap_bytes(const DeviceSnapshot& snapshot) {
  uint64_t bytes = 0;
  for (const MemoryHeap& heap : snapshot.heaps) {
    if (heap.device_local) bytes = std::max(bytes, heap.size_bytes);
  }
  return bytes;
}

bool has(const MemoryType& type, uint32_t bits) { return (type.property_bits & bits) == bits; }

std::optional<uint32_t> device_type(const DeviceSnapshot& snapshot, uint32_t allowed) {
  const uint64_t largest = largest_device_heap_bytes(snapshot);
  return best_type(snapshot, allowed, [&](const MemoryType& type) {
    if (!has(type, kDeviceLocal)) return -1;
    int score = snapshot.heaps[type.heap].size_bytes == largest ? 2 : 0;
    if (!has(type, VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT)) score += 1;
    return score;
  });
}

// Device-local memory the host can write is used only if all of the device's memory is like that: a
// 256 MiB window is kept for the driver.
std::optional<uint32_t> upload_type(const DeviceSnapshot& snapshot, uint32_t allowed) {
  const uint64_t largest = largest_device_heap_bytes(snapshot);
  return best_type(snapshot, allowed, [&](const MemoryType& type) {
    if (!has(type, kHostCoherent)) return -1;
    const uint64_t heap_bytes = snapshot.heaps[type.heap].size_bytes;
    const bool whole = has(type, kDeviceLocal) && heap_bytes >= largest;
    const bool window = has(type, kDeviceLocal) && !whole;
    return (whole ? 4 : 0) + (window ? 0 : 2) + (has(type, kHostCached) ? 0 : 1);
  });
}

// Coherent even where cached memory is not (some Mali): only token ids and asked-for logits are
// read back, which is not worth invalidating ranges for.
std::optional<uint32_t> readback_type(const DeviceSnapshot& snapshot, uint32_t allowed) {
  return best_type(snapshot, allowed, [&](const MemoryType& type) {
    if (!has(type, kHostCoherent)) return -1;
    return (has(type, kHostCached) ? 2 : 0) + (has(type, kDeviceLocal) ? 0 : 1);
  });
}

MemoryChoice choice_of(const DeviceSnapshot& snapshot, uint32_t index) {
  const MemoryType& type = snapshot.memory_types[index];
  return {index,
          type.heap,
          has(type, kDeviceLocal),
          has(type, VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT),
          has(type, VK_MEMORY_PROPERTY_HOST_COHERENT_BIT),
          has(type, kHostCached)};
}

// A compute family without graphics, if it has timestamps as good: the desktop's compositor queues
// on the graphics family, and must not wait behind a prompt. Otherwise the first that computes.
std::optional<uint32_t> compute_family(const DeviceSnapshot& snapshot) {
  std::optional<uint32_t> first, dedicated;
  for (uint32_t i = 0; i < snapshot.queue_families.size(); ++i) {
    const QueueFamily& family = snapshot.queue_families[i];
    if ((family.queue_bits & VK_QUEUE_COMPUTE_BIT) == 0 || family.queue_count == 0) continue;
    if (!first) first = i;
    if (!dedicated && (family.queue_bits & VK_QUEUE_GRAPHICS_BIT) == 0) dedicated = i;
  }
  if (!first || !dedicated) return first;
  const auto bits = [&](uint32_t i) { return snapshot.queue_families[i].timestamp_valid_bits; };
  return bits(*dedicated) >= bits(*first) ? dedicated : first;
}

void plan_features(const DeviceSnapshot& snapshot, const PlanOptions& options, DevicePlan& plan) {
  for (bool F::*member : kRequiredFeatures) plan.features.*member = true;
  for (const OptionalFeature& optional : kOptionalFeatures) {
    OptionalCapability capability;
    capability.name = name_of(optional.member);
    const bool no_extension =
        optional.extension != nullptr && !snapshot.has_extension(optional.extension);
    if (no_extension) {
      capability.reason = fmt::format("the device lacks {}", optional.extension);
    } else if (!(snapshot.features.*optional.member)) {
      capability.reason = "the device lacks it";
    } else if (options.disable.contains(capability.name)) {
      capability.reason = "withdrawn by option";
    } else if (optional.member == &F::matrix2_reductions &&
               plan.quirks.matrix_reductions_are_wrong) {
      capability.reason = "wrong on this driver (quirk matrix_reductions_are_wrong)";
    } else if (optional.member == &F::cooperative_matrix && plan.quirks.matrix_query_crashes) {
      capability.reason = "the driver crashes when asked (quirk matrix_query_crashes)";
    } else {
      capability.enabled = true;
    }
    plan.features.*optional.member = capability.enabled;
    plan.optional.push_back(std::move(capability));
  }
  // In the order of the table, so that what needs something just dropped is dropped as well.
  for (const Dependency& dependency : kDependencies) {
    if (!(plan.features.*dependency.member) || plan.features.*dependency.needs) continue;
    plan.features.*dependency.member = false;
    const auto capability = std::ranges::find_if(plan.optional, [&](const OptionalCapability& c) {
      return c.name == name_of(dependency.member);
    });
    capability->enabled = false;
    capability->reason = fmt::format("needs {}, which is off", name_of(dependency.needs));
  }
}

void plan_extensions(const DeviceSnapshot& snapshot, DevicePlan& plan) {
  std::set<std::string> wanted;
  for (const OptionalFeature& optional : kOptionalFeatures) {
    if (optional.extension != nullptr && plan.features.*optional.member) {
      wanted.insert(optional.extension);
    }
  }
  plan.has_memory_budget = snapshot.has_extension(VK_EXT_MEMORY_BUDGET_EXTENSION_NAME);
  if (plan.has_memory_budget) wanted.insert(VK_EXT_MEMORY_BUDGET_EXTENSION_NAME);
  // The specification requires it to be enabled wherever it is advertised.
  if (snapshot.has_extension(VK_KHR_PORTABILITY_SUBSET_EXTENSION_NAME)) {
    wanted.insert(VK_KHR_PORTABILITY_SUBSET_EXTENSION_NAME);
  }
  plan.extensions.assign(wanted.begin(), wanted.end());
}

uint64_t budget_bytes(const MemoryHeap& heap, bool unified) {
  if (heap.budget_bytes != 0) {
    const uint64_t free = heap.budget_bytes - std::min(heap.budget_bytes, heap.usage_bytes);
    return free / 20 * 19;  // a little for what other processes take while we load
  }
  // Nobody told: leave the host a quarter of a shared memory, the desktop a tenth of the GPU's.
  return unified ? heap.size_bytes / 4 * 3 : heap.size_bytes / 10 * 9;
}

void plan_limits(const DeviceSnapshot& snapshot, const PlanOptions& options, DevicePlan& plan) {
  const auto clamp = [](uint32_t has, uint32_t limit) {
    return limit == 0 ? has : std::min(has, limit);
  };
  const DeviceLimits& limits = snapshot.limits;
  plan.slab_bytes = std::min({kMaxSlabBytes, limits.max_allocation_bytes, limits.max_buffer_bytes,
                              plan.quirks.max_allocation_bytes});
  if (options.slab_bytes != 0) plan.slab_bytes = std::min(plan.slab_bytes, options.slab_bytes);
  plan.slab_bytes = std::max(plan.slab_bytes / kSlabGranularity, uint64_t{1}) * kSlabGranularity;
  plan.max_allocation_count = limits.max_allocation_count;
  plan.max_shared_bytes = clamp(limits.max_shared_bytes, options.max_shared_bytes);
  plan.max_workgroup_invocations =
      clamp(limits.max_workgroup_invocations, options.max_workgroup_invocations);
  plan.max_workgroup_size = limits.max_workgroup_size;
  for (uint32_t& size : plan.max_workgroup_size) {
    size = std::min(size, plan.max_workgroup_invocations);
  }
  plan.max_workgroup_count = limits.max_workgroup_count;
  plan.max_push_constant_bytes = limits.max_push_constant_bytes;
}

bool is_power_of_two(uint32_t value) { return value != 0 && (value & (value - 1)) == 0; }

// Shaders for Vulkan 1.3 are SPIR-V 1.6, where a driver may run any size from minimum to maximum
// unless one is required; so where the two differ a size is known only by requiring it.
Status plan_subgroups(const DeviceSnapshot& snapshot, const PlanOptions& options,
                      DevicePlan& plan) {
  const SubgroupFacts& facts = snapshot.subgroup;
  plan.subgroup = facts;
  const bool range_known = is_power_of_two(facts.min_size) && facts.min_size <= facts.max_size;
  plan.require_subgroup_size = facts.compute_size_control && range_known;
  if (plan.require_subgroup_size) {
    plan.subgroup_size = std::clamp(kPreferredSubgroupSize, facts.min_size, facts.max_size);
  } else if (range_known && facts.min_size == facts.max_size) {
    plan.subgroup_size = facts.min_size;
  }
  const uint32_t wanted = options.subgroup_size;
  if (wanted != 0 && wanted != plan.subgroup_size) {
    const bool possible = plan.require_subgroup_size && is_power_of_two(wanted) &&
                          wanted >= facts.min_size && wanted <= facts.max_size;
    if (!possible) {
      return make_error(ErrorCode::kInvalidArgument,
                        "{} cannot run subgroups of {} (it offers {} to {}{})", snapshot.name,
                        wanted, facts.min_size, facts.max_size,
                        facts.compute_size_control ? "" : ", chosen by the driver");
    }
    plan.subgroup_size = wanted;
  }
  if (plan.require_subgroup_size && facts.max_workgroup_subgroups != 0) {
    const uint64_t most = uint64_t{facts.max_workgroup_subgroups} * plan.subgroup_size;
    plan.max_workgroup_invocations =
        static_cast<uint32_t>(std::min<uint64_t>(plan.max_workgroup_invocations, most));
  }

  SubgroupFacts& use = plan.subgroup;
  const bool none = plan.subgroup_size == 0 || !facts.compute_operations ||
                    options.disable.contains("subgroupOperations");
  if (none) {
    use.basic = use.vote = use.arithmetic = use.ballot = false;
    use.shuffle = use.shuffle_relative = use.clustered = use.quad = false;
  }
  if (options.disable.contains("subgroupArithmetic")) use.arithmetic = use.clustered = false;
  if (options.disable.contains("subgroupShuffle")) use.shuffle = use.shuffle_relative = false;
  const auto report = [&](const char* name, bool device_has, bool enabled) {
    std::string reason;
    if (!enabled) {
      reason = !device_has || !facts.compute_operations ? "the device lacks it"
               : plan.subgroup_size == 0                ? "the driver chooses the subgroup size"
                                                        : "withdrawn by option";
    }
    plan.optional.push_back({name, enabled, std::move(reason)});
  };
  report("subgroupArithmetic", facts.arithmetic, use.arithmetic);
  report("subgroupShuffle", facts.shuffle, use.shuffle);
  return {};
}

void plan_queue(const DeviceSnapshot& snapshot, const PlanOptions& options, DevicePlan& plan) {
  plan.queue_family = *compute_family(snapshot);
  const uint32_t bits = snapshot.queue_families[plan.queue_family].timestamp_valid_bits;
  const bool has_timestamps = bits != 0 && snapshot.limits.timestamp_period_ns > 0;
  const bool withdrawn = options.disable.contains("timestamps");
  if (has_timestamps && !withdrawn) {
    plan.timestamp_valid_bits = bits;
    plan.timestamp_period_ns = static_cast<double>(snapshot.limits.timestamp_period_ns);
  }
  plan.optional.push_back({"timestamps", has_timestamps && !withdrawn,
                           !has_timestamps ? "the device lacks it"
                           : withdrawn     ? "withdrawn by option"
                                           : ""});
}

Status check_options(const PlanOptions& options) {
  const std::vector<std::string> known = withdrawable_features();
  for (const std::string& name : options.disable) {
    if (std::ranges::find(known, name) == known.end()) {
      return make_error(ErrorCode::kInvalidArgument,
                        "cannot withdraw \"{}\": not an optional feature (those are {})", name,
                        fmt::join(known, ", "));
    }
  }
  return {};
}

}  // namespace

std::string_view device_class_name(DeviceClass device_class) {
  return device_class == DeviceClass::kCpu ? "cpu" : "gpu";
}

std::span<bool F::*const> required_features() { return kRequiredFeatures; }
std::span<const OptionalFeature> optional_features() { return kOptionalFeatures; }

std::vector<std::string> withdrawable_features() {
  std::vector<std::string> names;
  for (const OptionalFeature& optional : kOptionalFeatures) {
    names.emplace_back(name_of(optional.member));
  }
  names.insert(names.end(), std::begin(kOtherWithdrawables), std::end(kOtherWithdrawables));
  return names;
}

std::vector<std::string> missing_requirements(const DeviceSnapshot& snapshot) {
  std::vector<std::string> missing;
  if (snapshot.api_version < VK_API_VERSION_1_3) {
    missing.push_back(
        fmt::format("Vulkan 1.3 (it has {})", format_api_version(snapshot.api_version)));
  }
  for (bool F::*member : kRequiredFeatures) {
    if (!(snapshot.features.*member)) missing.emplace_back(name_of(member));
  }
  const auto at_least = [&](const char* name, uint32_t value, uint32_t minimum) {
    if (value < minimum) missing.push_back(fmt::format("{} {} (it has {})", name, minimum, value));
  };
  const DeviceLimits& limits = snapshot.limits;
  at_least("maxPushConstantsSize", limits.max_push_constant_bytes, kFloorPushConstantBytes);
  at_least("maxComputeSharedMemorySize", limits.max_shared_bytes, kFloorSharedBytes);
  at_least("maxComputeWorkGroupInvocations", limits.max_workgroup_invocations,
           kFloorWorkgroupInvocations);
  at_least("maxComputeWorkGroupSize[0]", limits.max_workgroup_size[0], kFloorWorkgroupInvocations);
  if (!compute_family(snapshot)) missing.emplace_back("a compute queue");
  if (!device_type(snapshot, kAllTypes)) missing.emplace_back("device-local memory");
  if (!upload_type(snapshot, kAllTypes)) missing.emplace_back("host-visible coherent memory");
  return missing;
}

// Where the host writes all of the device's memory, uploads lie in it and readback does not.
std::optional<MemoryDomain> DevicePlan::beside_device() const {
  for (const MemoryDomain other : {MemoryDomain::kUpload, MemoryDomain::kReadback}) {
    if (!is_budgeted(other)) return other;
  }
  return {};
}

Status plan_memory(const DeviceSnapshot& snapshot, uint32_t allowed_types, DevicePlan& plan) {
  const std::optional<uint32_t> types[kMemoryDomainCount] = {
      device_type(snapshot, allowed_types), upload_type(snapshot, allowed_types),
      readback_type(snapshot, allowed_types)};
  if (!types[0] || !types[1] || !types[2]) {
    return make_error(ErrorCode::kNoDevice,
                      "device {} cannot be used: buffers may have the memory types {:#x} only, and "
                      "none of them is {}",
                      snapshot.name, allowed_types,
                      types[0] ? "host-visible and coherent" : "device-local");
  }
  for (size_t i = 0; i < kMemoryDomainCount; ++i) plan.memory[i] = choice_of(snapshot, *types[i]);
  const auto local = [](const MemoryHeap& heap) { return heap.device_local; };
  plan.unified_memory =
      snapshot.type == DeviceType::kIntegrated || snapshot.type == DeviceType::kCpu ||
      (std::ranges::all_of(snapshot.heaps, local) &&
       plan.domain(MemoryDomain::kUpload).heap == plan.domain(MemoryDomain::kDevice).heap);

  plan.device_budget_bytes =
      budget_bytes(snapshot.heaps[plan.domain(MemoryDomain::kDevice).heap], plan.unified_memory);
  if (const uint64_t limit = plan.limits.device_budget_bytes; limit != 0) {
    plan.device_budget_bytes = std::min(plan.device_budget_bytes, limit);
  }
  return {};
}

Result<DevicePlan> plan_device(const DeviceSnapshot& snapshot, const PlanOptions& options) {
  PUMICE_TRY_STATUS(check_options(options));
  const std::vector<std::string> missing = missing_requirements(snapshot);
  if (!missing.empty()) {
    return make_error(ErrorCode::kNoDevice, "device {} cannot be used: it lacks {}", snapshot.name,
                      fmt::join(missing, ", "));
  }
  DevicePlan plan;
  plan.limits = options;
  plan.device_class = snapshot.type == DeviceType::kCpu ? DeviceClass::kCpu : DeviceClass::kGpu;
  plan.api_version = snapshot.api_version;
  plan.quirks = find_quirks(snapshot);
  plan.driver = driver_facts(snapshot);
  plan_features(snapshot, options, plan);
  plan_extensions(snapshot, plan);
  plan_queue(snapshot, options, plan);
  PUMICE_TRY_STATUS(plan_memory(snapshot, kAllTypes, plan));
  plan_limits(snapshot, options, plan);
  PUMICE_TRY_STATUS(plan_subgroups(snapshot, options, plan));
  if (plan.features.integer_dot) plan.integer_dot = snapshot.integer_dot;
  if (plan.features.cooperative_matrix) {
    std::copy_if(snapshot.matrix_shapes.begin(), snapshot.matrix_shapes.end(),
                 std::back_inserter(plan.matrix_shapes),
                 [](const MatrixShape& shape) { return shape.subgroup_scope; });
    // Where the driver has one size, nothing has to be required (Mesa's for NVIDIA allows no stage
    // to).
    plan.matrix_subgroup_size = plan.require_subgroup_size && options.subgroup_size == 0
                                    ? snapshot.subgroup.min_size
                                    : plan.subgroup_size;
  }
  if (plan.features.matrix2_workgroup_scope) plan.matrix2 = snapshot.matrix2;
  if (plan.features.matrix2_workgroup_scope && plan.features.matrix2_flexible_dimensions) {
    std::copy_if(snapshot.flexible_matrix_shapes.begin(), snapshot.flexible_matrix_shapes.end(),
                 std::back_inserter(plan.flexible_matrix_shapes),
                 [](const FlexibleMatrixShape& shape) { return shape.workgroup_scope; });
  }
  return plan;
}

void log_plan(const DeviceSnapshot& snapshot, const DevicePlan& plan, const Logger& logger) {
  constexpr uint64_t kMiB = uint64_t{1} << 20;
  logger.info("device {} ({}, Vulkan {}, {} {}): subgroup {}, {} MiB usable, slabs of {} MiB",
              snapshot.name, device_type_name(snapshot.type),
              format_api_version(snapshot.api_version), snapshot.driver_name, snapshot.driver_info,
              plan.subgroup_size, plan.device_budget_bytes / kMiB, plan.slab_bytes / kMiB);
  if (const std::string limits = format_plan_options(plan.limits); !limits.empty()) {
    logger.info("limited by option: {}", limits);
  }
  for (const QuirkNote& note : plan.quirks.notes) {
    logger.info("quirk {}: {}", note.name, note.reason);
  }
  for (const OptionalCapability& capability : plan.optional) {
    if (capability.enabled) {
      logger.debug("{}: used", capability.name);
    } else {
      logger.debug("{}: not used, {}", capability.name, capability.reason);
    }
  }
}

}  // namespace pumice::vk
