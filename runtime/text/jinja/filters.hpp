// Filters and tests by name.
#pragma once

#include <span>
#include <string_view>

#include "base/result.hpp"
#include "text/jinja/interpreter.hpp"
#include "text/jinja/value.hpp"

namespace pumice::jinja {

struct Filter {
  std::string_view name;
  Result<Value> (*apply)(Interpreter& interpreter, const Value& input, const Arguments& arguments);
};

struct Test {
  std::string_view name;
  Result<bool> (*holds)(Interpreter& interpreter, const Value& input, const Arguments& arguments);
};

/// Null if there is none.
const Filter* find_filter(std::string_view name);
const Test* find_test(std::string_view name);

std::span<const Filter> text_filters();      ///< text_filters.cpp
std::span<const Filter> number_filters();    ///< number_filters.cpp, with tojson
std::span<const Filter> sequence_filters();  ///< sequence_filters.cpp

/// Python's len(). Errors for what has none.
Result<Value> length_of(Budget& budget, const Value& value);

/// What `attribute='a.b.0'` or a number reaches, as map and sort take it.
Result<Value> reach(Interpreter& interpreter, const Value& object, const Value& attribute);

}  // namespace pumice::jinja
