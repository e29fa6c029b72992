// Python's values, as far as templates can make them. Strings are UTF-8 but counted in code points;
// lists, tuples and dicts never change once made, as in the immutable sandbox.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "base/result.hpp"
#include "text/jinja/budget.hpp"

namespace pumice::jinja {

class Value;
class Interpreter;
struct ListData;
struct DictData;
class Object;

/// A name or attribute that is not there. `why` is what using it says.
struct Undefined {
  std::shared_ptr<const std::string> why;
};

struct StringData {
  std::string text;
  Charge charge;
};

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

class Value {
 public:
  using Data = std::variant<std::monostate, Undefined, bool, int64_t, double,
                            std::shared_ptr<const StringData>, std::shared_ptr<const ListData>,
                            std::shared_ptr<const DictData>, std::shared_ptr<Object>>;

  Value() = default;  ///< None
  explicit Value(bool value) : data_(value) {}
  explicit Value(int64_t value) : data_(value) {}
  explicit Value(double value) : data_(value) {}
  explicit Value(std::shared_ptr<const StringData> value) : data_(std::move(value)) {}
  explicit Value(std::shared_ptr<const ListData> value) : data_(std::move(value)) {}
  explicit Value(std::shared_ptr<const DictData> value) : data_(std::move(value)) {}
  explicit Value(std::shared_ptr<Object> value) : data_(std::move(value)) {}
  static Value undefined(std::string why);
  /// A string of the template itself, which no budget is charged for.
  static Value literal(std::string text);

  bool is_none() const { return std::holds_alternative<std::monostate>(data_); }
  bool is_bool() const { return std::holds_alternative<bool>(data_); }
  bool is_int() const { return std::holds_alternative<int64_t>(data_); }
  bool is_float() const { return std::holds_alternative<double>(data_); }
  bool is_undefined() const { return undefined() != nullptr; }
  /// Null where it is another type.
  const Undefined* undefined() const { return std::get_if<Undefined>(&data_); }
  const std::string* string() const;
  const ListData* list() const;
  const DictData* dict() const;
  Object* object() const;
  std::optional<int64_t> integer() const;  ///< an int or a bool
  std::optional<double> number() const;    ///< an int, a bool or a float

  const Data& data() const { return data_; }
  int depth() const;  ///< containers in containers, 0 for others
  /// Whether both are the same object, or equal scalars of one type: Python's `is`.
  bool same_as(const Value& other) const;

 private:
  Data data_;
};

enum class ListKind { kList, kTuple, kRange, kView, kGenerator };

struct ListData {
  ListKind kind;
  std::vector<Value> items;
  std::string label;  ///< of a range "range(0, 3)", of a view "dict_keys", of a generator its name
  mutable bool consumed = false;  ///< a generator gives its items once
  int depth;
  Charge charge;

  bool has_length() const { return kind != ListKind::kGenerator; }
  bool has_index() const { return has_length() && kind != ListKind::kView; }
};

using DictEntries = std::vector<std::pair<Value, Value>>;

/// In order of insertion.
struct DictData {
  DictEntries entries;
  std::unordered_multimap<size_t, size_t> by_hash;  ///< empty for a few entries
  int depth;
  Charge charge;

  const Value* find(Budget& budget, const Value& key) const;
  const Value* find(std::string_view key) const;
};

/// What has attributes or can be called: macros, methods, functions, loops, namespaces.
class Object : public std::enable_shared_from_this<Object> {
 public:
  explicit Object(int depth = 1) : depth_(depth) {}
  virtual ~Object() = default;
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;

  int depth() const { return depth_; }  ///< of what it was made with, and one
  virtual std::string_view type_name() const = 0;
  virtual bool is_callable() const { return true; }
  virtual Result<Value> call(Interpreter& interpreter, const Arguments& arguments);
  virtual std::optional<Value> attribute(Interpreter& interpreter, std::string_view name);
  /// Lets go of what was put into it since it was made, which may be itself.
  virtual void release() {}

 private:
  int depth_;
};

/// Depth of what holds these; exceeds the budget where that is too much.
int depth_above(Budget& budget, const std::vector<Value>& items);

Value make_string(Budget& budget, std::string text);
Value make_list(Budget& budget, std::vector<Value> items, ListKind kind = ListKind::kList,
                std::string label = {});
/// Later entries of the same key replace the value of earlier ones.
Value make_dict(Budget& budget, DictEntries entries);

bool is_true(const Value& value);
/// Python's ==; false beyond the budget.
bool equal(Budget& budget, const Value& a, const Value& b);
/// a < b. Errors where Python has no order.
Result<bool> less(Budget& budget, const Value& a, const Value& b);
/// Whether it may be a key of a dict.
bool is_hashable(const Value& value);
size_t hash_of(const Value& value);

/// "str", "int", "NoneType"….
std::string_view type_name(const Value& value);

/// Items of what can be iterated; the code points of a string, the keys of a dict. A generator is
/// used up. Errors for anything else.
Result<std::vector<Value>> items_of(Budget& budget, const Value& value);

/// Python's str(), repr().
void append_str(TextBuilder& out, const Value& value);
void append_repr(TextBuilder& out, const Value& value);
std::string str(Budget& budget, const Value& value);
std::string repr(Budget& budget, const Value& value);

struct JsonStyle {
  int indent = -1;  ///< negative: one line
  std::string_view item_separator = ", ";
  std::string_view key_separator = ": ";
  bool sort_keys = false;
  bool ensure_ascii = false;
};
/// Python's json.dumps. Errors: what JSON does not have.
Status append_json(TextBuilder& out, const Value& value, const JsonStyle& style);

/// kInvalidArgument; `format` names the values.
template <typename... Args>
Error fail(fmt::format_string<Args...> format, Args&&... args) {
  return make_error(ErrorCode::kInvalidArgument, format, std::forward<Args>(args)...);
}

}  // namespace pumice::jinja
