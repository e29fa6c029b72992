// Functions that every template has.
#include <algorithm>
#include <array>
#include <ctime>

#include "base/printable.hpp"
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
  // In 128 bits no difference overflows.
  const __int128 span =
      step > 0 ? static_cast<__int128>(stop) - start : static_cast<__int128>(start) - stop;
  const __int128 stride = step > 0 ? static_cast<__int128>(step) : -static_cast<__int128>(step);
  const __int128 count = span <= 0 ? 0 : (span + stride - 1) / stride;
  if (count > kMaxRange) {
    return fail("range too big: the sandbox allows at most {} items", kMaxRange);
  }
  std::vector<Value> items;
  items.reserve(static_cast<size_t>(count));
  for (int64_t i = 0; i < static_cast<int64_t>(count); ++i) items.emplace_back(start + i * step);
  const std::string label = bound.has(2) && step != 1
                                ? fmt::format("range({}, {}, {})", start, stop, step)
                                : fmt::format("range({}, {})", start, stop);
  return make_list(interpreter.budget(), std::move(items), ListKind::kRange, label);
}

/// The entries of dict(…) and namespace(…): of a mapping or pairs, then those given by name.
Result<DictEntries> entries_of(Interpreter& interpreter, std::string_view what,
                               const Arguments& arguments) {
  DictEntries entries;
  if (arguments.positional.size() > 1) return fail("{} expected at most 1 argument", what);
  for (const Value& given : arguments.positional) {
    if (given.dict() != nullptr) {
      entries = given.dict()->entries;
      continue;
    }
    PUMICE_TRY(const std::vector<Value> pairs, interpreter.items(given));
    for (const Value& pair : pairs) {
      PUMICE_TRY(std::vector<Value> two, interpreter.items(pair));
      if (two.size() != 2) return fail("{} takes pairs", what);
      if (!is_hashable(two[0])) return fail("unhashable type: '{}'", type_name(two[0]));
      entries.emplace_back(std::move(two[0]), std::move(two[1]));
    }
  }
  for (const auto& [name, value] : arguments.named) {
    entries.emplace_back(interpreter.string(name), value);
  }
  return entries;
}

Result<Value> dict(Interpreter& interpreter, const Arguments& arguments) {
  PUMICE_TRY(DictEntries entries, entries_of(interpreter, "dict", arguments));
  return make_dict(interpreter.budget(), std::move(entries));
}

Result<Value> make_namespace(Interpreter& interpreter, const Arguments& arguments) {
  PUMICE_TRY(const DictEntries entries, entries_of(interpreter, "namespace", arguments));
  const auto result = std::make_shared<Namespace>();
  interpreter.budget().take(sizeof(Namespace));  // lives as long as the interpreter
  interpreter.retain(result);
  for (const auto& [name, value] : entries) {
    if (name.string() != nullptr) result->set(interpreter.budget(), *name.string(), value);
  }
  return Value(std::shared_ptr<Object>(result));
}

class Cycler : public Object {
 public:
  explicit Cycler(std::vector<Value> items, int depth) : Object(depth), items_(std::move(items)) {}

  std::string_view type_name() const override { return "Cycler"; }
  bool is_callable() const override { return false; }
  std::optional<Value> attribute(Interpreter&, std::string_view name) override {
    const auto method = [](Interpreter&, const Value& self, const Arguments&) {
      return Result<Value>(static_cast<Cycler&>(*self.object()).next());
    };
    const auto reset = [](Interpreter&, const Value& self, const Arguments&) {
      static_cast<Cycler&>(*self.object()).at_ = 0;
      return Result<Value>(Value());
    };
    if (name == "current") return items_[at_];
    if (name == "next") return bound_method(Value(shared_from_this()), method);
    if (name == "reset") return bound_method(Value(shared_from_this()), reset);
    return std::nullopt;
  }

 private:
  Value next() {
    const Value item = items_[at_];
    at_ = (at_ + 1) % items_.size();
    return item;
  }

  std::vector<Value> items_;
  size_t at_ = 0;
};

Result<Value> cycler(Interpreter& interpreter, const Arguments& arguments) {
  if (arguments.positional.empty() || !arguments.named.empty()) {
    return fail("at least one item has to be provided");
  }
  const int depth = depth_above(interpreter.budget(), arguments.positional);
  return Value(std::shared_ptr<Object>(std::make_shared<Cycler>(arguments.positional, depth)));
}

/// Nothing the first time it is called, its separator from then on.
class Joiner : public Object {
 public:
  explicit Joiner(Value separator) : separator_(std::move(separator)) {}

  std::string_view type_name() const override { return "Joiner"; }
  Result<Value> call(Interpreter&, const Arguments&) override {
    return std::exchange(used_, true) ? separator_ : Value::literal("");
  }

 private:
  Value separator_;
  bool used_ = false;
};

Result<Value> joiner(Interpreter& interpreter, const Arguments& arguments) {
  PUMICE_TRY(const Bound bound, Bound::bind("joiner", arguments, {"sep"}));
  PUMICE_TRY(const std::string_view separator, bound.text(0, ", "));
  return Value(std::shared_ptr<Object>(
      std::make_shared<Joiner>(interpreter.string(std::string(separator)))));
}

Result<Value> raise_exception(Interpreter& interpreter, const Arguments& arguments) {
  PUMICE_TRY(const Bound bound, Bound::bind("raise_exception", arguments, {"message"}, 1));
  return fail("{}", interpreter.str(*bound[0]));
}

Result<Value> strftime_now(Interpreter& interpreter, const Arguments& arguments) {
  PUMICE_TRY(const Bound bound, Bound::bind("strftime_now", arguments, {"format"}, 1));
  PUMICE_TRY(const std::string_view format, bound.text(0, ""));
  const std::tm now = interpreter.now();
  // One conversion at a time, none of which is long: a format of any length cannot overflow.
  TextBuilder text(interpreter.budget());
  for (size_t i = 0; i < format.size(); ++i) {
    const std::string conversion(format.substr(i, 2));
    if (format[i] != '%' || conversion.size() < 2) {
      text.append(format.substr(i, 1));
      continue;
    }
    std::array<char, 256> buffer;
    const size_t length = std::strftime(buffer.data(), buffer.size(), conversion.c_str(), &now);
    text.append({buffer.data(), length});
    ++i;
  }
  return interpreter.string(text.take_text());
}

struct Global {
  std::string_view name;
  Value value;
};

Global function(std::string_view name, Function::Body body) {
  return {name, Value(std::shared_ptr<Object>(std::make_shared<Function>(name, body)))};
}

}  // namespace

const Value* find_global(std::string_view name) {
  // Immutable, and without a budget: any number of templates share them.
  static const std::array kGlobals = {
      function("range", range),
      function("dict", dict),
      function("namespace", make_namespace),
      function("cycler", cycler),
      function("joiner", joiner),
      function("raise_exception", raise_exception),
      function("strftime_now", strftime_now),
  };
  const auto* found = std::find_if(kGlobals.begin(), kGlobals.end(),
                                   [&](const Global& global) { return global.name == name; });
  return found == kGlobals.end() ? nullptr : &found->value;
}

}  // namespace pumice::jinja
