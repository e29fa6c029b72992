// The fields of a DeviceSnapshot as JSON has them: listed once, and the list is walked by the writer
// and by the reader of recorded devices in tests. A walk calls visit(name, field) for what is a value,
// visit.object(name, field, walk) for a structure and visit.list(name, fields, walk) for a list of them.
#pragma once

#include "vk/snapshot.hpp"

namespace pumice::vk {

inline constexpr auto visit_limits = [](auto& visit, auto& limits) {
  visit("maxComputeWorkGroupInvocations", limits.max_workgroup_invocations);
  visit("maxComputeWorkGroupSize", limits.max_workgroup_size);
  visit("maxComputeWorkGroupCount", limits.max_workgroup_count);
  visit("maxComputeSharedMemorySize", limits.max_shared_bytes);
  visit("maxPushConstantsSize", limits.max_push_constant_bytes);
  visit("maxStorageBufferRange", limits.max_storage_buffer_range_bytes);
  visit("maxMemoryAllocationSize", limits.max_allocation_bytes);
  visit("maxBufferSize", limits.max_buffer_bytes);
  visit("maxMemoryAllocationCount", limits.max_allocation_count);
  visit("nonCoherentAtomSize", limits.non_coherent_atom_bytes);
  visit("minStorageBufferOffsetAlignment", limits.min_storage_buffer_offset_bytes);
  visit("minMemoryMapAlignment", limits.min_map_alignment_bytes);
  visit("bufferImageGranularity", limits.buffer_image_granularity_bytes);
  visit("timestampPeriod", limits.timestamp_period_ns);
  visit("timestampComputeAndGraphics", limits.timestamps_on_all_queues);
};

inline constexpr auto visit_subgroup = [](auto& visit, auto& subgroup) {
  visit("subgroupSize", subgroup.default_size);
  visit("minSubgroupSize", subgroup.min_size);
  visit("maxSubgroupSize", subgroup.max_size);
  visit("maxComputeWorkgroupSubgroups", subgroup.max_workgroup_subgroups);
  visit("computeRequiredSize", subgroup.compute_size_control);
  visit("computeOperations", subgroup.compute_operations);
  visit("basic", subgroup.basic);
  visit("vote", subgroup.vote);
  visit("arithmetic", subgroup.arithmetic);
  visit("ballot", subgroup.ballot);
  visit("shuffle", subgroup.shuffle);
  visit("shuffleRelative", subgroup.shuffle_relative);
  visit("clustered", subgroup.clustered);
  visit("quad", subgroup.quad);
};

inline constexpr auto visit_integer_dot = [](auto& visit, auto& dot) {
  visit("integerDotProduct4x8BitPackedSignedAccelerated", dot.packed_signed_accelerated);
  visit("integerDotProduct4x8BitPackedUnsignedAccelerated", dot.packed_unsigned_accelerated);
  visit("integerDotProduct4x8BitPackedMixedSignednessAccelerated", dot.packed_mixed_accelerated);
};

inline constexpr auto visit_features = [](auto& visit, auto& features) {
  for (const FeatureName& feature : feature_names()) {
    visit(feature.name, features.*feature.member);
  }
};

inline constexpr auto visit_shape = [](auto& visit, auto& shape) {
  visit("MSize", shape.m);
  visit("NSize", shape.n);
  visit("KSize", shape.k);
  visit("AType", shape.a);
  visit("BType", shape.b);
  visit("CType", shape.c);
  visit("ResultType", shape.result);
  visit("saturatingAccumulation", shape.saturating);
  visit("subgroupScope", shape.subgroup_scope);
};

inline constexpr auto visit_flexible_shape = [](auto& visit, auto& shape) {
  visit("MGranularity", shape.m_granularity);
  visit("NGranularity", shape.n_granularity);
  visit("KGranularity", shape.k_granularity);
  visit("AType", shape.a);
  visit("BType", shape.b);
  visit("CType", shape.c);
  visit("ResultType", shape.result);
  visit("saturatingAccumulation", shape.saturating);
  visit("workgroupScope", shape.workgroup_scope);
  visit("workgroupInvocations", shape.workgroup_invocations);
};

inline constexpr auto visit_matrix2 = [](auto& visit, auto& matrix2) {
  visit("cooperativeMatrixWorkgroupScopeMaxWorkgroupSize", matrix2.max_workgroup_size);
  visit("cooperativeMatrixFlexibleDimensionsMaxDimension", matrix2.max_dimension);
  visit("cooperativeMatrixWorkgroupScopeReservedSharedMemory", matrix2.reserved_shared_bytes);
};

inline constexpr auto visit_heap = [](auto& visit, auto& heap) {
  visit("size", heap.size_bytes);
  visit("deviceLocal", heap.device_local);
  visit("budget", heap.budget_bytes);
  visit("usage", heap.usage_bytes);
};

inline constexpr auto visit_memory_type = [](auto& visit, auto& type) {
  visit("heapIndex", type.heap);
  visit("propertyFlags", type.property_bits);
};

inline constexpr auto visit_queue_family = [](auto& visit, auto& family) {
  visit("queueFlags", family.queue_bits);
  visit("queueCount", family.queue_count);
  visit("timestampValidBits", family.timestamp_valid_bits);
};

struct ApiVersion {
  uint32_t* value;
};
struct ConstApiVersion {
  const uint32_t* value;
};
inline ApiVersion api_version_field(uint32_t& version) { return {&version}; }
inline ConstApiVersion api_version_field(const uint32_t& version) { return {&version}; }

template <typename Visit, typename Snapshot>
void visit_snapshot(Visit& visit, Snapshot& snapshot) {
  visit("deviceName", snapshot.name);
  visit("vendorID", snapshot.vendor_id);
  visit("deviceID", snapshot.device_id);
  visit("deviceType", snapshot.type);
  visit("deviceUUID", snapshot.device_uuid);
  visit("driverUUID", snapshot.driver_uuid);
  visit("driverID", snapshot.driver_id);
  visit("driverName", snapshot.driver_name);
  visit("driverInfo", snapshot.driver_info);
  visit("driverVersion", snapshot.driver_version);
  visit("apiVersion", api_version_field(snapshot.api_version));
  visit("conformanceVersion", snapshot.conformance);
  visit.object("limits", snapshot.limits, visit_limits);
  visit.object("subgroup", snapshot.subgroup, visit_subgroup);
  visit.object("integerDotProduct", snapshot.integer_dot, visit_integer_dot);
  visit.object("features", snapshot.features, visit_features);
  visit.list("cooperativeMatrices", snapshot.matrix_shapes, visit_shape);
  visit.object("cooperativeMatrix2", snapshot.matrix2, visit_matrix2);
  visit.list("flexibleCooperativeMatrices", snapshot.flexible_matrix_shapes, visit_flexible_shape);
  visit.list("memoryHeaps", snapshot.heaps, visit_heap);
  visit.list("memoryTypes", snapshot.memory_types, visit_memory_type);
  visit.list("queueFamilies", snapshot.queue_families, visit_queue_family);
  visit("extensions", snapshot.extensions);
}

}  // namespace pumice::vk
