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

Value generator(Interpreter& interpreter, std::vector<Value> items, std::string name) {
  return make_list(interpreter.budget(), std::move(items), ListKind::kGenerator, std::move(name));
}

Value without_case(Interpreter& interpreter, const Value& value) {
  return value.string() == nullptr ? value : interpreter.string(lower(*value.string()));
}

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
  std::vector<Value> parts;
  const std::string* names = key.attribute->string();
  for (auto rest = names == nullptr ? std::string_view() : std::string_view(*names);;) {
    const size_t end = std::min(rest.find(','), rest.size());
    const Value attribute =
        names == nullptr ? *key.attribute : interpreter.string(std::string(rest.substr(0, end)));
    PUMICE_TRY(Value part, (Key{&attribute, key.case_sensitive}.of(interpreter, item)));
    parts.push_back(std::move(part));
    if (end == rest.size()) break;
    rest.remove_prefix(end + 1);
  }
  return make_list(interpreter.budget(), std::move(parts), ListKind::kTuple);
}

/// Sorts by .first, stably; equal ones keep their order when it is reversed too.
Status sort_by_key(Budget& budget, std::vector<std::pair<Value, Value>>& items, bool reverse) {
  Status failed;
  std::stable_sort(items.begin(), items.end(), [&](const auto& a, const auto& b) {
    if (!failed.ok()) return false;
    const Result<bool> before =
        reverse ? less(budget, b.first, a.first) : less(budget, a.first, b.first);
    if (!before.ok()) failed = before.error();
    return before.ok() && *before;
  });
  return failed;
}

Result<Value> sort(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  PUMICE_TRY(const Bound bound,
             Bound::bind("sort", arguments, {"reverse", "case_sensitive", "attribute"}));
  PUMICE_TRY(const std::vector<Value> items, interpreter.items(input));
  const Key key{bound[2], bound.truth(1, false)};
  std::vector<std::pair<Value, Value>> keyed;
  for (const Value& item : items) {
    PUMICE_TRY(Value own, sort_key(interpreter, key, item));
    keyed.emplace_back(std::move(own), item);
  }
  PUMICE_TRY_STATUS(sort_by_key(interpreter.budget(), keyed, bound.truth(0, false)));
  std::vector<Value> sorted;
  for (auto& entry : keyed) sorted.push_back(std::move(entry.second));
  return make_list(interpreter.budget(), std::move(sorted));
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
  std::vector<std::pair<Value, Value>> keyed;
  for (const auto& [name, value] : input.dict()->entries) {
    const Value& own = by == "key" ? name : value;
    keyed.emplace_back(bound.truth(0, false) ? own : without_case(interpreter, own),
                       make_list(interpreter.budget(), {name, value}, ListKind::kTuple));
  }
  PUMICE_TRY_STATUS(sort_by_key(interpreter.budget(), keyed, bound.truth(2, false)));
  std::vector<Value> sorted;
  for (auto& entry : keyed) sorted.push_back(std::move(entry.second));
  return make_list(interpreter.budget(), std::move(sorted));
}

Result<Value> groupby(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  PUMICE_TRY(const Bound bound,
             Bound::bind("groupby", arguments, {"attribute", "default", "case_sensitive"}, 1));
  PUMICE_TRY(const std::vector<Value> items, interpreter.items(input));
  const bool case_sensitive = bound.truth(2, false);
  std::vector<std::pair<Value, Value>> keyed;  // (key to compare, (key to show, item))
  for (const Value& item : items) {
    PUMICE_TRY(Value shown, reach(interpreter, item, *bound[0]));
    if (shown.is_undefined()) shown = bound.value(1, shown);
    keyed.emplace_back(case_sensitive ? shown : without_case(interpreter, shown),
                       make_list(interpreter.budget(), {shown, item}, ListKind::kTuple));
  }
  PUMICE_TRY_STATUS(sort_by_key(interpreter.budget(), keyed, false));
  std::vector<Value> groups;
  for (size_t i = 0; i < keyed.size();) {
    const Value shown = keyed[i].second.list()->items[0];
    const Value& own = keyed[i].first;
    std::vector<Value> members;
    for (; i < keyed.size() && equal(interpreter.budget(), own, keyed[i].first); ++i) {
      members.push_back(keyed[i].second.list()->items[1]);
    }
    PUMICE_TRY_STATUS(interpreter.budget().status());
    if (members.empty()) return fail("groupby() cannot compare its keys");  // NaN
    groups.push_back(make_list(interpreter.budget(),
                               {shown, make_list(interpreter.budget(), std::move(members))},
                               ListKind::kTuple, "group"));
  }
  return make_list(interpreter.budget(), std::move(groups));
}

