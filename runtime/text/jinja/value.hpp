// Python's values, as far as templates can make them. Strings are UTF-8 but counted in code points;
// lists, tuples and dicts never change once made, as in the immutable sandbox.
//
// What a value holds is seen through functions that take the budget and pay for all of it; those
// without one (sizes, types, depth) take no time. Copying a value copies a reference.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/result.hpp"
#include "text/jinja/budget.hpp"

namespace pumice::jinja {

class Value;
class Interpreter;
class ListData;
class DictData;
class Object;

using Text = std::basic_string<char, std::char_traits<char>, Paid<char>>;
using Values = std::vector<Value, Paid<Value>>;
/// Without order, and maybe with a key twice.
using Entries = std::vector<std::pair<Value, Value>, Paid<std::pair<Value, Value>>>;

template <typename Container>
Budget& budget_of(const Container& container) {
  return container.get_allocator().budget();
}

struct StringData {
  Text text;
  bool is_safe;
};

/// A name or attribute that is not there.
struct Undefined {
  std::shared_ptr<const StringData> why;
};

class Value {
 public:
  Value() = default;  ///< None
  explicit Value(bool value) : data_(value) {}
  explicit Value(int64_t value) : data_(value) {}
  explicit Value(double value) : data_(value) {}
  /// A string that outlives the rendering: the template's own, the caller's, a constant.
  static Value borrowed(std::string_view text) { return Value(Data(text)); }
  /// `why` is what using it says.
  static Value undefined(Budget& budget, std::string_view why);

  bool is_none() const { return std::holds_alternative<std::monostate>(data_); }
  bool is_bool() const { return std::holds_alternative<bool>(data_); }
  bool is_int() const { return std::holds_alternative<int64_t>(data_); }
  bool is_float() const { return std::holds_alternative<double>(data_); }
  bool is_undefined() const { return std::holds_alternative<Undefined>(data_); }
  bool is_string() const { return is_borrowed() || string_data() != nullptr; }
  /// MarkupSafe's Markup, a kind of string: text added to it is escaped.
  bool is_safe() const { return string_data() != nullptr && string_data()->is_safe; }
  /// Null where it is another type.
  const ListData* list() const;
  const DictData* dict() const;
  Object* object() const;
  std::optional<int64_t> integer() const;  ///< an int or a bool
  std::optional<double> number() const;    ///< an int, a bool or a float

  /// Of a string. What they return lives as long as the value.
  size_t n_bytes() const { return whole_text().size(); }
  std::string_view text(Budget& budget) const;
  std::string_view head(Budget& budget, size_t n_bytes) const;  ///< the first, or all
  std::string_view tail(Budget& budget, size_t n_bytes) const;  ///< the last, or all

  /// What using it says, of one that is undefined.
  Error why_undefined() const;

  int depth() const;  ///< containers in containers, 0 for others
  /// Whether both are the same object, or equal scalars of one type: Python's `is`.
  bool same_as(Budget& budget, const Value& other) const;

 private:
  using Data = std::variant<std::monostate, Undefined, bool, int64_t, double, std::string_view,
                            std::shared_ptr<const StringData>, std::shared_ptr<const ListData>,
                            std::shared_ptr<const DictData>, std::shared_ptr<Object>>;

  friend Value make_string(Text text, bool is_safe);
  friend class ListData;
  friend class DictData;
  friend class Object;
  template <typename T, typename... Args>
  friend Value make_object(Budget& budget, Args&&... args);
  friend bool equal(Budget& budget, const Value& a, const Value& b);
  friend size_t hash_of(Budget& budget, const Value& value);

  explicit Value(Data data) : data_(std::move(data)) {}
  bool is_borrowed() const { return std::holds_alternative<std::string_view>(data_); }
  const StringData* string_data() const;
  std::string_view whole_text() const;

  Data data_;
};

enum class ListKind { kList, kTuple, kRange, kView, kGenerator };

class ListData {
 public:
  /// `label`: of a range "range(0, 3)", of a view "dict_keys", of a generator its name.
  static Value make(Values items, ListKind kind, Value label);
  ListData(Values items, ListKind kind, Value label, int depth)
      : items_(std::move(items)), label_(std::move(label)), kind_(kind), depth_(depth) {}

  ListKind kind() const { return kind_; }
  bool is_list_or_tuple() const { return kind_ == ListKind::kList || kind_ == ListKind::kTuple; }
  bool has_length() const { return kind_ != ListKind::kGenerator; }
  bool has_index() const { return has_length() && kind_ != ListKind::kView; }
  const Value& label() const { return label_; }
  std::string_view label_text() const { return label_.whole_text(); }
  int depth() const { return depth_; }
  size_t size() const { return items_.size(); }
  const Value& at(Budget& budget, size_t i) const {
    budget.step();
    return items_[i];
  }
  const Values& items(Budget& budget) const {
    budget.walk(items_.size());
    return items_;
  }
  /// The items the first time, nothing after that: of a generator.
  const Values* items_once(Budget& budget) const;

