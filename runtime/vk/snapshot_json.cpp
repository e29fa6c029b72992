#include "vk/snapshot_json.hpp"

#include <algorithm>
#include <charconv>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <type_traits>

namespace pumice::vk {
namespace {

using nlohmann::json;

// Each structure's fields are listed once, and the list is walked by a writer and by a reader.
template <typename Visit, typename Limits>
void visit_limits(Visit& visit, Limits& limits) {
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
}

template <typename Visit, typename Subgroup>
void visit_subgroup(Visit& visit, Subgroup& subgroup) {
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
}

template <typename Visit, typename IntegerDot>
void visit_integer_dot(Visit& visit, IntegerDot& dot) {
  visit("integerDotProduct4x8BitPackedSignedAccelerated", dot.packed_signed_accelerated);
  visit("integerDotProduct4x8BitPackedUnsignedAccelerated", dot.packed_unsigned_accelerated);
  visit("integerDotProduct4x8BitPackedMixedSignednessAccelerated", dot.packed_mixed_accelerated);
}

template <typename Visit, typename Features>
void visit_features(Visit& visit, Features& features) {
  for (const FeatureName& feature : feature_names()) {
    visit(feature.name, features.*feature.member);
  }
}

template <typename Visit, typename Shape>
void visit_shape(Visit& visit, Shape& shape) {
  visit("MSize", shape.m);
  visit("NSize", shape.n);
  visit("KSize", shape.k);
  visit("AType", shape.a);
  visit("BType", shape.b);
  visit("CType", shape.c);
  visit("ResultType", shape.result);
  visit("saturatingAccumulation", shape.saturating);
  visit("subgroupScope", shape.subgroup_scope);
}

template <typename Visit, typename Shape>
void visit_flexible_shape(Visit& visit, Shape& shape) {
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
}

template <typename Visit, typename Matrix2>
void visit_matrix2(Visit& visit, Matrix2& matrix2) {
  visit("cooperativeMatrixWorkgroupScopeMaxWorkgroupSize", matrix2.max_workgroup_size);
  visit("cooperativeMatrixFlexibleDimensionsMaxDimension", matrix2.max_dimension);
  visit("cooperativeMatrixWorkgroupScopeReservedSharedMemory", matrix2.reserved_shared_bytes);
}

template <typename Visit, typename Heap>
void visit_heap(Visit& visit, Heap& heap) {
  visit("size", heap.size_bytes);
  visit("deviceLocal", heap.device_local);
  visit("budget", heap.budget_bytes);
  visit("usage", heap.usage_bytes);
}

template <typename Visit, typename Type>
void visit_memory_type(Visit& visit, Type& type) {
  visit("heapIndex", type.heap);
  visit("propertyFlags", type.property_bits);
}

template <typename Visit, typename Family>
void visit_queue_family(Visit& visit, Family& family) {
  visit("queueFlags", family.queue_bits);
  visit("queueCount", family.queue_count);
  visit("timestampValidBits", family.timestamp_valid_bits);
}

// UUIDs and versions are text.
std::string text_of(const Uuid& uuid) { return format_uuid(uuid); }
std::string text_of(const std::array<uint8_t, 4>& version) {
  return fmt::format("{}.{}.{}.{}", version[0], version[1], version[2], version[3]);
}

struct ApiVersion {
  uint32_t* value;
};
struct ConstApiVersion {
  const uint32_t* value;
};
ApiVersion api_version_field(uint32_t& version) { return {&version}; }
ConstApiVersion api_version_field(const uint32_t& version) { return {&version}; }

// The lists of a snapshot are nested objects: visit.object and visit.list take the walk of one.
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
  visit.object("limits", snapshot.limits, [](auto& v, auto& x) { visit_limits(v, x); });
  visit.object("subgroup", snapshot.subgroup, [](auto& v, auto& x) { visit_subgroup(v, x); });
  visit.object("integerDotProduct", snapshot.integer_dot,
               [](auto& v, auto& x) { visit_integer_dot(v, x); });
  visit.object("features", snapshot.features, [](auto& v, auto& x) { visit_features(v, x); });
  visit.list("cooperativeMatrices", snapshot.matrix_shapes,
             [](auto& v, auto& x) { visit_shape(v, x); });
  visit.object("cooperativeMatrix2", snapshot.matrix2,
               [](auto& v, auto& x) { visit_matrix2(v, x); });
  visit.list("flexibleCooperativeMatrices", snapshot.flexible_matrix_shapes,
             [](auto& v, auto& x) { visit_flexible_shape(v, x); });
  visit.list("memoryHeaps", snapshot.heaps, [](auto& v, auto& x) { visit_heap(v, x); });
  visit.list("memoryTypes", snapshot.memory_types,
             [](auto& v, auto& x) { visit_memory_type(v, x); });
  visit.list("queueFamilies", snapshot.queue_families,
             [](auto& v, auto& x) { visit_queue_family(v, x); });
  visit("extensions", snapshot.extensions);
}

class Writer {
 public:
  template <typename T>
  void operator()(std::string_view name, const T& value) {
    json_[std::string(name)] = value;
  }
  void operator()(std::string_view name, const DeviceType& value) {
    json_[std::string(name)] = device_type_name(value);
  }
  void operator()(std::string_view name, const ComponentType& value) {
    json_[std::string(name)] = component_type_name(value);
  }
  void operator()(std::string_view name, const Uuid& value) {
    json_[std::string(name)] = text_of(value);
  }
  void operator()(std::string_view name, const std::array<uint8_t, 4>& value) {
    json_[std::string(name)] = text_of(value);
  }
  void operator()(std::string_view name, const ConstApiVersion& version) {
    json_[std::string(name)] = format_api_version(*version.value);
  }
  template <typename T, typename Walk>
  void object(const char* name, const T& value, const Walk& walk) {
    Writer writer;
    walk(writer, value);
    json_[name] = std::move(writer).take();
  }
  template <typename T, typename Walk>
  void list(const char* name, const std::vector<T>& values, const Walk& walk) {
    json array = json::array();
    for (const T& value : values) {
      Writer writer;
      walk(writer, value);
      array.push_back(std::move(writer).take());
    }
    json_[name] = std::move(array);
  }
  json take() && { return std::move(json_); }

