// What Python's operators do with values, and what attributes values have.
#pragma once

#include <optional>
#include <string_view>

#include "base/result.hpp"
#include "text/jinja/ast.hpp"
#include "text/jinja/interpreter.hpp"
#include "text/jinja/value.hpp"

namespace pumice::jinja {

Result<Value> binary_operation(Budget& budget, BinaryOp op, const Value& a, const Value& b);
Result<Value> unary_operation(UnaryOp op, const Value& value);
Result<bool> compare(Budget& budget, CompareOp op, const Value& a, const Value& b);
/// format % arguments; safe where the format is, whose arguments are then escaped.
Result<Value> percent_format(Budget& budget, const Value& format, const Value& arguments);
/// format.format(arguments); safe where the format is, whose arguments are then escaped.
Result<Value> brace_format(Interpreter& interpreter, const Value& format,
                           const Arguments& arguments);
/// a + b of strings: safe where either is, and the other is then escaped.
Value joined(Budget& budget, const Value& a, const Value& b);

/// A list of the lines of a string, each safe if it is.
Value split_lines(Budget& budget, const Value& string, bool keep_ends);

/// object.name: a method or attribute, else the item of that name; undefined if there is neither,
/// or the sandbox forbids it. Errors on what is undefined itself.
Result<Value> get_attribute(Interpreter& interpreter, const Value& object, std::string_view name);
/// object[key]: the item, else the attribute.
Result<Value> get_item(Interpreter& interpreter, const Value& object, const Value& key);
/// object[start:stop:step], each of which may be None.
Result<Value> get_slice(Interpreter& interpreter, const Value& object, const Value& start,
                        const Value& stop, const Value& step);
/// A method of a string, list or dict; empty where it has none of that name.
std::optional<Value> find_method(Interpreter& interpreter, const Value& object,
                                 std::string_view name);
/// range, dict, namespace and so on; empty if there is none of that name.
std::optional<Value> make_global(Budget& budget, std::string_view name);

}  // namespace pumice::jinja
