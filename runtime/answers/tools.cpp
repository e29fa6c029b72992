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

/// What a reference such as "#/$defs/place" means; null: nothing here.
const Json* target_of(const Json& root, std::string_view reference) {
  if (!reference.starts_with('#')) return nullptr;
  reference.remove_prefix(1);
  const Json* at = &root;
  while (!reference.empty()) {
    if (reference.front() != '/') return nullptr;
    const size_t end = std::min(reference.find('/', 1), reference.size());
    std::string name;
    for (size_t i = 1; i < end; ++i) {
      const bool is_escape = reference[i] == '~' && i + 1 < end;
      name += !is_escape ? reference[i] : reference[++i] == '1' ? '/' : '~';
    }
    const auto member = at->is_object() ? at->find(name) : at->end();
    if (member == at->end()) return nullptr;
    at = &*member;
    reference.remove_prefix(end);
  }
  return at;
}

/// What values a schema has, as far as it says so at once. Everything that it says holds. `n_left`: schemas that are looked
/// at, as references may be rings.
ParameterTypes types_of_schema(const Json& root, const Json& schema, int& n_left) {
  if (!schema.is_object() || n_left == 0) return 0;
  --n_left;
  ParameterTypes types = 0;
  const auto add = [&](ParameterTypes more) {
    if (more != 0) types = types == 0 ? more : types & more;
  };
  if (const auto type = schema.find("type"); type != schema.end()) {
    ParameterTypes named = 0;
    if (!type->is_array()) named = type_named(*type);
    for (const Json& one : type->is_array() ? *type : Json::array()) named |= type_named(one);
    add(named);
  }
  if (const auto one = schema.find("const"); one != schema.end()) add(type_of(*one));
  if (const auto all = schema.find("enum"); all != schema.end() && all->is_array()) {
    ParameterTypes listed = 0;
    for (const Json& one : *all) listed |= type_of(one);
    add(listed);
  }
  if (const auto reference = schema.find("$ref");
      reference != schema.end() && reference->is_string()) {
    const Json* const target = target_of(root, reference->get_ref<const std::string&>());
    if (target != nullptr) add(types_of_schema(root, *target, n_left));
  }
  for (const char* const name : {"anyOf", "oneOf", "allOf"}) {
    const auto several = schema.find(name);
    if (several == schema.end() || !several->is_array()) continue;
    ParameterTypes either = 0;
    bool is_known = true;
    for (const Json& one : *several) {
      const ParameterTypes its = types_of_schema(root, one, n_left);
      if (name == std::string_view("allOf")) add(its);
      either |= its;
      is_known = is_known && its != 0;
    }
    if (is_known && name != std::string_view("allOf")) add(either);
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
  if (property == properties->end()) return 0;
  int n_left = 100;
  return types_of_schema(parameters, *property, n_left);
}

}  // namespace pumice
