// What a Vulkan device says about itself, as plain data: nothing here is judged (plan.hpp does
// that) and nothing holds on to the device. A default-constructed snapshot is the least that
// Vulkan 1.0 guarantees, so a fact nobody reported is a fact not relied on.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "vk/functions.hpp"

namespace pumice::vk {

enum class DeviceType { kOther = 0, kIntegrated = 1, kDiscrete = 2, kVirtual = 3, kCpu = 4 };
std::string_view device_type_name(DeviceType type);  ///< "discrete", "integrated", …

using Uuid = std::array<uint8_t, 16>;
std::string format_uuid(const Uuid& uuid);  ///< 8-4-4-4-12 lower-case hexadecimal digits

struct DeviceLimits {
  uint32_t max_workgroup_invocations = 128;                     ///< invocations in one workgroup
  std::array<uint32_t, 3> max_workgroup_size = {128, 128, 64};  ///< the same per dimension
  std::array<uint32_t, 3> max_workgroup_count = {65535, 65535,
                                                 65535};        ///< workgroups in a dispatch
  uint32_t max_shared_bytes = 16384;                            ///< shared memory of one workgroup
  uint32_t max_push_constant_bytes = 128;                       ///< push constants of one pipeline
  uint64_t max_storage_buffer_range_bytes = uint64_t{1} << 27;  ///< one storage buffer binding
  uint64_t max_allocation_bytes = uint64_t{1} << 30;            ///< one vkAllocateMemory
  uint64_t max_buffer_bytes = uint64_t{1} << 30;                ///< one VkBuffer
  uint32_t max_allocation_count = 4096;                         ///< live allocations
  uint64_t non_coherent_atom_bytes = 256;            ///< granularity of flush and invalidate
  uint64_t min_storage_buffer_offset_bytes = 256;    ///< alignment of a storage buffer binding
  uint64_t min_map_alignment_bytes = 64;             ///< alignment of what vkMapMemory returns
  uint64_t buffer_image_granularity_bytes = 131072;  ///< distance of buffers from images
  float timestamp_period_ns = 0;                     ///< nanoseconds a timestamp tick; 0: unknown
  bool timestamps_on_all_queues = false;             ///< every compute queue has timestamps

  bool operator==(const DeviceLimits&) const = default;
};

struct SubgroupFacts {
  uint32_t default_size = 0;             ///< the size a shader gets that asks for none; 0: unknown
  uint32_t min_size = 0;                 ///< smallest size that can be asked for; 0: not reported
  uint32_t max_size = 0;                 ///< largest size that can be asked for; 0: not reported
  uint32_t max_workgroup_subgroups = 0;  ///< subgroups in a workgroup of required size; 0: unknown
  bool compute_size_control = false;     ///< compute shaders may require a size
  bool compute_operations = false;       ///< subgroup operations work in compute shaders
  bool basic = false;                    ///< elect and barriers
  bool vote = false;                     ///< any, all, equal
  bool arithmetic = false;               ///< add, min, max, scans
  bool ballot = false;                   ///< ballot and broadcast
  bool shuffle = false;                  ///< shuffle by any index, xor
  bool shuffle_relative = false;         ///< shuffle up and down
  bool clustered = false;                ///< arithmetic within clusters
  bool quad = false;                     ///< quad broadcast and swap

  bool operator==(const SubgroupFacts&) const = default;
};

/// Whether 4×8-bit packed integer dot products beat the multiplications they replace.
struct IntegerDotFacts {
  bool packed_signed_accelerated = false;    ///< int8 · int8
  bool packed_unsigned_accelerated = false;  ///< uint8 · uint8
  bool packed_mixed_accelerated = false;     ///< int8 · uint8

