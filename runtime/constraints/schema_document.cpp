#include "constraints/schema_document.hpp"

#include <charconv>
#include <utility>

#include "base/json.hpp"
#include "base/printable.hpp"

namespace pumice::schema {
namespace {

/// A reference token of a JSON pointer in a URI fragment: %XX, then ~1 and ~0.
std::string unescaped(std::string_view token) {
  std::string bytes;
  for (size_t i = 0; i < token.size(); ++i) {
    unsigned value = 0;
    const char* const digits = token.data() + i + 1;
    if (token[i] == '%' && i + 2 < token.size() &&
        std::from_chars(digits, digits + 2, value, 16).ptr == digits + 2) {
      bytes += static_cast<char>(value);
      i += 2;
    } else {
      bytes += token[i];
    }
  }
  std::string name;
  for (size_t i = 0; i < bytes.size(); ++i) {
    const bool escape =
        bytes[i] == '~' && i + 1 < bytes.size() && (bytes[i + 1] == '0' || bytes[i + 1] == '1');
    name += escape ? (bytes[++i] == '0' ? '~' : '/') : bytes[i];
  }
  return name;
}

const Json* child(const Json& node, const std::string& name) {
  if (node.is_object()) {
    const auto found = node.find(name);
    return found == node.end() ? nullptr : &*found;
  }
  size_t at = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), at);
  const bool is_index = error == std::errc{} && end == name.data() + name.size();
  return node.is_array() && is_index && at < node.size() ? &node[at] : nullptr;
}

bool append_place(const Json& node, const Json& wanted, std::string& path) {
  if (&node == &wanted) return true;
  const size_t length = path.size();
  const auto found_below = [&](std::string_view token, const Json& below) {
    path += '/';
    for (const char c : token) path += c == '~' ? "~0" : c == '/' ? "~1" : std::string(1, c);
    if (append_place(below, wanted, path)) return true;
    path.resize(length);
    return false;
  };
  if (node.is_object()) {
    for (const auto& [name, below] : node.items()) {
      if (found_below(name, below)) return true;
    }
  } else if (node.is_array()) {
    for (size_t i = 0; i < node.size(); ++i) {
      if (found_below(std::to_string(i), node[i])) return true;
    }
  }
  return false;
}

bool holds_values(const std::string& keyword) {
  return keyword == "enum" || keyword == "const" || keyword == "default" || keyword == "examples";
}

}  // namespace

Result<SchemaDocument> SchemaDocument::read(std::string_view text) {
  Result<Json> root = read_ordered_json(text, kMaxSchemaBytes);
  if (!root)
    return make_error(ErrorCode::kInvalidArgument, "JSON Schema: {}", root.error().message);
  SchemaDocument document;
  document.root_ = std::make_unique<Json>(std::move(root).value());
  document.index(*document.root_, /*is_root=*/true, /*in_resource=*/false);
  return document;
}

void SchemaDocument::index(const Json& node, bool is_root, bool in_resource) {
  if (node.is_array()) {
    for (const Json& below : node) index(below, false, in_resource);
    return;
  }
  if (!node.is_object()) return;
  for (const char* const keyword : {"$anchor", "$dynamicAnchor", "$id", "id"}) {
    const auto found = node.find(keyword);
    if (found == node.end() || !found->is_string()) continue;
    const auto& name = found->get_ref<const std::string&>();
    const bool is_anchor =
        keyword == std::string_view("$anchor") || keyword == std::string_view("$dynamicAnchor");
    anchors_.emplace(is_anchor ? "#" + name : name, &node);
    // Draft 4's `id` is also a common name of a property, and is nowhere seen to change a base.
    if (keyword == std::string_view("$id") && !is_root && !name.starts_with('#'))
      in_resource = true;
  }
  if (in_resource && node.contains("$ref")) elsewhere_.insert(&node);
  for (const auto& [name, below] : node.items()) {
    if (!holds_values(name)) index(below, false, in_resource);
  }
}

bool SchemaDocument::references_stand_alone() const {
  const Json* const draft = root_->is_object() ? child(*root_, "$schema") : nullptr;
  if (draft == nullptr || !draft->is_string()) return false;
  const auto& name = draft->get_ref<const std::string&>();
  return name.find("draft-0") != name.npos;
}

Result<const Json*> SchemaDocument::target(const Json& holder) const {
  const Json& reference = holder.at("$ref");
  const auto fail = [&](const char* why) {
    return make_error(ErrorCode::kInvalidArgument, "{}: {}", place(reference), why);
  };
  if (!reference.is_string()) return fail("$ref is not a string");
  std::string text = reference.get<std::string>();
  const auto id = root_->find("$id");
  if (root_->is_object() && id != root_->end() && id->is_string()) {
    const auto& base = id->get_ref<const std::string&>();
    if (!base.empty() && text.starts_with(base + "#")) text.erase(0, base.size());
  }
  if (text.starts_with('#') && elsewhere_.contains(&holder)) {
    return fail("a reference from within a schema with an $id of its own is not supported");
  }
  if (text.empty() || text == "#") return root_.get();
  if (text.starts_with("#/")) {
    const Json* node = root_.get();
    std::string_view rest = std::string_view(text).substr(1);
    while (node != nullptr && !rest.empty()) {
      rest.remove_prefix(1);
      const std::string_view token = rest.substr(0, rest.find('/'));
      rest.remove_prefix(token.size());
      node = child(*node, unescaped(token));
    }
    if (node == nullptr) return fail("there is nothing at this reference");
    return node;
  }
  const auto anchor = anchors_.find(text);
  if (anchor == anchors_.end()) return fail("only references within the schema are supported");
  return anchor->second;
}

std::string SchemaDocument::place(const Json& node) const {
  std::string path = "#";
  return append_place(*root_, node, path) ? printable(path, 300) : "#";
}

}  // namespace pumice::schema