Result<Value> unique(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  PUMICE_TRY(const Bound bound, Bound::bind("unique", arguments, {"case_sensitive", "attribute"}));
  PUMICE_TRY(const std::vector<Value> items, interpreter.items(input));
  const Key key{bound[1], bound.truth(0, false)};
  DictEntries first;  // a dict keeps the first of equal keys in place
  std::vector<Value> keys;
  for (size_t i = 0; i < items.size(); ++i) {
    PUMICE_TRY(Value own, key.of(interpreter, items[i]));
    if (!is_hashable(own)) return fail("unhashable type: '{}'", type_name(own));
    keys.push_back(std::move(own));
  }
  for (size_t i = items.size(); i-- > 0;) {
    first.emplace_back(keys[i], Value(static_cast<int64_t>(i)));
  }
  const Value index = make_dict(interpreter.budget(), std::move(first));
  std::vector<Value> result;
  for (size_t i = 0; i < items.size(); ++i) {
    const Value* found = index.dict()->find(interpreter.budget(), keys[i]);
    if (found != nullptr && *found->integer() == static_cast<int64_t>(i))
      result.push_back(items[i]);
  }
  return generator(interpreter, std::move(result), "sync_do_unique");
}

template <bool kMax>
Result<Value> extreme(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  PUMICE_TRY(const Bound bound, Bound::bind("min", arguments, {"case_sensitive", "attribute"}));
  PUMICE_TRY(const std::vector<Value> items, interpreter.items(input));
  if (items.empty()) return Value::undefined("No aggregated item, sequence was empty.");
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
  PUMICE_TRY(const std::vector<Value> items, interpreter.items(input));
  Value total = bound.value(1, Value(int64_t{0}));
  const Key key{bound[0], true};
  for (const Value& item : items) {
    PUMICE_TRY(const Value own, key.of(interpreter, item));
    PUMICE_TRY(total, binary_operation(interpreter.budget(), BinaryOp::kAdd, total, own));
    PUMICE_TRY_STATUS(interpreter.budget().status());
  }
  return total;
}

Result<Value> length(Interpreter& interpreter, const Value& input, const Arguments&) {
  if (input.is_undefined()) return Value(int64_t{0});
  if (const std::string* text = input.string()) {
    interpreter.budget().scan(text->size());
    return Value(static_cast<int64_t>(count_code_points(*text)));
  }
  const bool has_length =
      input.dict() != nullptr || (input.list() != nullptr && input.list()->has_length());
  if (!has_length) return fail("object of type '{}' has no len()", type_name(input));
  return Value(static_cast<int64_t>(input.dict() != nullptr ? input.dict()->entries.size()
                                                            : input.list()->items.size()));
}

Result<Value> first(Interpreter& interpreter, const Value& input, const Arguments&) {
  PUMICE_TRY(std::vector<Value> items, interpreter.items(input));
  if (items.empty()) return Value::undefined("No first item, sequence was empty.");
  return std::move(items.front());
}

Result<Value> last(Interpreter& interpreter, const Value& input, const Arguments&) {
  if (input.list() != nullptr && !input.list()->has_length()) {
    return fail("'generator' object is not reversible");
  }
  PUMICE_TRY(std::vector<Value> items, interpreter.items(input));
  if (items.empty()) return Value::undefined("No last item, sequence was empty.");
  return std::move(items.back());
}

