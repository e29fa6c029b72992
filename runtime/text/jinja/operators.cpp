// Arithmetic, comparison, items and slices.
#include <algorithm>
#include <cmath>
#include <optional>

#include "base/checked.hpp"
#include "base/printable.hpp"
#include "text/jinja/code_points.hpp"
#include "text/jinja/objects.hpp"
#include "text/jinja/operations.hpp"

namespace pumice::jinja {
namespace {

Error overflow() { return fail("an integer beyond 64 bits"); }

std::string_view symbol_of(BinaryOp op) {
  constexpr std::string_view kSymbols[] = {"+", "-", "*", "/", "//", "%", "**"};
  return kSymbols[static_cast<size_t>(op)];
}

Result<Value> integer_power(int64_t base, int64_t exponent) {
  int64_t result = 1;
  for (; exponent > 0; --exponent) {
    if (base == 0 || base == 1) return Value(base);
    if (base == -1) return Value(exponent % 2 == 0 ? result : -result);
    const std::optional<int64_t> product = checked_multiply(result, base);
    if (!product) return overflow();
    result = *product;
  }
  return Value(result);
}

int64_t floor_divide(int64_t a, int64_t b) {
  const int64_t quotient = a / b;
  return quotient * b != a && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

Result<Value> or_overflow(std::optional<int64_t> result) {
  if (!result) return overflow();
  return Value(*result);
}

Result<Value> integer_operation(BinaryOp op, int64_t a, int64_t b) {
  switch (op) {
    case BinaryOp::kAdd:
      return or_overflow(checked_add(a, b));
    case BinaryOp::kSubtract:
      return or_overflow(checked_subtract(a, b));
    case BinaryOp::kMultiply:
      return or_overflow(checked_multiply(a, b));
    case BinaryOp::kDivide:
      if (b == 0) return fail("division by zero");
      return Value(static_cast<double>(a) / static_cast<double>(b));
    case BinaryOp::kFloorDivide:
    case BinaryOp::kModulo:
      if (b == 0) return fail("integer division or modulo by zero");
      if (b == -1) {  // the one quotient that 64 bits may not hold
        if (op == BinaryOp::kModulo) return Value(int64_t{0});
        return integer_operation(BinaryOp::kSubtract, 0, a);
      }
      return Value(op == BinaryOp::kModulo ? a - floor_divide(a, b) * b : floor_divide(a, b));
    case BinaryOp::kPower:
      break;
  }
  if (b >= 0) return integer_power(a, b);
  if (a == 0) return fail("0.0 cannot be raised to a negative power");
  return Value(std::pow(static_cast<double>(a), static_cast<double>(b)));
}

Result<Value> float_operation(BinaryOp op, double a, double b) {
  const bool divides =
      op == BinaryOp::kDivide || op == BinaryOp::kFloorDivide || op == BinaryOp::kModulo;
  if (divides && b == 0) return fail("float division by zero");
  const double remainder = divides ? std::fmod(a, b) : 0;
  const double modulo = remainder != 0 && (remainder < 0) != (b < 0) ? remainder + b : remainder;
  switch (op) {
    case BinaryOp::kAdd:
      return Value(a + b);
    case BinaryOp::kSubtract:
      return Value(a - b);
    case BinaryOp::kMultiply:
      return Value(a * b);
    case BinaryOp::kDivide:
      return Value(a / b);
    case BinaryOp::kFloorDivide:
      return Value(std::round((a - modulo) / b));
    case BinaryOp::kModulo:
      return Value(modulo == 0 ? std::copysign(0.0, b) : modulo);
    case BinaryOp::kPower:
      break;
  }
  if (a == 0 && b < 0) return fail("0.0 cannot be raised to a negative power");
  if (a < 0 && b != std::floor(b)) return fail("the power is a complex number");
  const double power = std::pow(a, b);
  if (std::isinf(power) && !std::isinf(a) && !std::isinf(b)) return fail("result too large");
  return Value(power);
}

Result<Value> join(Budget& budget, const Value& a, const Value& b) {
  if (a.is_string() && b.is_string()) return joined(budget, a, b);
  const ListData* x = a.list();
  const ListData* y = b.list();
  const bool lists =
      x != nullptr && y != nullptr && x->kind() == y->kind() && x->is_list_or_tuple();
  if (lists) {
    Values items(budget);
    items.reserve(x->size() + y->size());
    for (const ListData* part : {x, y}) {
      const Values& own = part->items(budget);
      items.insert(items.end(), own.begin(), own.end());
    }
    return make_list(std::move(items), x->kind());
  }
  if (a.is_string() && !a.is_safe()) {
    return fail("can only concatenate str (not \"{}\") to str", type_name(b));
  }
  return fail("unsupported operand type(s) for +: '{}' and '{}'", type_name(a), type_name(b));
}

/// A string, list or tuple, `count` times.
Result<Value> repeat(Budget& budget, const Value& value, int64_t count) {
  const auto times = static_cast<size_t>(std::max<int64_t>(count, 0));
  const size_t once = value.is_string() ? value.n_bytes() : value.list()->size();
  if (once > 0 && times > SIZE_MAX / 2 / once) Budget::exceed("needs too much memory");
  if (value.is_string()) {
    const std::string_view own = value.text(budget);
    Text text(budget);
    text.reserve(once * times);
    for (size_t i = 0; once > 0 && i < times; ++i) text += own;
    return make_string(std::move(text), value.is_safe());
  }
  const Values& own = value.list()->items(budget);
  Values items(budget);
  items.reserve(once * times);
  for (size_t i = 0; once > 0 && i < times; ++i) items.insert(items.end(), own.begin(), own.end());
  return make_list(std::move(items), value.list()->kind());
}

bool repeats(const Value& value) {
  return value.is_string() || (value.list() != nullptr && value.list()->is_list_or_tuple());
}

Result<bool> contains(Budget& budget, const Value& item, const Value& container) {
  if (container.is_string()) {
    if (item.is_undefined()) return item.why_undefined();
    if (!item.is_string()) {
      return fail("'in <string>' requires string as left operand, not {}", type_name(item));
    }
    const std::string_view text = container.text(budget);
    return find_text(budget, text, item.text(budget)) != text.npos;
  }
  if (const DictData* dict = container.dict()) {
    if (!is_hashable(budget, item)) return fail("unhashable type: '{}'", type_name(item));
    return dict->find(budget, item) != nullptr;
  }
  if (container.list() == nullptr && !container.is_undefined()) {
    return fail("argument of type '{}' is not iterable", type_name(container));
  }
  PUMICE_TRY(const Values items, items_of(budget, container));
  for (const Value& own : items) {
    if (equal(budget, own, item)) return true;
  }
  return false;
}

/// "'str object' has no attribute 'x'", "'None' has no element 0".
Value missing(Interpreter& interpreter, const Value& object, std::string_view what) {
  const std::string_view name = object.is_none() ? "None" : type_name(object);
  return interpreter.undefined(
      fmt::format("'{}{}' has no {}", name, object.is_none() ? "" : " object", what));
}

/// One end of a slice as Python clamps it.
Result<int64_t> slice_bound(const Value& bound, int64_t length, int64_t fallback, int64_t low,
                            int64_t high) {
  if (bound.is_none()) return fallback;
  const std::optional<int64_t> given = bound.integer();
  if (!given) return fail("slice indices must be integers or None");
  return std::clamp(*given < 0 ? *given + length : *given, low, high);
}

struct Slice {
  int64_t start, stop, step;
};

Result<Slice> slice_of(int64_t length, const Value& start, const Value& stop, const Value& step) {
  Slice slice{0, 0, 1};
  if (!step.is_none()) {
    if (!step.integer()) return fail("slice indices must be integers or None");
    slice.step = std::clamp<int64_t>(*step.integer(), -(int64_t{1} << 62), int64_t{1} << 62);
  }
  if (slice.step == 0) return fail("slice step cannot be zero");
  const bool forward = slice.step > 0;
  const int64_t low = forward ? 0 : -1;
  const int64_t high = forward ? length : length - 1;
  PUMICE_TRY(slice.start, slice_bound(start, length, forward ? low : high, low, high));
  PUMICE_TRY(slice.stop, slice_bound(stop, length, forward ? high : low, low, high));
  return slice;
}

bool inside(const Slice& slice, int64_t i) {
  return slice.step > 0 ? i < slice.stop : i > slice.stop;
}

/// Code point by code point, over what is not asked for.
Text stepped_text(Budget& budget, std::string_view text, size_t length, const Slice& slice) {
  std::vector<size_t, Paid<size_t>> begins(budget);
  begins.reserve(length + 1);
  for (size_t at = 0; at < text.size(); at += code_point_bytes(text.substr(at))) {
    begins.push_back(at);
  }
  begins.push_back(text.size());
  Text result(budget);
  for (int64_t i = slice.start; inside(slice, i); i += slice.step) {
    const auto at = static_cast<size_t>(i);
    result += text.substr(begins[at], begins[at + 1] - begins[at]);
  }
  return result;
}

Result<Value> slice_text(Budget& budget, const Value& string, const Value& start, const Value& stop,
                         const Value& step) {
  const std::string_view text = string.text(budget);
  const size_t length = count_code_points(text);
  PUMICE_TRY(const Slice slice, slice_of(static_cast<int64_t>(length), start, stop, step));
  if (!inside(slice, slice.start)) return copy_string(budget, "", string.is_safe());
  if (slice.step != 1) {
    return make_string(stepped_text(budget, text, length, slice), string.is_safe());
  }
  const auto first = static_cast<size_t>(slice.start);
  const auto count = static_cast<size_t>(slice.stop - slice.start);
  return copy_string(budget, code_points(text, first, count), string.is_safe());
}

}  // namespace

Value joined(Budget& budget, const Value& a, const Value& b) {
  const bool is_safe = a.is_safe() || b.is_safe();
  Text text(budget);
  text.reserve(a.n_bytes() + b.n_bytes());
  for (const Value* part : {&a, &b}) {
    if (is_safe) {
      append_escaped(text, *part);
    } else {
      append_str(text, *part);
    }
  }
  return make_string(std::move(text), is_safe);
}

Result<Value> binary_operation(Budget& budget, BinaryOp op, const Value& a, const Value& b) {
  if (op == BinaryOp::kModulo && a.is_string()) return percent_format(budget, a, b);
  if (a.is_undefined()) return a.why_undefined();
  if (b.is_undefined()) return b.why_undefined();
  if (a.integer() && b.integer()) return integer_operation(op, *a.integer(), *b.integer());
  if (a.number() && b.number()) return float_operation(op, *a.number(), *b.number());
  if (op == BinaryOp::kMultiply && repeats(a) && b.integer())
    return repeat(budget, a, *b.integer());
  if (op == BinaryOp::kMultiply && repeats(b) && a.integer())
    return repeat(budget, b, *a.integer());
  if (op == BinaryOp::kAdd) return join(budget, a, b);
  return fail("unsupported operand type(s) for {}: '{}' and '{}'", symbol_of(op), type_name(a),
              type_name(b));
}

Result<Value> unary_operation(UnaryOp op, const Value& value) {
  if (op == UnaryOp::kNot) return Value(!is_true(value));
  if (value.is_undefined()) return value.why_undefined();
  if (const std::optional<int64_t> integer = value.integer()) {
    return op == UnaryOp::kPositive ? Value(*integer)
                                    : integer_operation(BinaryOp::kSubtract, 0, *integer);
  }
  if (value.is_float()) return Value(op == UnaryOp::kPositive ? *value.number() : -*value.number());
  return fail("bad operand type for unary {}: '{}'", op == UnaryOp::kPositive ? '+' : '-',
              type_name(value));
}

Result<bool> compare(Budget& budget, CompareOp op, const Value& a, const Value& b) {
  switch (op) {
    case CompareOp::kEqual:
      return equal(budget, a, b);
    case CompareOp::kNotEqual:
      return !equal(budget, a, b);
    case CompareOp::kLess:
      return less(budget, a, b);
    case CompareOp::kGreater:
      return less(budget, b, a);
    case CompareOp::kLessEqual:
    case CompareOp::kGreaterEqual: {
      const bool flips = op == CompareOp::kGreaterEqual;
      PUMICE_TRY(const bool is_less, flips ? less(budget, b, a) : less(budget, a, b));
      return is_less || equal(budget, a, b);
    }
    case CompareOp::kIn:
      return contains(budget, a, b);
    case CompareOp::kNotIn: {
      PUMICE_TRY(const bool found, contains(budget, a, b));
      return !found;
    }
  }
  return false;
}

Result<Value> get_attribute(Interpreter& interpreter, const Value& object, std::string_view name) {
  if (object.is_undefined()) return object.why_undefined();
  if (object.object() != nullptr) {
    if (auto value = object.object()->attribute(interpreter, name)) return *std::move(value);
  } else if (auto method = find_method(interpreter, object, name)) {
    return *std::move(method);
  }
  if (object.dict() != nullptr) {
    if (const Value* item = object.dict()->find(interpreter.budget(), name)) return *item;
  }
  return missing(interpreter, object, fmt::format("attribute '{}'", printable(name)));
}

Result<Value> get_item(Interpreter& interpreter, const Value& object, const Value& key) {
  if (object.is_undefined()) return object.why_undefined();
  Budget& budget = interpreter.budget();
  const std::optional<int64_t> index = key.integer();
  if (const DictData* dict = object.dict(); dict != nullptr && is_hashable(budget, key)) {
    if (const Value* item = dict->find(budget, key)) return *item;
  }
  if (const ListData* list = object.list(); list != nullptr && list->has_index() && index) {
    const auto length = static_cast<int64_t>(list->size());
    const int64_t at = *index < 0 ? *index + length : *index;
    if (at >= 0 && at < length) return list->at(budget, static_cast<size_t>(at));
  }
  if (object.is_string() && index) {
    const std::string_view text = object.text(budget);
    const auto length = *index < 0 ? static_cast<int64_t>(count_code_points(text)) : 0;
    const int64_t at = *index + length;
    const auto found = at < 0 ? "" : code_points(text, static_cast<size_t>(at), 1);
    if (!found.empty()) return copy_string(budget, found, object.is_safe());
  }
  if (!key.is_string()) {
    return missing(interpreter, object, fmt::format("element {}", printable(repr(budget, key))));
  }
  return get_attribute(interpreter, object, key.text(budget));
}

Result<Value> get_slice(Interpreter& interpreter, const Value& object, const Value& start,
                        const Value& stop, const Value& step) {
  Budget& budget = interpreter.budget();
  if (object.is_undefined()) return object.why_undefined();
  if (object.is_string()) return slice_text(budget, object, start, stop, step);
  const ListData* list = object.list();
  if (list == nullptr || !list->has_index()) {
    return fail("'{}' object is not subscriptable by a slice", type_name(object));
  }
  PUMICE_TRY(const Slice slice, slice_of(static_cast<int64_t>(list->size()), start, stop, step));
  Values items(budget);
  for (int64_t i = slice.start; inside(slice, i); i += slice.step) {
    items.push_back(list->at(budget, static_cast<size_t>(i)));
  }
  const bool is_tuple = list->kind() == ListKind::kTuple;
  return make_list(std::move(items), is_tuple ? ListKind::kTuple : ListKind::kList);
}

}  // namespace pumice::jinja
