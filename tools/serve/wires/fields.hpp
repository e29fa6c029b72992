// The fields of a request's JSON: read by name and type, the first thing that is wrong kept.
#pragma once

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "tools/serve/service/api_error.hpp"

namespace pumice::serve {

using Json = nlohmann::ordered_json;

/// What a body holds. Errors: it is no JSON object.
std::variant<Json, ApiError> read_body(std::string_view body);

/// The object must outlive it. A field that is null counts as absent. Readers leave the value alone
/// where the field is absent or wrong.
class Fields {
 public:
  /// `path` stands before names in messages: "messages[2].".
  explicit Fields(const Json& object, std::string path = "")
      : object_(object), path_(std::move(path)) {}

  /// Null: absent.
  const Json* find(std::string_view name);
  bool has(std::string_view name) { return find(name) != nullptr; }

  void read(std::string_view name, bool& value);
  void read(std::string_view name, std::string& value);
  void read(std::string_view name, float& value, double least, double most);
  void read(std::string_view name, double& value, double least, double most);
  void read(std::string_view name, int64_t& value, int64_t least, int64_t most);
  void read(std::string_view name, uint32_t& value, uint32_t least, uint32_t most);
  /// A string, or an array of some.
  void read(std::string_view name, std::vector<std::string>& value);

  /// Fields that change nothing here.
  void ignore(std::initializer_list<std::string_view> names);
  /// Fields that would change the answer and cannot be honoured: absent, null, false, an empty list
  /// or `harmless`, or else an error.
  void refuse(std::string_view name, std::string_view why, const Json& harmless = nullptr);

  /// Keeps the first.
  void fail(std::string_view name, std::string_view what);
  void fail(ApiError error);
  const std::optional<ApiError>& error() const { return error_; }
  std::string path_of(std::string_view name) const { return path_ + std::string(name); }
  /// Names that nothing has asked for.
  std::vector<std::string> unknown() const;

 private:
  std::optional<double> number(std::string_view name, double least, double most, bool whole);

  const Json& object_;
  const std::string path_;
  std::set<std::string, std::less<>> known_;
  std::optional<ApiError> error_;
};

/// Whether it is an object; that it is not is an error of `errors`.
bool check_object(const Json& json, const std::string& path, Fields& errors);

/// Text of one line; what is not UTF-8 becomes U+FFFD.
std::string dumped(const Json& json);
/// "data: …\n\n"
std::string sse(const Json& json);
/// "event: NAME\ndata: …\n\n"
std::string sse(std::string_view event, const Json& json);

}  // namespace pumice::serve