  bool operator==(const IntegerDotFacts&) const = default;
};

/// Feature bits this project may enable, named in snake case after Vulkan's own (`feature_names`).
struct DeviceFeatures {
  bool shader_int16 = false;               ///< 16-bit integer arithmetic
  bool shader_int64 = false;               ///< 64-bit integer arithmetic
  bool storage_16bit = false;              ///< 16-bit types in storage buffers and behind addresses
  bool storage_8bit = false;               ///< 8-bit types in storage buffers and behind addresses
  bool shader_float16 = false;             ///< half-float arithmetic
  bool shader_int8 = false;                ///< 8-bit integer arithmetic
  bool subgroup_extended_types = false;    ///< subgroup operations on 8-, 16- and 64-bit types
  bool scalar_block_layout = false;        ///< scalar alignment in blocks
  bool buffer_device_address = false;      ///< pointers to buffers in shaders
  bool timeline_semaphore = false;         ///< semaphores that count
  bool host_query_reset = false;           ///< queries reset without a command buffer
  bool memory_model = false;               ///< the Vulkan memory model in shaders
  bool memory_model_device_scope = false;  ///< its scope of the whole device
  bool synchronization2 = false;           ///< barriers and submits with 64-bit stages
  bool subgroup_size_control = false;      ///< a pipeline may require a subgroup size
  bool full_subgroups = false;             ///< a pipeline may require full subgroups
  bool maintenance4 = false;               ///< LocalSizeId in shaders, buffer requirements unbuilt
  bool integer_dot = false;                ///< integer dot products in shaders
  bool pipeline_cache_control = false;     ///< creation fails rather than compile, on request
  bool pipeline_executable_info = false;   ///< compiler statistics of a pipeline
  bool memory_priority = false;            ///< allocations carry a priority
  bool pageable_memory = false;            ///< the system pages device memory out by it
  bool workgroup_explicit_layout = false;  ///< shared memory seen through several types
  bool cooperative_matrix = false;         ///< KHR cooperative matrices
  bool bfloat16 = false;                   ///< bfloat16 type in shaders
  bool bfloat16_cooperative_matrix = false;  ///< bfloat16 cooperative matrices
  bool matrix2_workgroup_scope = false;  ///< NV cooperative matrix 2: matrices a workgroup shares
  bool matrix2_flexible_dimensions = false;  ///< … multiples of a granularity as sizes
  bool matrix2_reductions = false;           ///< … row, column and 2×2 reductions
  bool matrix2_conversions = false;          ///< … conversions between uses and types
  bool matrix2_per_element = false;          ///< … a function applied to each element
  bool matrix2_tensor_addressing = false;    ///< … loads through tensor layouts
  bool matrix2_block_loads = false;          ///< … loads through a decoding function
  bool device_fault = false;                 ///< what went wrong can be asked of a lost device

  bool operator==(const DeviceFeatures&) const = default;
};

struct FeatureName {
  std::string_view name;  ///< Vulkan's own, e.g. "shaderFloat16"
  bool DeviceFeatures::*member;
};
/// Every member of DeviceFeatures once.
std::span<const FeatureName> feature_names();

/// Element types of cooperative matrices; the numbers are VkComponentTypeKHR's.
enum class ComponentType : uint32_t {
  kF16 = 0,
  kF32 = 1,
  kF64 = 2,
  kS8 = 3,
  kS16 = 4,
  kS32 = 5,
  kS64 = 6,
  kU8 = 7,
  kU16 = 8,
  kU32 = 9,
  kU64 = 10,
  kBf16 = 1000141000,
};
std::string component_type_name(ComponentType type);  ///< "f16"; a number for one unknown here

/// One supported KHR cooperative matrix product: result (m×n) = a (m×k) · b (k×n) + c.
struct MatrixShape {
  uint32_t m = 0, n = 0, k = 0;
  ComponentType a = {}, b = {}, c = {}, result = {};
  bool saturating = false;      ///< accumulates with saturation
  bool subgroup_scope = false;  ///< shared by a subgroup; otherwise another scope

