// Filters of sequences and mappings. Those that Jinja2 computes as they are asked for give
// generators here too: without a length, and empty the second time.
#include <algorithm>
#include <array>

#include "text/jinja/arguments.hpp"
#include "text/jinja/code_points.hpp"
#include "text/jinja/filters.hpp"
#include "text/jinja/operations.hpp"

namespace pumice::jinja {
namespace {

Value generator(Values items, std::string_view name) {
  return make_list(std::move(items), ListKind::kGenerator, Value::borrowed(name));
}

Value without_case(Interpreter& interpreter, const Value& value) {
  if (!value.is_string()) return value;
  Budget& budget = interpreter.budget();
  return make_string(lower(budget, value.text(budget)));
}

using Keyed = std::pair<Value, Value>;

/// What sort, unique, min and max compare of an item.
struct Key {
  const Value* attribute;
  bool case_sensitive;

  Result<Value> of(Interpreter& interpreter, const Value& item) const {
    Value key = item;
    if (attribute != nullptr && !attribute->is_none()) {
      PUMICE_TRY(key, reach(interpreter, item, *attribute));
    }
    return case_sensitive ? key : without_case(interpreter, key);
  }
};

/// By "a,b" several attributes, of which a later one counts where the earlier are equal.
Result<Value> sort_key(Interpreter& interpreter, const Key& key, const Value& item) {
  if (key.attribute == nullptr || key.attribute->is_none()) return key.of(interpreter, item);
  if (!key.attribute->is_string()) return key.of(interpreter, item);
  Values parts(interpreter.budget());
  for (std::string_view rest = key.attribute->text(interpreter.budget());;) {
    const size_t end = std::min(rest.find(','), rest.size());
    const Value attribute = interpreter.string(rest.substr(0, end));
    PUMICE_TRY(Value part, (Key{&attribute, key.case_sensitive}.of(interpreter, item)));
    parts.push_back(std::move(part));
    if (end == rest.size()) break;
    rest.remove_prefix(end + 1);
  }
  return make_list(std::move(parts), ListKind::kTuple);
}

/// Sorts by .first, stably; equal ones keep their order when it is reversed too.
Status sort_by_key(Entries& items, bool reverse) {
  Budget& budget = budget_of(items);
  Status failed;
  std::ranges::stable_sort(items, [&](const Keyed& a, const Keyed& b) {
    if (!failed.ok()) return false;
    const Result<bool> before =
        reverse ? less(budget, b.first, a.first) : less(budget, a.first, b.first);
    if (!before.ok()) failed = before.error();
    return before.ok() && *before;
  });
  return failed;
}

Value seconds_of(const Entries& items) {
  Values values(budget_of(items));
  values.reserve(items.size());
  for (const Keyed& item : items) values.push_back(item.second);
  return make_list(std::move(values));
}

Result<Value> sort(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  PUMICE_TRY(const Bound bound,
             Bound::bind("sort", arguments, {"reverse", "case_sensitive", "attribute"}));
  PUMICE_TRY(const Values items, interpreter.items(input));
  const Key key{bound[2], bound.truth(1, false)};
  Entries keyed(interpreter.budget());
  for (const Value& item : items) {
    PUMICE_TRY(Value own, sort_key(interpreter, key, item));
    keyed.emplace_back(std::move(own), item);
  }
  PUMICE_TRY_STATUS(sort_by_key(keyed, bound.truth(0, false)));
  return seconds_of(keyed);
}

Result<Value> dictsort(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  PUMICE_TRY(const Bound bound,
             Bound::bind("dictsort", arguments, {"case_sensitive", "by", "reverse"}));
  PUMICE_TRY(const std::string_view by, bound.text(1, "key"));
  if (by != "key" && by != "value") {
    return fail("you can only sort by either \"key\" or \"value\"");
  }
  if (input.dict() == nullptr)
    return fail("'{}' object has no attribute 'items'", type_name(input));
  Budget& budget = interpreter.budget();
  Entries keyed(budget);
  for (const auto& [name, value] : input.dict()->entries(budget)) {
    const Value& own = by == "key" ? name : value;
    keyed.emplace_back(bound.truth(0, false) ? own : without_case(interpreter, own),
                       make_tuple(budget, {name, value}));
  }
  PUMICE_TRY_STATUS(sort_by_key(keyed, bound.truth(2, false)));
  return seconds_of(keyed);
}

Result<Value> unique(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  PUMICE_TRY(const Bound bound, Bound::bind("unique", arguments, {"case_sensitive", "attribute"}));
  PUMICE_TRY(const Values items, interpreter.items(input));
  const Key key{bound[1], bound.truth(0, false)};
  Budget& budget = interpreter.budget();
  Values keys(budget);
  for (const Value& item : items) {
    PUMICE_TRY(Value own, key.of(interpreter, item));
    if (!is_hashable(budget, own)) return fail("unhashable type: '{}'", type_name(own));
    keys.push_back(std::move(own));
  }
  Entries first(budget);  // a dict keeps the last of equal keys
  for (size_t i = items.size(); i-- > 0;) {
    first.emplace_back(keys[i], Value(static_cast<int64_t>(i)));
  }
  const Value index = make_dict(std::move(first));
  Values result(budget);
  for (size_t i = 0; i < items.size(); ++i) {
    const Value* found = index.dict()->find(budget, keys[i]);
    if (found != nullptr && *found->integer() == static_cast<int64_t>(i))
      result.push_back(items[i]);
  }
  return generator(std::move(result), "sync_do_unique");
}

template <bool kMax>
Result<Value> extreme(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  PUMICE_TRY(const Bound bound, Bound::bind("min", arguments, {"case_sensitive", "attribute"}));
  PUMICE_TRY(const Values items, interpreter.items(input));
  if (items.empty()) return interpreter.undefined("No aggregated item, sequence was empty.");
  const Key key{bound[1], bound.truth(0, false)};
  size_t best = 0;
  PUMICE_TRY(Value best_key, key.of(interpreter, items[0]));
  for (size_t i = 1; i < items.size(); ++i) {
    PUMICE_TRY(Value own, key.of(interpreter, items[i]));
    PUMICE_TRY(const bool better, kMax ? less(interpreter.budget(), best_key, own)
                                       : less(interpreter.budget(), own, best_key));
    if (!better) continue;
    best = i;
    best_key = std::move(own);
  }
  return items[best];
}

Result<Value> sum(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  PUMICE_TRY(const Bound bound, Bound::bind("sum", arguments, {"attribute", "start"}));
  PUMICE_TRY(const Values items, interpreter.items(input));
  Value total = bound.value(1, Value(int64_t{0}));
  if (total.is_string()) return fail("sum() can't sum strings [use ''.join(seq) instead]");
  const Key key{bound[0], true};
  for (const Value& item : items) {
    PUMICE_TRY(const Value own, key.of(interpreter, item));
    PUMICE_TRY(total, binary_operation(interpreter.budget(), BinaryOp::kAdd, total, own));
  }
  return total;
}

Result<Value> length(Interpreter& interpreter, const Value& input, const Arguments&) {
  return length_of(interpreter.budget(), input);
}

Result<Value> first(Interpreter& interpreter, const Value& input, const Arguments&) {
  PUMICE_TRY(Values items, interpreter.items(input));
  if (items.empty()) return interpreter.undefined("No first item, sequence was empty.");
  return std::move(items.front());
}

Result<Value> last(Interpreter& interpreter, const Value& input, const Arguments&) {
  if (input.list() != nullptr && !input.list()->has_length()) {
    return fail("'generator' object is not reversible");
  }
  PUMICE_TRY(Values items, interpreter.items(input));
  if (items.empty()) return interpreter.undefined("No last item, sequence was empty.");
  // Python gets the last character by its index, which keeps it safe.
  const Value& character = items.back();
  if (!input.is_safe()) return character;
  return copy_string(interpreter.budget(), character.text(interpreter.budget()), true);
}

Result<Value> reverse(Interpreter& interpreter, const Value& input, const Arguments&) {
  PUMICE_TRY(Values items, interpreter.items(input));
  std::ranges::reverse(items);
  if (!input.is_string()) {
    const bool is_generator = input.list() != nullptr && !input.list()->has_length();
    return is_generator ? make_list(std::move(items)) : generator(std::move(items), "reversed");
  }
  Text out(interpreter.budget());
  for (const Value& item : items) append_str(out, item);
  return make_string(std::move(out), input.is_safe());
}

Result<Value> list(Interpreter& interpreter, const Value& input, const Arguments&) {
  PUMICE_TRY(Values items, interpreter.items(input));
  return make_list(std::move(items));
}

Result<Value> pairs(Interpreter& interpreter, const Value& input, const Arguments&) {
  Budget& budget = interpreter.budget();
  Values items(budget);
  if (input.is_undefined()) return generator(std::move(items), "do_items");
  if (input.dict() == nullptr) return fail("Can only get item pairs from a mapping.");
  for (const auto& [key, value] : input.dict()->entries(budget)) {
    items.push_back(make_tuple(budget, {key, value}));
  }
  return generator(std::move(items), "do_items");
}

Result<Value> join(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  PUMICE_TRY(const Bound bound, Bound::bind("join", arguments, {"d", "attribute"}));
  PUMICE_TRY(const Values items, interpreter.items(input));
  // Without autoescape nothing is escaped and nothing safe.
  const Value separator = bound.value(0, Value::borrowed(""));
  const Key key{bound[1], true};
  Text out(interpreter.budget());
  for (size_t i = 0; i < items.size(); ++i) {
    PUMICE_TRY(const Value item, key.of(interpreter, items[i]));
    if (i > 0) append_str(out, separator);
    append_str(out, item);
  }
  return make_string(std::move(out));
}

/// The arguments behind the first `n`, for the filter or test that they name.
Arguments behind(const Arguments& arguments, size_t n) {
  Arguments rest = arguments;
  rest.positional.erase(rest.positional.begin(),
                        rest.positional.begin() + static_cast<ptrdiff_t>(n));
  return rest;
}

/// As in Jinja2, whatever counts as false has no items to map or to choose from.
Result<Values> items_if_any(Interpreter& interpreter, const Value& input) {
  if (!is_true(input)) return Values(interpreter.budget());
  return interpreter.items(input);
}

Result<Value> map(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  Budget& budget = interpreter.budget();
  PUMICE_TRY(const Values items, items_if_any(interpreter, input));
  Values result(budget);
  const bool by_attribute = arguments.positional.empty();
  if (items.empty()) return generator(std::move(result), "sync_do_map");
  Value attribute;
  Value fallback = interpreter.undefined("");
  if (by_attribute) {
    PUMICE_TRY(const Bound bound, Bound::bind("map", arguments, {"attribute", "default"}, 1));
    attribute = *bound[0];
    fallback = bound.value(1, fallback);
  } else if (!arguments.positional[0].is_string()) {
    return fail("map requires a filter's name");
  }
  const Value name = by_attribute ? Value() : arguments.positional[0];
  const Arguments rest = by_attribute ? Arguments(budget) : behind(arguments, 1);
  const bool has_fallback = by_attribute && arguments.named.size() > 1;
  for (const Value& item : items) {
    PUMICE_TRY(Value value, by_attribute ? reach(interpreter, item, attribute)
                                         : interpreter.filter(name.text(budget), item, rest));
    if (has_fallback && value.is_undefined()) value = fallback;
    result.push_back(std::move(value));
  }
  return generator(std::move(result), "sync_do_map");
}

template <bool kKeep, bool kByAttribute>
Result<Value> choose(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  Budget& budget = interpreter.budget();
  PUMICE_TRY(const Values items, items_if_any(interpreter, input));
  Values chosen(budget);
  constexpr std::string_view kName = "select_or_reject";
  if (items.empty()) return generator(std::move(chosen), kName);
  constexpr size_t kTest = kByAttribute ? 1 : 0;
  if (arguments.positional.size() < kTest) return fail("Missing parameter for attribute name");
  const bool has_test = arguments.positional.size() > kTest;
  const Value name = has_test ? arguments.positional[kTest] : Value();
  if (has_test && !name.is_string()) return fail("a test's name must be a string");
  const Arguments rest = has_test ? behind(arguments, kTest + 1) : Arguments(budget);
  for (const Value& item : items) {
    Value subject = item;
    if (kByAttribute) {
      PUMICE_TRY(subject, reach(interpreter, item, arguments.positional[0]));
    }
    PUMICE_TRY(const bool holds, has_test ? interpreter.test(name.text(budget), subject, rest)
                                          : Result<bool>(is_true(subject)));
    if (holds == kKeep) chosen.push_back(item);
  }
  return generator(std::move(chosen), kName);
}

constexpr std::array kSequenceFilters = {
    Filter{"count", length},
    Filter{"dictsort", dictsort},
    Filter{"first", first},
    Filter{"items", pairs},
    Filter{"join", join},
    Filter{"last", last},
    Filter{"length", length},
    Filter{"list", list},
    Filter{"map", map},
    Filter{"max", extreme<true>},
    Filter{"min", extreme<false>},
    Filter{"reject", choose<false, false>},
    Filter{"rejectattr", choose<false, true>},
    Filter{"reverse", reverse},
    Filter{"select", choose<true, false>},
    Filter{"selectattr", choose<true, true>},
    Filter{"sort", sort},
    Filter{"sum", sum},
    Filter{"unique", unique},
};

}  // namespace

std::span<const Filter> sequence_filters() { return kSequenceFilters; }

Result<Value> length_of(Budget& budget, const Value& value) {
  if (value.is_undefined()) return Value(int64_t{0});
  if (value.is_string()) return Value(static_cast<int64_t>(count_code_points(value.text(budget))));
  if (value.dict() != nullptr) return Value(static_cast<int64_t>(value.dict()->size()));
  const ListData* const list = value.list();
  if (list != nullptr && list->has_length()) return Value(static_cast<int64_t>(list->size()));
  return fail("object of type '{}' has no len()", type_name(value));
}

Result<Value> reach(Interpreter& interpreter, const Value& object, const Value& attribute) {
  if (!attribute.is_string()) return get_item(interpreter, object, attribute);
  Value value = object;
  std::string_view rest = attribute.text(interpreter.budget());
  while (true) {
    const size_t end = std::min(rest.find('.'), rest.size());
    const std::string_view part = rest.substr(0, end);
    const bool is_number =
        !part.empty() && part.size() < 10 && part.find_first_not_of("0123456789") == part.npos;
    int64_t number = 0;
    for (const char c : is_number ? part : "") number = number * 10 + (c - '0');
    PUMICE_TRY(value,
               get_item(interpreter, value, is_number ? Value(number) : interpreter.string(part)));
    if (end == rest.size()) return value;
    rest.remove_prefix(end + 1);
  }
}

}  // namespace pumice::jinja