Result<Value> reverse(Interpreter& interpreter, const Value& input, const Arguments&) {
  PUMICE_TRY(std::vector<Value> items, interpreter.items(input));
  std::reverse(items.begin(), items.end());
  if (input.string() == nullptr) return generator(interpreter, std::move(items), "reversed");
  TextBuilder out(interpreter.budget());
  for (const Value& item : items) out.append(*item.string());
  return interpreter.string(out.take_text());
}

Result<Value> list(Interpreter& interpreter, const Value& input, const Arguments&) {
  PUMICE_TRY(std::vector<Value> items, interpreter.items(input));
  return make_list(interpreter.budget(), std::move(items));
}

Result<Value> pairs(Interpreter& interpreter, const Value& input, const Arguments&) {
  if (input.is_undefined()) return generator(interpreter, {}, "do_items");
  if (input.dict() == nullptr) return fail("Can only get item pairs from a mapping.");
  std::vector<Value> items;
  for (const auto& [key, value] : input.dict()->entries) {
    items.push_back(make_list(interpreter.budget(), {key, value}, ListKind::kTuple));
  }
  return generator(interpreter, std::move(items), "do_items");
}

Result<Value> join(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  PUMICE_TRY(const Bound bound, Bound::bind("join", arguments, {"d", "attribute"}));
  PUMICE_TRY(const std::vector<Value> items, interpreter.items(input));
  const std::string separator = bound.has(0) ? interpreter.str(*bound[0]) : "";
  const Key key{bound[1], true};
  TextBuilder out(interpreter.budget());
  for (size_t i = 0; i < items.size() && !out.full(); ++i) {
    PUMICE_TRY(const Value item, key.of(interpreter, items[i]));
    if (i > 0) out.append(separator);
    append_str(out, item);
  }
  return interpreter.string(out.take_text());
}

/// The arguments behind the first `n`, for the filter or test that they name.
Arguments behind(Interpreter& interpreter, const Arguments& arguments, size_t n) {
  interpreter.budget().step(arguments.positional.size() + arguments.named.size());
  Arguments rest{.positional = {}, .named = arguments.named};
  rest.positional.assign(arguments.positional.begin() + static_cast<ptrdiff_t>(n),
                         arguments.positional.end());
  return rest;
}

Result<Value> map(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  PUMICE_TRY(const std::vector<Value> items, interpreter.items(input));
  std::vector<Value> result;
  const bool by_attribute = arguments.positional.empty();
  Value attribute;
  Value fallback = Value::undefined("");
  if (by_attribute) {
    PUMICE_TRY(const Bound bound, Bound::bind("map", arguments, {"attribute", "default"}, 1));
    attribute = *bound[0];
    fallback = bound.value(1, fallback);
  }
  const std::string* name = by_attribute ? nullptr : arguments.positional[0].string();
  if (!by_attribute && name == nullptr) return fail("map requires a filter's name");
  const Arguments rest = by_attribute ? Arguments() : behind(interpreter, arguments, 1);
  const bool has_fallback = by_attribute && arguments.named.size() > 1;
  for (const Value& item : items) {
    PUMICE_TRY(Value value, by_attribute ? reach(interpreter, item, attribute)
                                         : interpreter.filter(*name, item, rest));
    if (has_fallback && value.is_undefined()) value = fallback;
    result.push_back(std::move(value));
  }
  return generator(interpreter, std::move(result), "sync_do_map");
}

template <bool kKeep, bool kByAttribute>
Result<Value> choose(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  PUMICE_TRY(const std::vector<Value> items, interpreter.items(input));
  constexpr size_t kTest = kByAttribute ? 1 : 0;
  if (arguments.positional.size() < kTest) return fail("Missing parameter for attribute name");
  const bool has_test = arguments.positional.size() > kTest;
  const std::string* name = has_test ? arguments.positional[kTest].string() : nullptr;
  if (has_test && name == nullptr) return fail("a test's name must be a string");
  const Arguments rest = has_test ? behind(interpreter, arguments, kTest + 1) : Arguments();
  std::vector<Value> chosen;
  for (const Value& item : items) {
    Value subject = item;
    if (kByAttribute) {
      PUMICE_TRY(subject, reach(interpreter, item, arguments.positional[0]));
    }
    PUMICE_TRY(const bool holds,
               has_test ? interpreter.test(*name, subject, rest) : Result<bool>(is_true(subject)));
    if (holds == kKeep) chosen.push_back(item);
  }
  return generator(interpreter, std::move(chosen), "select_or_reject");
}

