#include "tools/serve/wires/fields.hpp"

#include <fmt/core.h>

#include <cmath>

#include "base/json.hpp"

namespace pumice::serve {
namespace {

constexpr size_t kMostBytes = size_t{64} << 20;

}  // namespace

std::variant<Json, ApiError> read_body(std::string_view body) {
  Result<Json> json = read_ordered_json(body, kMostBytes);
  if (!json.ok()) {
    return ApiError{.message = fmt::format("the body is not JSON: {}", json.error().message)};
  }
  if (!json->is_object()) return ApiError{.message = "the body is not a JSON object"};
  return std::move(json).value();
}

const Json* Fields::find(std::string_view name) {
  known_.emplace(name);
  const auto it = object_.find(std::string(name));
  return it == object_.end() || it->is_null() ? nullptr : &*it;
}

void Fields::fail(std::string_view name, std::string_view what) {
  fail(bad_field(path_of(name), std::string(what)));
}

void Fields::fail(ApiError error) {
  if (!error_) error_ = std::move(error);
}

void Fields::read(std::string_view name, bool& value) {
  const Json* const json = find(name);
  if (json == nullptr) return;
  if (!json->is_boolean()) return fail(name, "must be true or false");
  value = json->get<bool>();
}

void Fields::read(std::string_view name, std::string& value) {
  const Json* const json = find(name);
  if (json == nullptr) return;
  if (!json->is_string()) return fail(name, "must be a string");
  value = json->get<std::string>();
}

std::optional<double> Fields::number(std::string_view name, double least, double most, bool whole) {
  const Json* const json = find(name);
  if (json == nullptr) return std::nullopt;
  const double value = json->is_number() ? json->get<double>() : std::nan("");
  const bool is_right = value >= least && value <= most && (!whole || value == std::floor(value));
  if (is_right) return value;
  fail(name,
       fmt::format("must be a {} from {} to {}", whole ? "whole number" : "number", least, most));
  return std::nullopt;
}

void Fields::read(std::string_view name, double& value, double least, double most) {
  value = number(name, least, most, false).value_or(value);
}

void Fields::read(std::string_view name, float& value, double least, double most) {
  if (const auto read = number(name, least, most, false)) value = static_cast<float>(*read);
}

void Fields::read(std::string_view name, int64_t& value, int64_t least, int64_t most) {
  const Json* const json = find(name);
  if (json == nullptr) return;
  // Beyond 2^53 a double would not be exact.
  const bool in_range = json->is_number_unsigned()
                            ? json->get<uint64_t>() <= static_cast<uint64_t>(most)
                            : json->is_number_integer() && json->get<int64_t>() >= least &&
                                  json->get<int64_t>() <= most;
  if (in_range && (!json->is_number_unsigned() || least <= 0 || json->get<int64_t>() >= least)) {
    value = json->get<int64_t>();
  } else {
    fail(name, fmt::format("must be a whole number from {} to {}", least, most));
  }
}

void Fields::read(std::string_view name, uint32_t& value, uint32_t least, uint32_t most) {
  if (const auto read = number(name, least, most, true)) value = static_cast<uint32_t>(*read);
}

void Fields::read(std::string_view name, std::vector<std::string>& value) {
  const Json* const json = find(name);
  if (json == nullptr) return;
  std::vector<std::string> all;
  if (json->is_string()) {
    all.push_back(json->get<std::string>());
  } else {
    if (!json->is_array()) return fail(name, "must be a string or an array of strings");
    for (const Json& one : *json) {
      if (!one.is_string()) return fail(name, "must be a string or an array of strings");
      all.push_back(one.get<std::string>());
    }
  }
  value = std::move(all);
}

void Fields::ignore(std::initializer_list<std::string_view> names) {
  for (const std::string_view name : names) known_.emplace(name);
}

void Fields::refuse(std::string_view name, std::string_view why, const Json& harmless) {
  const Json* const json = find(name);
  if (json == nullptr || *json == false || *json == harmless) return;
  if ((json->is_array() || json->is_object()) && json->empty()) return;
  fail(name, why);
}

std::vector<std::string> Fields::unknown() const {
  std::vector<std::string> names;
  for (const auto& [name, value] : object_.items()) {
    if (!known_.contains(name)) names.push_back(name);
  }
  return names;
}

bool check_object(const Json& json, const std::string& path, Fields& errors) {
  if (!json.is_object()) errors.fail(bad_field(path, "must be an object"));
  return json.is_object();
}

std::string dumped(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string sse(const Json& json) { return fmt::format("data: {}\n\n", dumped(json)); }

std::string sse(std::string_view event, const Json& json) {
  return fmt::format("event: {}\ndata: {}\n\n", event, dumped(json));
}

}  // namespace pumice::serve