 private:
  json json_ = json::object();
};

// Parts separated by dots, each at most `limit`; nothing unless there are exactly as many as asked.
template <size_t N>
std::optional<std::array<uint32_t, N>> parse_version(const std::string& text, uint32_t limit) {
  std::array<uint32_t, N> parts = {};
  const char* at = text.data();
  const char* const end = at + text.size();
  for (size_t i = 0; i < N; ++i) {
    if (i != 0 && (at == end || *at++ != '.')) return std::nullopt;
    const auto [next, error] = std::from_chars(at, end, parts[i]);
    if (error != std::errc{} || parts[i] > limit) return std::nullopt;
    at = next;
  }
  if (at != end) return std::nullopt;
  return parts;
}

// Remembers the first error and from then on changes nothing.
class SnapshotReader {
 public:
  SnapshotReader(const json& object, std::string path) : json_(object), path_(std::move(path)) {
    if (!json_.is_object()) fail("", "must be an object");
  }

  void operator()(std::string_view name, bool& value) {
    if (const json* field = find(name)) {
      field->is_boolean() ? void(value = field->get<bool>()) : fail(name, "must be true or false");
    }
  }
  template <typename T>
  requires std::is_unsigned_v<T>
  void operator()(std::string_view name, T& value) {
    if (const json* field = find(name)) number(name, *field, value);
  }
  void operator()(std::string_view name, float& value) {
    if (const json* field = find(name)) {
      field->is_number() ? void(value = field->get<float>()) : fail(name, "must be a number");
    }
  }
  void operator()(std::string_view name, std::array<uint32_t, 3>& value) {
    const json* field = find(name);
    if (field == nullptr) return;
    if (!field->is_array() || field->size() != 3) return fail(name, "must be three numbers");
    for (size_t i = 0; i < 3; ++i) number(name, (*field)[i], value[i]);
  }
  void operator()(std::string_view name, std::string& value) {
    if (const auto text = string(name)) value = *text;
  }
  void operator()(std::string_view name, std::vector<std::string>& values) {
    const json* field = find(name);
    if (field == nullptr) return;
    if (!field->is_array()) return fail(name, "must be a list of strings");
    for (const json& element : *field) {
      if (!element.is_string()) return fail(name, "must be a list of strings");
      values.push_back(element.get<std::string>());
    }
  }
  void operator()(std::string_view name, DeviceType& value) {
    const auto text = string(name);
    if (!text) return;
    for (const DeviceType type : {DeviceType::kOther, DeviceType::kIntegrated,
                                  DeviceType::kDiscrete, DeviceType::kVirtual, DeviceType::kCpu}) {
      if (device_type_name(type) == *text) {
        value = type;
        return;
      }
    }
    fail(name, "must be discrete, integrated, virtual, cpu or other");
  }
  void operator()(std::string_view name, ComponentType& value) {
    const auto text = string(name);
    if (!text) return;
    uint32_t number = 0;  // a type without a name here is written as its number
    const char* end = text->data() + text->size();
    const auto [at, error] = std::from_chars(text->data(), end, number);
    if (error == std::errc{} && at == end) {
      value = static_cast<ComponentType>(number);
      return;
    }
    for (uint32_t i = 0; i <= static_cast<uint32_t>(ComponentType::kU64); ++i) {
      if (component_type_name(static_cast<ComponentType>(i)) == *text) {
        value = static_cast<ComponentType>(i);
        return;
      }
    }
    if (*text == component_type_name(ComponentType::kBf16)) {
      value = ComponentType::kBf16;
      return;
    }
    fail(name, "must be a component type such as f16");
  }
  void operator()(std::string_view name, Uuid& value) {
    const auto text = string(name);
    if (!text) return;
    std::string digits = *text;
    std::erase(digits, '-');
    if (digits.size() != 2 * value.size()) return fail(name, "must be 32 hexadecimal digits");
    for (size_t i = 0; i < value.size(); ++i) {
      const char* begin = digits.data() + 2 * i;
      const auto [at, error] = std::from_chars(begin, begin + 2, value[i], 16);
      if (error != std::errc{} || at != begin + 2) {
        return fail(name, "must be 32 hexadecimal digits");
      }
    }
  }
  void operator()(std::string_view name, std::array<uint8_t, 4>& value) {
    const auto text = string(name);
    if (!text) return;
    const auto parts = parse_version<4>(*text, 255);
    if (!parts) return fail(name, "must be a version such as 1.3.1.1");
    for (size_t i = 0; i < 4; ++i) value[i] = static_cast<uint8_t>((*parts)[i]);
  }
  void operator()(std::string_view name, const ApiVersion& version) {
    const auto text = string(name);
    if (!text) return;
    const auto parts = parse_version<3>(*text, 4095);
    if (!parts || (*parts)[0] > 127 || (*parts)[1] > 1023) {
      return fail(name, "must be a version such as 1.3.239");
    }
    *version.value = VK_MAKE_API_VERSION(0, (*parts)[0], (*parts)[1], (*parts)[2]);
  }
  template <typename T, typename Walk>
  void object(const char* name, T& value, const Walk& walk) {
    if (const json* field = find(name)) nested(path_ + name, *field, value, walk);
  }
  template <typename T, typename Walk>
  void list(const char* name, std::vector<T>& values, const Walk& walk) {
    const json* field = find(name);
    if (field == nullptr) return;
    if (!field->is_array()) return fail(name, "must be a list of objects");
    for (size_t i = 0; i < field->size() && !error_; ++i) {
      nested(fmt::format("{}{}[{}]", path_, name, i), (*field)[i], values.emplace_back(), walk);
    }
  }
  void ignore(const char* name) { known_.insert(name); }