 private:
  Values items_;
  Value label_;
  ListKind kind_;
  mutable bool consumed_ = false;
  int depth_;
};

/// In order of insertion.
class DictData {
 public:
  static Value make(Entries entries);
  explicit DictData(Budget& budget) : entries_(budget), slots_(budget) {}

  size_t size() const { return entries_.size(); }
  int depth() const { return depth_; }
  const Entries& entries(Budget& budget) const {
    budget.walk(entries_.size());
    return entries_;
  }
  const Value* find(Budget& budget, const Value& key) const;
  const Value* find(Budget& budget, std::string_view key) const;

 private:
  bool is_indexed() const { return !slots_.empty(); }

  Entries entries_;
  std::vector<uint32_t, Paid<uint32_t>> slots_;  ///< by hash, an entry's index and one; or empty
  int depth_ = 1;
};

/// Arguments of a call. Names are those of the template, or of `named_by`.
struct Arguments {
  explicit Arguments(Budget& budget) : positional(budget), named(budget) {}
  Arguments(Budget& budget, std::initializer_list<Value> values)
      : positional(values, budget), named(budget) {}

  bool empty() const { return positional.empty() && named.empty(); }
  /// Null if there is none of that name.
  const Value* find(std::string_view name) const;

  Values positional;
  std::vector<std::pair<std::string_view, Value>, Paid<std::pair<std::string_view, Value>>> named;
  Value named_by;  ///< of **mapping
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

  Value value() { return Value(Value::Data(shared_from_this())); }
  long use_count() const { return weak_from_this().use_count(); }

 private:
  friend class Interpreter;

  int depth_;
  std::shared_ptr<Object> next_retained_;
};

template <typename T, typename... Args>
Value make_object(Budget& budget, Args&&... args) {
  std::shared_ptr<Object> object =
      std::allocate_shared<T>(Paid<T>(budget), std::forward<Args>(args)...);
  if (object->depth() > kMaxDepth) Budget::exceed("nests values too deeply");
  return Value(Value::Data(std::move(object)));
}

/// Depth of what holds these; exceeds the budget where that is too much.
int depth_above(const Values& items);

Value make_string(Text text, bool is_safe = false);
inline Value copy_string(Budget& budget, std::string_view text, bool is_safe = false) {
  return make_string(Text(text, budget), is_safe);
}
inline Value make_list(Values items, ListKind kind = ListKind::kList, Value label = {}) {
  return ListData::make(std::move(items), kind, std::move(label));
}
inline Value make_tuple(Budget& budget, std::initializer_list<Value> items) {
  return make_list(Values(items, budget), ListKind::kTuple);
}
/// Later entries of the same key replace the value of earlier ones.
inline Value make_dict(Entries entries) { return DictData::make(std::move(entries)); }

bool is_true(const Value& value);
/// Python's ==.
bool equal(Budget& budget, const Value& a, const Value& b);
/// a < b. Errors where Python has no order.
Result<bool> less(Budget& budget, const Value& a, const Value& b);
/// Whether it may be a key of a dict.
bool is_hashable(Budget& budget, const Value& value);
/// The same for equal values.
size_t hash_of(Budget& budget, const Value& value);

/// "str", "int", "NoneType"….
std::string_view type_name(const Value& value);

/// Items of what can be iterated; the code points of a string, the keys of a dict. A generator is
/// used up. Errors for anything else.
Result<Values> items_of(Budget& budget, const Value& value);

/// Python's str(), repr().
void append_str(Text& out, const Value& value);
void append_repr(Text& out, const Value& value);
Text str(Budget& budget, const Value& value);
Text repr(Budget& budget, const Value& value);
/// The value if it is a string, safe or not, else a string of it: MarkupSafe's soft_str.
Value soft_str(Budget& budget, const Value& value);
/// MarkupSafe's escape: safe text as it is, anything else as text with &, <, >, ' and " escaped.
void append_escaped(Text& out, const Value& value);
Value escape(Budget& budget, const Value& value);

struct JsonStyle {
  int indent = -1;  ///< negative: one line
  std::string_view item_separator = ", ";
  std::string_view key_separator = ": ";
  bool sort_keys = false;
  bool ensure_ascii = false;
};
/// Python's json.dumps. Errors: what JSON does not have.
Status append_json(Text& out, const Value& value, const JsonStyle& style);

/// kInvalidArgument; `format` names the values.
template <typename... Args>
Error fail(fmt::format_string<Args...> format, Args&&... args) {
  return make_error(ErrorCode::kInvalidArgument, format, std::forward<Args>(args)...);
}

/// fmt::format, paid for.
template <typename... Args>
Text formatted(Budget& budget, fmt::format_string<Args...> format, Args&&... args) {
  Text text(budget);
  fmt::format_to(std::back_inserter(text), format, std::forward<Args>(args)...);
  return text;
}

}  // namespace pumice::jinja