Result<Value> batch(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  PUMICE_TRY(const Bound bound, Bound::bind("batch", arguments, {"linecount", "fill_with"}, 1));
  PUMICE_TRY(const int64_t size, bound.integer(0, 0));
  PUMICE_TRY(const std::vector<Value> items, interpreter.items(input));
  if (size < 1) return fail("batch() takes a positive size");
  const auto n = static_cast<size_t>(size);
  std::vector<Value> batches;
  for (size_t at = 0; at < items.size(); at += n) {
    const size_t end = items.size() - at < n ? items.size() : at + n;
    std::vector<Value> batch(items.begin() + static_cast<ptrdiff_t>(at),
                             items.begin() + static_cast<ptrdiff_t>(end));
    if (bound.has(1)) {
      constexpr size_t kValueBytes = 64;
      const bool fits = n < SIZE_MAX / kValueBytes;
      if (!interpreter.budget().allows(fits ? n * kValueBytes : SIZE_MAX)) break;
      batch.resize(n, *bound[1]);
    }
    batches.push_back(make_list(interpreter.budget(), std::move(batch)));
    if (items.size() - at < n) break;
  }
  return generator(interpreter, std::move(batches), "do_batch");
}

Result<Value> slices(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  PUMICE_TRY(const Bound bound, Bound::bind("slice", arguments, {"slices", "fill_with"}, 1));
  PUMICE_TRY(const int64_t count, bound.integer(0, 0));
  PUMICE_TRY(const std::vector<Value> items, interpreter.items(input));
  if (count < 1) return fail("slice() takes a positive number");
  const auto n = static_cast<size_t>(count);
  const size_t each = items.size() / n;
  const size_t n_longer = items.size() % n;
  std::vector<Value> result;
  size_t at = 0;
  for (size_t i = 0; i < n && !interpreter.budget().exhausted(); ++i) {
    const size_t end = at + each + (i < n_longer ? 1 : 0);
    std::vector<Value> part(items.begin() + static_cast<ptrdiff_t>(at),
                            items.begin() + static_cast<ptrdiff_t>(end));
    if (bound.has(1) && i >= n_longer) part.push_back(*bound[1]);
    result.push_back(make_list(interpreter.budget(), std::move(part)));
    at = end;
  }
  return generator(interpreter, std::move(result), "sync_do_slice");
}

constexpr std::array kSequenceFilters = {
    Filter{"batch", batch},
    Filter{"count", length},
    Filter{"dictsort", dictsort},
    Filter{"first", first},
    Filter{"groupby", groupby},
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
    Filter{"slice", slices},
    Filter{"sort", sort},
    Filter{"sum", sum},
    Filter{"unique", unique},
};

}  // namespace

std::span<const Filter> sequence_filters() { return kSequenceFilters; }

Result<Value> reach(Interpreter& interpreter, const Value& object, const Value& attribute) {
  const std::string* path = attribute.string();
  if (path == nullptr) return get_item(interpreter, object, attribute);
  Value value = object;
  std::string_view rest = *path;
  while (true) {
    const size_t end = std::min(rest.find('.'), rest.size());
    const std::string_view part = rest.substr(0, end);
    const bool is_number =
        !part.empty() && part.size() < 10 && part.find_first_not_of("0123456789") == part.npos;
    int64_t number = 0;
    for (const char c : is_number ? part : "") number = number * 10 + (c - '0');
    PUMICE_TRY(value, get_item(interpreter, value,
                               is_number ? Value(number) : interpreter.string(std::string(part))));
    if (end == rest.size()) return value;
    rest.remove_prefix(end + 1);
  }
}

}  // namespace pumice::jinja
