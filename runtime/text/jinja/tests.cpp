// Tests: what may follow "is".
#include <algorithm>
#include <array>
#include <functional>

#include "text/jinja/arguments.hpp"
#include "text/jinja/code_points.hpp"
#include "text/jinja/filters.hpp"
#include "text/jinja/operations.hpp"

namespace pumice::jinja {
namespace {

/// One without arguments that cannot fail.
template <auto kHolds>
Result<bool> simple(Interpreter&, const Value& input, const Arguments& arguments) {
  if (!arguments.positional.empty() || !arguments.named.empty()) {
    return fail("the test takes no arguments");
  }
  return std::invoke(kHolds, input);
}

template <CompareOp kOp>
Result<bool> compared(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  PUMICE_TRY(const Bound bound, Bound::bind("test", arguments, {"other"}, 1));
  return compare(interpreter.budget(), kOp, input, *bound[0]);
}

Result<bool> same_as(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  PUMICE_TRY(const Bound bound, Bound::bind("sameas", arguments, {"other"}, 1));
  return input.same_as(interpreter.budget(), *bound[0]);
}

Result<bool> divisible(Interpreter& interpreter, const Value& input, const Value& by) {
  PUMICE_TRY(const Value rest,
             binary_operation(interpreter.budget(), BinaryOp::kModulo, input, by));
  return rest.number() && *rest.number() == 0;
}

Result<bool> divisible_by(Interpreter& interpreter, const Value& input,
                          const Arguments& arguments) {
  PUMICE_TRY(const Bound bound, Bound::bind("divisibleby", arguments, {"num"}, 1));
  return divisible(interpreter, input, *bound[0]);
}

Result<bool> even(Interpreter& interpreter, const Value& input, const Arguments&) {
  return divisible(interpreter, input, Value(int64_t{2}));
}

Result<bool> odd(Interpreter& interpreter, const Value& input, const Arguments&) {
  PUMICE_TRY(const Value rest,
             binary_operation(interpreter.budget(), BinaryOp::kModulo, input, Value(int64_t{2})));
  return rest.number() && *rest.number() == 1;
}

template <bool kFilter>
Result<bool> is_known(Interpreter& interpreter, const Value& input, const Arguments&) {
  if (!input.is_string()) return false;
  const std::string_view name = input.text(interpreter.budget());
  return kFilter ? find_filter(name) != nullptr : find_test(name) != nullptr;
}

template <bool kUpper>
Result<bool> cased(Interpreter& interpreter, const Value& input, const Arguments&) {
  return matches(interpreter.budget(), kUpper ? kAllUpper : kAllLower, interpreter.str(input));
}

bool is_callable(const Value& value) {
  return value.is_undefined() || (value.object() != nullptr && value.object()->is_callable());
}
bool is_defined(const Value& value) { return !value.is_undefined(); }
bool is_exactly_false(const Value& value) { return value.is_bool() && !is_true(value); }
bool is_exactly_true(const Value& value) { return value.is_bool() && is_true(value); }
bool is_number(const Value& value) { return value.number().has_value(); }
bool is_mapping(const Value& value) { return value.dict() != nullptr; }
bool is_iterable(const Value& value) {
  return value.is_undefined() || value.is_string() || value.list() != nullptr ||
         value.dict() != nullptr;
}
bool is_sequence(const Value& value) {
  return is_iterable(value) && (value.list() == nullptr || value.list()->has_index());
}

constexpr auto kEqual = compared<CompareOp::kEqual>;
constexpr auto kNotEqual = compared<CompareOp::kNotEqual>;
constexpr auto kLess = compared<CompareOp::kLess>;
constexpr auto kLessEqual = compared<CompareOp::kLessEqual>;
constexpr auto kGreater = compared<CompareOp::kGreater>;
constexpr auto kGreaterEqual = compared<CompareOp::kGreaterEqual>;

constexpr std::array kTests = {
    Test{"!=", kNotEqual},
    Test{"<", kLess},
    Test{"<=", kLessEqual},
    Test{"==", kEqual},
    Test{">", kGreater},
    Test{">=", kGreaterEqual},
    Test{"boolean", simple<&Value::is_bool>},
    Test{"callable", simple<is_callable>},
    Test{"defined", simple<is_defined>},
    Test{"divisibleby", divisible_by},
    Test{"eq", kEqual},
    Test{"equalto", kEqual},
    Test{"escaped", simple<&Value::is_safe>},
    Test{"even", even},
    Test{"false", simple<is_exactly_false>},
    Test{"filter", is_known<true>},
    Test{"float", simple<&Value::is_float>},
    Test{"ge", kGreaterEqual},
    Test{"greaterthan", kGreater},
    Test{"gt", kGreater},
    Test{"in", compared<CompareOp::kIn>},
    Test{"integer", simple<&Value::is_int>},
    Test{"iterable", simple<is_iterable>},
    Test{"le", kLessEqual},
    Test{"lessthan", kLess},
    Test{"lower", cased<false>},
    Test{"lt", kLess},
    Test{"mapping", simple<is_mapping>},
    Test{"ne", kNotEqual},
    Test{"none", simple<&Value::is_none>},
    Test{"number", simple<is_number>},
    Test{"odd", odd},
    Test{"sameas", same_as},
    Test{"sequence", simple<is_sequence>},
    Test{"string", simple<&Value::is_string>},
    Test{"test", is_known<false>},
    Test{"true", simple<is_exactly_true>},
    Test{"undefined", simple<&Value::is_undefined>},
    Test{"upper", cased<true>},
};

}  // namespace

const Test* find_test(std::string_view name) {
  const auto* found = std::ranges::find(kTests, name, &Test::name);
  return found == kTests.end() ? nullptr : found;
}

}  // namespace pumice::jinja
