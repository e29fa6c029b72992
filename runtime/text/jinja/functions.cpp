// Functions that every template has.
#include <algorithm>
#include <array>
#include <ctime>

#include "text/jinja/arguments.hpp"
#include "text/jinja/objects.hpp"
#include "text/jinja/operations.hpp"

namespace pumice::jinja {
namespace {

constexpr int64_t kMaxRange = 100'000;  // Jinja2's MAX_RANGE

class Function : public Object {
 public:
  using Body = Result<Value> (*)(Interpreter& interpreter, const Arguments& arguments);
  Function(std::string_view name, Body body) : name_(name), body_(body) {}

  std::string_view type_name() const override { return "function"; }
  std::string_view name() const { return name_; }
  Result<Value> call(Interpreter& interpreter, const Arguments& arguments) override {
    return body_(interpreter, arguments);
  }

 private:
  std::string_view name_;
  Body body_;
};

Result<Value> range(Interpreter& interpreter, const Arguments& arguments) {
  PUMICE_TRY(const Bound bound, Bound::bind("range", arguments, {"start", "stop", "step"}, 1));
  PUMICE_TRY(const int64_t first, bound.integer(0, 0));
  PUMICE_TRY(const int64_t second, bound.integer(1, 0));
  PUMICE_TRY(const int64_t step, bound.integer(2, 1));
  const int64_t start = bound.has(1) ? first : 0;
  const int64_t stop = bound.has(1) ? second : first;
  if (step == 0) return fail("range() arg 3 must not be zero");
  // Without a sign no difference overflows, and what wraps around on the way to an item is right.
  const uint64_t from = static_cast<uint64_t>(start), by = static_cast<uint64_t>(step);
  const bool is_empty = step > 0 ? start >= stop : start <= stop;
  const uint64_t span =
      step > 0 ? static_cast<uint64_t>(stop) - from : from - static_cast<uint64_t>(stop);
  const uint64_t stride = step > 0 ? by : 0 - by;
  const uint64_t count = is_empty ? 0 : (span - 1) / stride + 1;
  if (count > kMaxRange) {
    return fail("range too big: the sandbox allows at most {} items", kMaxRange);
  }
  Budget& budget = interpreter.budget();
  Values items(budget);
  items.reserve(static_cast<size_t>(count));
  for (uint64_t i = 0; i < count; ++i) items.emplace_back(static_cast<int64_t>(from + i * by));
  Text label = step != 1 ? formatted(budget, "range({}, {}, {})", start, stop, step)
                         : formatted(budget, "range({}, {})", start, stop);
  return make_list(std::move(items), ListKind::kRange, make_string(std::move(label)));
}

/// The entries of dict(…) and namespace(…): of a mapping or pairs, then those given by name.
Result<Entries> entries_of(Interpreter& interpreter, std::string_view what,
                           const Arguments& arguments) {
  Budget& budget = interpreter.budget();
  Entries entries(budget);
  if (arguments.positional.size() > 1) return fail("{} expected at most 1 argument", what);
  for (const Value& given : arguments.positional) {
    if (given.dict() != nullptr) {
      entries = given.dict()->entries(budget);
      continue;
    }
    PUMICE_TRY(const Values pairs, interpreter.items(given));
    for (const Value& pair : pairs) {
      PUMICE_TRY(Values two, interpreter.items(pair));
      if (two.size() != 2) return fail("{} takes pairs", what);
      if (!is_hashable(budget, two[0])) return fail("unhashable type: '{}'", type_name(two[0]));
      entries.emplace_back(std::move(two[0]), std::move(two[1]));
    }
  }
  for (const auto& [name, value] : arguments.named) {
    entries.emplace_back(interpreter.string(name), value);
  }
  return entries;
}

Result<Value> dict(Interpreter& interpreter, const Arguments& arguments) {
  PUMICE_TRY(Entries entries, entries_of(interpreter, "dict", arguments));
  return make_dict(std::move(entries));
}

Result<Value> make_namespace(Interpreter& interpreter, const Arguments& arguments) {
  PUMICE_TRY(const Entries entries, entries_of(interpreter, "namespace", arguments));
  Budget& budget = interpreter.budget();
  const Value result = make_object<Namespace>(budget, budget);
  interpreter.retain(result);  // it may come to hold itself
  for (const auto& [name, value] : entries) {
    if (name.is_string()) static_cast<Namespace*>(result.object())->set(name.text(budget), value);
  }
  return result;
}

/// Nothing the first time it is called, its separator from then on.
class Joiner : public Object {
 public:
  explicit Joiner(Value separator)
      : Object(separator.depth() + 1), separator_(std::move(separator)) {}

  std::string_view type_name() const override { return "Joiner"; }
  Result<Value> call(Interpreter&, const Arguments&) override {
    return std::exchange(used_, true) ? separator_ : Value::borrowed("");
  }

 private:
  Value separator_;
  bool used_ = false;
};

Result<Value> joiner(Interpreter& interpreter, const Arguments& arguments) {
  PUMICE_TRY(const Bound bound, Bound::bind("joiner", arguments, {"sep"}));
  return make_object<Joiner>(interpreter.budget(), bound.value(0, Value::borrowed(", ")));
}

Result<Value> raise_exception(Interpreter& interpreter, const Arguments& arguments) {
  PUMICE_TRY(const Bound bound, Bound::bind("raise_exception", arguments, {"message"}, 1));
  // As much as an error shows.
  constexpr size_t kMostBytes = 1000;
  return fail("{}", std::string_view(interpreter.str(*bound[0])).substr(0, kMostBytes));
}

Result<Value> strftime_now(Interpreter& interpreter, const Arguments& arguments) {
  PUMICE_TRY(const Bound bound, Bound::bind("strftime_now", arguments, {"format"}, 1));
  PUMICE_TRY(const std::string_view format, bound.text(0, ""));
  const std::tm now = interpreter.now();
  // One conversion at a time, none of which is long: a format of any length cannot overflow.
  Text text(interpreter.budget());
  for (size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%' || i + 1 == format.size()) {
      text += format[i];
      continue;
    }
    interpreter.budget().step();
    const std::array<char, 3> conversion = {'%', format[++i], '\0'};
    std::array<char, 256> buffer;
    text.append(buffer.data(),
                std::strftime(buffer.data(), buffer.size(), conversion.data(), &now));
  }
  return make_string(std::move(text));
}

struct Global {
  std::string_view name;
  Function::Body body;
};

constexpr Global kGlobals[] = {
    {"range", range},
    {"dict", dict},
    {"namespace", make_namespace},
    {"joiner", joiner},
    {"raise_exception", raise_exception},
    {"strftime_now", strftime_now},
};

}  // namespace

std::optional<Value> make_global(Budget& budget, std::string_view name) {
  for (const Global& global : kGlobals) {
    if (global.name == name) return make_object<Function>(budget, global.name, global.body);
  }
  return std::nullopt;
}

}  // namespace pumice::jinja
