#include "tests/vk/snapshot_reader.hpp"

#include <algorithm>
#include <charconv>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <type_traits>

#include "vk/snapshot_fields.hpp"

namespace pumice::test {
namespace {

using namespace vk;
using nlohmann::json;

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

Result<DeviceSnapshot> snapshot_from_json(const nlohmann::json& json) {
  DeviceSnapshot snapshot;
  SnapshotReader reader(json, "");
  for (const char* note : {"source", "license", "absent"}) reader.ignore(note);
  visit_snapshot(reader, snapshot);
  if (auto error = reader.finish()) return *error;
  std::sort(snapshot.extensions.begin(), snapshot.extensions.end());
  return snapshot;
}

}  // namespace pumice::test
