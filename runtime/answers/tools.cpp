#include "answers/tools.hpp"

#include <algorithm>
#include <utility>

#include "base/json.hpp"
#include "base/printable.hpp"

namespace pumice {
namespace {

using Json = nlohmann::ordered_json;

bool is_tool_name(std::string_view name) {
  const auto fits = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-' || c == '.';
  };
  return !name.empty() && name.size() <= Tools::kMaxNameBytes && std::ranges::all_of(name, fits);
}

ParameterTypes type_named(const Json& type) {
  if (type == "string") return kStringType;
  if (type == "number" || type == "integer") return kNumberType;
  if (type == "boolean") return kBooleanType;
  if (type == "null") return kNullType;
  if (type == "object") return kObjectType;
  return type == "array" ? kArrayType : 0;
}
ParameterTypes type_of(const Json& value) { return type_of_json(value.dump().front()); }

/// What values a schema has, as far as it says so at once.
ParameterTypes types_of_schema(const Json& schema) {
  if (!schema.is_object()) return 0;
  ParameterTypes types = 0;
  if (const auto type = schema.find("type"); type != schema.end()) {
    if (!type->is_array()) return type_named(*type);
    for (const Json& one : *type) types |= type_named(one);
    return types;
  }
  if (const auto one = schema.find("const"); one != schema.end()) types |= type_of(*one);
  if (const auto all = schema.find("enum"); all != schema.end() && all->is_array()) {
    for (const Json& one : *all) types |= type_of(one);
  }
  for (const char* const name : {"anyOf", "oneOf"}) {
    const auto several = schema.find(name);
    if (several == schema.end() || !several->is_array()) continue;
    for (const Json& one : *several) types |= types_of_schema(one);
  }
  return types;
}

Error bad(size_t number, std::string_view what) {
  return make_error(ErrorCode::kInvalidArgument, "tool {}: {}", number, what);
}

}  // namespace

Result<Tools> Tools::parse(std::string_view json) {
  PUMICE_TRY(const Json list, read_ordered_json(json, kMaxBytes));
  return create(list);
}

Result<Tools> Tools::create(const Json& list) {
  if (!list.is_array()) {
    return make_error(ErrorCode::kInvalidArgument, "tools are a JSON array of functions");
  }
  if (list.size() > kMaxTools) {
    return make_error(ErrorCode::kInvalidArgument, "{} tools: at most {}", list.size(), kMaxTools);
  }
  Tools tools;
  for (const Json& tool : list) {
    const size_t number = tools.names_.size() + 1;
    if (!tool.is_object()) return bad(number, "it is not a JSON object");
    const bool is_wrapped = tool.contains("function");
    if (is_wrapped && tool.value("type", Json("function")) != "function") {
      return bad(number, "its \"type\" is not \"function\"");
    }
    Json function = is_wrapped ? tool["function"] : tool;
    if (!function.is_object()) return bad(number, "its \"function\" is not a JSON object");
    if (!function.contains("name") || !function["name"].is_string()) {
      return bad(number, "it has no \"name\"");
    }
    const auto name = function["name"].get<std::string>();
    if (!is_tool_name(name)) {
      return bad(number, fmt::format("its name '{}' is not of letters, digits, '_', '-' and '.' "
                                     "only, {} at most",
                                     printable(name, 60), kMaxNameBytes));
    }
    if (tools.contains(name)) return bad(number, fmt::format("a second '{}'", name));
    if (function.contains("parameters") && !function["parameters"].is_object()) {
      return bad(number, fmt::format("the \"parameters\" of '{}' are not a JSON object", name));
    }
    if (function.contains("description") && !function["description"].is_string()) {
      return bad(number, fmt::format("the \"description\" of '{}' is not a text", name));
    }
    if (!is_wrapped) function.erase("type");
    // Templates take all three for granted.
    if (!function.contains("description")) function["description"] = "";
    if (!function.contains("parameters")) {
      function["parameters"] = {{"type", "object"}, {"properties", Json::object()}};
    }
    tools.names_.push_back(name);
    tools.json_.push_back({{"type", "function"}, {"function", std::move(function)}});
  }
  return tools;
}

std::optional<size_t> Tools::find(std::string_view name) const {
  const auto found = std::ranges::find(names_, name);
  if (found == names_.end()) return std::nullopt;
  return static_cast<size_t>(found - names_.begin());
}

ParameterTypes Tools::types_of(std::string_view tool, std::string_view parameter) const {
  const std::optional<size_t> index = find(tool);
  if (!index) return 0;
  const Json& parameters = json_[*index]["function"]["parameters"];
  const auto properties = parameters.find("properties");
  if (properties == parameters.end() || !properties->is_object()) return 0;
  const auto property = properties->find(std::string(parameter));
  return property == properties->end() ? ParameterTypes{0} : types_of_schema(*property);
}

}  // namespace pumice
