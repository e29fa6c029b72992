#include "vk/snapshot_json.hpp"

#include <nlohmann/json.hpp>

#include "vk/snapshot_fields.hpp"

namespace pumice::vk {
namespace {

using nlohmann::json;

// UUIDs and versions are text.
std::string text_of(const Uuid& uuid) { return format_uuid(uuid); }
std::string text_of(const std::array<uint8_t, 4>& version) {
  return fmt::format("{}.{}.{}.{}", version[0], version[1], version[2], version[3]);
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

}  // namespace

nlohmann::json snapshot_to_json(const DeviceSnapshot& snapshot) {
  Writer writer;
  visit_snapshot(writer, snapshot);
  return std::move(writer).take();
}

}  // namespace pumice::vk