  std::optional<Error> finish() {
    if (error_) return error_;
    for (const auto& [key, value] : json_.items()) {
      if (!known_.contains(key)) {
        fail(key, "is not a field of a snapshot");
        break;
      }
    }
    return error_;
  }

 private:
  const json* find(std::string_view name) {
    if (error_) return nullptr;
    known_.insert(std::string(name));
    const auto field = json_.find(std::string(name));
    return field == json_.end() ? nullptr : &*field;
  }
  const std::string* string(std::string_view name) {
    const json* field = find(name);
    if (field == nullptr) return nullptr;
    if (!field->is_string()) {
      fail(name, "must be a string");
      return nullptr;
    }
    return field->get_ptr<const std::string*>();
  }
  template <typename T>
  void number(std::string_view name, const json& field, T& value) {
    if (!field.is_number_unsigned() || field.get<uint64_t>() > std::numeric_limits<T>::max()) {
      return fail(name,
                  fmt::format("must be an integer from 0 to {}", std::numeric_limits<T>::max()));
    }
    value = field.get<T>();
  }
  template <typename T, typename Walk>
  void nested(const std::string& path, const json& field, T& value, const Walk& walk) {
    SnapshotReader reader(field, path + ".");
    walk(reader, value);
    if (!error_) error_ = reader.finish();
  }
  void fail(std::string_view name, std::string_view what) {
    if (!error_) {
      error_ = make_error(ErrorCode::kBadFile, "snapshot field {}{} {}", path_, name, what);
    }
  }

  const json& json_;
  std::string path_;
  std::set<std::string, std::less<>> known_;
  std::optional<Error> error_;
};

}  // namespace

nlohmann::json snapshot_to_json(const DeviceSnapshot& snapshot) {
  Writer writer;
  visit_snapshot(writer, snapshot);
  return std::move(writer).take();
}

Result<DeviceSnapshot> snapshot_from_json(const nlohmann::json& json) {
  DeviceSnapshot snapshot;
  SnapshotReader reader(json, "");
  for (const char* note : {"source", "license", "absent"}) reader.ignore(note);
  visit_snapshot(reader, snapshot);
  if (auto error = reader.finish()) return *error;
  std::sort(snapshot.extensions.begin(), snapshot.extensions.end());
  return snapshot;
}

}  // namespace pumice::vk
