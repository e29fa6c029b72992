#include "text/jinja/objects.hpp"

namespace pumice::jinja {
namespace {

Result<Value> call_cycle(Interpreter&, const Value& self, const Arguments& arguments) {
  return static_cast<const Loop&>(*self.object()).cycle(arguments);
}

Result<Value> call_changed(Interpreter& interpreter, const Value& self,
                           const Arguments& arguments) {
  return static_cast<Loop&>(*self.object()).changed(interpreter.budget(), arguments);
}

}  // namespace

std::optional<Value> Namespace::attribute(Interpreter& interpreter, std::string_view name) {
  interpreter.budget().walk(attributes_.size());
  for (const auto& attribute : attributes_) {
    if (attribute.first == name) return attribute.second;
  }
  return std::nullopt;
}

void Namespace::set(std::string_view name, Value value) {
  Budget& budget = budget_of(attributes_);
  budget.walk(attributes_.size());
  for (auto& attribute : attributes_) {
    if (attribute.first == name) {
      attribute.second = std::move(value);
      return;
    }
  }
  attributes_.emplace_back(Text(name, budget), std::move(value));
}

Result<Value> Loop::call(Interpreter& interpreter, const Arguments& arguments) {
  if (!statement_.recursive) {
    return fail("the loop must have the 'recursive' marker to be called");
  }
  if (arguments.positional.size() != 1 || !arguments.named.empty()) {
    return fail("loop() takes what to loop over");
  }
  return interpreter.call_loop(statement_, scope_.lock(), arguments.positional[0], depth_ + 1);
}

Value Loop::neighbour(Budget& budget, int64_t index) const {
  const ListData& items = *items_.list();
  if (index >= 0 && index < static_cast<int64_t>(items.size())) {
    return items.at(budget, static_cast<size_t>(index));
  }
  return Value::undefined(budget,
                          index < 0 ? "there is no previous item" : "there is no next item");
}

std::optional<Value> Loop::attribute(Interpreter& interpreter, std::string_view name) {
  Budget& budget = interpreter.budget();
  const auto length = static_cast<int64_t>(items_.list()->size());
  if (name == "index") return Value(index0_ + 1);
  if (name == "index0") return Value(index0_);
  if (name == "revindex") return Value(length - index0_);
  if (name == "revindex0") return Value(length - index0_ - 1);
  if (name == "first") return Value(index0_ == 0);
  if (name == "last") return Value(index0_ + 1 == length);
  if (name == "length") return Value(length);
  if (name == "depth") return Value(depth_);
  if (name == "depth0") return Value(depth_ - 1);
  if (name == "previtem") return neighbour(budget, index0_ - 1);
  if (name == "nextitem") return neighbour(budget, index0_ + 1);
  if (name == "cycle") return bound_method(budget, value(), call_cycle);
  if (name == "changed") return bound_method(budget, value(), call_changed);
  return std::nullopt;
}

Result<Value> Loop::cycle(const Arguments& arguments) const {
  if (arguments.positional.empty()) return fail("no items for cycling given");
  const auto count = static_cast<int64_t>(arguments.positional.size());
  return arguments.positional[static_cast<size_t>(index0_ % count)];
}

Result<Value> Loop::changed(Budget& budget, const Arguments& arguments) {
  bool same = has_changed_ && arguments.positional.size() == last_changed_.size();
  for (size_t i = 0; same && i < last_changed_.size(); ++i) {
    same = equal(budget, last_changed_[i], arguments.positional[i]);
  }
  if (same) return Value(false);
  has_changed_ = true;
  last_changed_ = arguments.positional;
  return Value(true);
}

}  // namespace pumice::jinja
