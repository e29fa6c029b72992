// A JSON Schema as text: its tree, and where its references point.
#pragma once

#include <cstddef>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "base/result.hpp"

namespace pumice::schema {

using Json = nlohmann::ordered_json;

/// Tools' schemas are kilobytes, the largest published ones a few hundred.
constexpr size_t kMaxSchemaBytes = size_t{4} << 20;

class SchemaDocument {
 public:
  /// Errors (kInvalidArgument): what `read_ordered_json` refuses, and text over kMaxSchemaBytes.
  static Result<SchemaDocument> read(std::string_view text);

  const Json& root() const { return *root_; }
  /// Whether what stands beside a `$ref` says nothing: so in drafts up to 7, where `$schema` names one. What drafts say
  /// differently beyond that (`items` as a list, boolean exclusive bounds) is told apart by the values' types.
  bool references_stand_alone() const;
  /// The schema that `$ref`, a member of `holder`, points to: a JSON pointer from the root, an anchor, or
  /// an `$id` as it is written. Errors (kInvalidArgument): anything else, with the place.
  Result<const Json*> target(const Json& holder) const;
  /// JSON pointer ("#/properties/a") of a node of the tree.
  std::string place(const Json& node) const;

 private:
  void index(const Json& node, bool is_root, bool in_resource);

  std::unique_ptr<Json> root_;                            // nodes are known by their addresses
  std::unordered_map<std::string, const Json*> anchors_;  // "#name" and identifiers as written
  std::unordered_set<const Json*>
      elsewhere_;  // holders of a $ref that an inner $id gives another base
};

}  // namespace pumice::schema