  bool operator==(const MatrixShape&) const = default;
};

/// NV cooperative matrix 2, flexible dimensions: matrices of any multiple of the granularities.
struct FlexibleMatrixShape {
  uint32_t m_granularity = 0, n_granularity = 0, k_granularity = 0;
  ComponentType a = {}, b = {}, c = {}, result = {};
  bool saturating = false;             ///< accumulates with saturation
  bool workgroup_scope = false;        ///< shared by a workgroup; otherwise another scope
  uint32_t workgroup_invocations = 0;  ///< the workgroup must have exactly so many; 0: any

  bool operator==(const FlexibleMatrixShape&) const = default;
};

/// Limits of NV cooperative matrix 2; zero without the extension.
struct Matrix2Facts {
  uint32_t max_workgroup_size = 0;     ///< invocations that may share a matrix
  uint32_t max_dimension = 0;          ///< rows or columns of a matrix of flexible dimensions
  uint32_t reserved_shared_bytes = 0;  ///< taken from a workgroup's shared memory

  bool operator==(const Matrix2Facts&) const = default;
};

struct MemoryHeap {
  uint64_t size_bytes = 0;    ///< size of the heap
  bool device_local = false;  ///< memory of the device
  uint64_t budget_bytes = 0;  ///< what this process may use, its present use included; 0: unknown
  uint64_t usage_bytes = 0;   ///< what this process uses now

  bool operator==(const MemoryHeap&) const = default;
};

struct MemoryType {
  uint32_t heap = 0;           ///< index into `heaps`
  uint32_t property_bits = 0;  ///< VkMemoryPropertyFlags

  bool operator==(const MemoryType&) const = default;
};

struct QueueFamily {
  uint32_t queue_bits = 0;            ///< VkQueueFlags
  uint32_t queue_count = 0;           ///< queues of the family
  uint32_t timestamp_valid_bits = 0;  ///< 0: no timestamps

  bool operator==(const QueueFamily&) const = default;
};

struct DeviceSnapshot {
  std::string name;        ///< marketing name
  uint32_t vendor_id = 0;  ///< PCI or Khronos vendor; only quirks read it
  uint32_t device_id = 0;  ///< vendor's product number
  DeviceType type = DeviceType::kOther;
  Uuid device_uuid = {};                    ///< the same device in every process and API
  Uuid driver_uuid = {};                    ///< the same driver build
  uint32_t driver_id = 0;                   ///< VkDriverId; 0: unknown
  std::string driver_name;                  ///< e.g. "llvmpipe"
  std::string driver_info;                  ///< free text, usually a version
  uint32_t driver_version = 0;              ///< in the vendor's own encoding
  uint32_t api_version = 0;                 ///< VK_MAKE_API_VERSION encoding
  std::array<uint8_t, 4> conformance = {};  ///< conformance test version passed

  DeviceLimits limits;
  SubgroupFacts subgroup;
  IntegerDotFacts integer_dot;
  DeviceFeatures features;
  std::vector<MatrixShape> matrix_shapes;  ///< KHR cooperative matrix; empty without the extension
  Matrix2Facts matrix2;
  std::vector<FlexibleMatrixShape> flexible_matrix_shapes;  ///< empty without the feature
  std::vector<MemoryHeap> heaps;
  std::vector<MemoryType> memory_types;  ///< in the driver's order, which is a preference
  std::vector<QueueFamily> queue_families;
  std::vector<std::string> extensions;  ///< device extensions, sorted

  bool operator==(const DeviceSnapshot&) const = default;
  bool has_extension(std::string_view extension) const;
};

/// "1.3.239" of a VK_MAKE_API_VERSION value.
std::string format_api_version(uint32_t version);

/// Asks one physical device. Later features of a device below Vulkan 1.3 are left at their
/// defaults. Errors: kInternal if an enumeration fails. Any thread.
Result<DeviceSnapshot> take_snapshot(const InstanceFunctions& functions, VkPhysicalDevice device);

}  // namespace pumice::vk
