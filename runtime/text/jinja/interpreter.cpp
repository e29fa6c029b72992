#include "text/jinja/interpreter.hpp"

#include <algorithm>
#include <stdexcept>

#include "base/local_time.hpp"
#include "base/printable.hpp"
#include "text/jinja/filters.hpp"
#include "text/jinja/objects.hpp"
#include "text/jinja/operations.hpp"

namespace pumice::jinja {
namespace {

// Statements, expressions and calls inside each other. Python's own limit lets templates go less
// deep; a level takes about a kilobyte of the stack.
constexpr int kMaxRunDepth = 800;
constexpr size_t kMostErrorBytes = 600;

/// A macro, or what a call block passes as `caller`. Its scope is kept by the interpreter.
class Macro : public Object {
 public:
  Macro(const Signature& signature, const Body& body, std::weak_ptr<Scope> scope)
      : signature_(signature), body_(body), scope_(std::move(scope)) {}

  std::string_view type_name() const override { return "Macro"; }
  Result<Value> call(Interpreter& interpreter, const Arguments& arguments) override {
    return interpreter.call_macro(signature_, body_, scope_.lock(), arguments);
  }
  std::optional<Value> attribute(Interpreter& interpreter, std::string_view name) override {
    if (name == "name") return Value::borrowed(signature_.name);
    if (name == "caller") return Value(signature_.uses_caller);
    if (name == "catch_kwargs") return Value(signature_.uses_kwargs);
    if (name == "catch_varargs") return Value(signature_.uses_varargs);
    if (name != "arguments") return std::nullopt;
    Values names(interpreter.budget());
    for (const auto& parameter : signature_.parameters) names.push_back(Value::borrowed(parameter));
    return make_list(std::move(names), ListKind::kTuple);
  }

 private:
  const Signature& signature_;
  const Body& body_;
  std::weak_ptr<Scope> scope_;
};

}  // namespace

const Value* Scope::find(std::string_view name) const {
  for (const Scope* scope = this; scope != nullptr; scope = scope->parent.get()) {
    budget_of(scope->variables).walk(scope->variables.size());
    for (const auto& variable : scope->variables) {
      if (variable.first == name) return &variable.second;
    }
  }
  return nullptr;
}

void Scope::set(std::string_view name, Value value) {
  budget_of(variables).walk(variables.size());
  for (auto& variable : variables) {
    if (variable.first == name) {
      variable.second = std::move(value);
      return;
    }
  }
  variables.emplace_back(name, std::move(value));
}

class Interpreter::Level {
 public:
  explicit Level(Interpreter& interpreter) : interpreter_(interpreter) {
    interpreter_.budget_.step();
    if (interpreter_.depth_ == kMaxRunDepth) Budget::exceed("calls itself too deeply");
    ++interpreter_.depth_;
  }
  ~Level() { --interpreter_.depth_; }
  Level(const Level&) = delete;
  Level& operator=(const Level&) = delete;

 private:
  Interpreter& interpreter_;
};

Interpreter::Interpreter(const Template& program, Budget& budget, Value context,
                         std::optional<std::tm> now)
    : program_(program),
      budget_(budget),
      context_(std::move(context)),
      now_(now),
      globals_(budget, nullptr),
      kept_(budget) {}

Interpreter::~Interpreter() {
  while (retained_ != nullptr) {
    const std::shared_ptr<Object> object = std::move(retained_);
    retained_ = std::move(object->next_retained_);
    object->release();
  }
}

void Interpreter::retain(const Value& value) noexcept {
  std::shared_ptr<Object> object = value.object()->shared_from_this();
  object->next_retained_ = std::move(retained_);
  retained_ = std::move(object);
}

Result<Text> Interpreter::run() {
  Error error;
  try {
    Text text(budget_);
    out_ = &text;
    const Result<Flow> flow = run_body(program_.body, child(nullptr));
    if (flow.ok()) return text;
    error = flow.error();
  } catch (const Exhausted& exhausted) {
    error = exhausted.error;
  } catch (const std::length_error&) {  // no container can be that long
    error = make_error(ErrorCode::kDoesNotFit, "the chat template needs too much memory");
  }
  return make_error(error.code, "chat template, line {}: {}", line_,
                    printable(error.message, kMostErrorBytes));
}

std::tm Interpreter::now() const {
  if (now_) return *now_;
  return local_time(std::time(nullptr));
}

void Interpreter::keep(const ScopePtr& scope) {
  if (!std::exchange(scope->kept, true)) kept_.push_back(scope);
}

ScopePtr Interpreter::child(const ScopePtr& parent) {
  return std::allocate_shared<Scope>(Paid<Scope>(budget_), budget_, parent);
}

Value Interpreter::look_up(const Scope& scope, std::string_view name) {
  if (const Value* variable = scope.find(name)) return *variable;
  if (const Value* given = context_.dict()->find(budget_, name)) return *given;
  if (const Value* global = globals_.find(name)) return *global;
  if (const std::optional<Value> global = make_global(budget_, name)) {
    globals_.set(name, *global);
    return *global;
  }
  return undefined(fmt::format("'{}' is undefined", printable(name)));
}

// --- Statements.

Result<Interpreter::Flow> Interpreter::run_body(const Body& body, const ScopePtr& scope) {
  for (const auto& statement : body) {
    PUMICE_TRY(const Flow flow, run_statement(*statement, scope));
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Result<Interpreter::Flow> Interpreter::run_statement(const Statement& statement,
                                                     const ScopePtr& scope) {
  const Level level(*this);
  const int outer = std::exchange(line_, statement.line);
  Result<Flow> flow =
      std::visit([&](const auto& node) { return run(node, scope); }, statement.node);
  if (flow.ok()) line_ = outer;
  return flow;
}

Result<Interpreter::Flow> Interpreter::run(const TextStatement& text, const ScopePtr&) {
  *out_ += text.text;
  return Flow::kNext;
}

Result<Interpreter::Flow> Interpreter::run(const PrintStatement& print, const ScopePtr& scope) {
  PUMICE_TRY(const Value value, evaluate(*print.value, scope));
  append_str(*out_, value);
  return Flow::kNext;
}

Result<Interpreter::Flow> Interpreter::run(const IfStatement& choice, const ScopePtr& scope) {
  for (const auto& branch : choice.branches) {
    PUMICE_TRY(const Value condition, evaluate(*branch.first, scope));
    if (is_true(condition)) return run_body(branch.second, scope);
  }
  return run_body(choice.otherwise, scope);
}

Result<Interpreter::Flow> Interpreter::run(const ForStatement& loop, const ScopePtr& scope) {
  PUMICE_TRY(const Value items, evaluate(*loop.items, scope));
  return run_loop(loop, scope, items, 1);
}

Result<Values> Interpreter::loop_items(const ForStatement& loop, const ScopePtr& scope,
                                       const Value& given) {
  PUMICE_TRY(Values items, items_of(budget_, given));
  if (loop.condition == nullptr) return items;
  Values kept(budget_);
  for (Value& item : items) {
    const ScopePtr inner = child(scope);
    PUMICE_TRY_STATUS(assign(loop.target, *inner, item));
    PUMICE_TRY(const Value condition, evaluate(*loop.condition, inner));
    if (is_true(condition)) kept.push_back(std::move(item));
  }
  return kept;
}

Result<Interpreter::Flow> Interpreter::run_loop(const ForStatement& loop, const ScopePtr& scope,
                                                const Value& given, int64_t depth) {
  PUMICE_TRY(Values items, loop_items(loop, scope, given));
  if (items.empty()) return run_body(loop.otherwise, child(scope));
  if (loop.recursive) keep(scope);
  const Value list = make_list(std::move(items));
  LoopInUse state(*this, make_object<Loop>(budget_, budget_, loop, scope, list, depth));
  for (const Value& item : list.list()->items(budget_)) {
    const ScopePtr inner = child(scope);
    inner->set("loop", state.value());
    PUMICE_TRY_STATUS(assign(loop.target, *inner, item));
    PUMICE_TRY(const Flow flow, run_body(loop.body, inner));
    if (flow == Flow::kBreak) break;
    state.advance();
  }
  return Flow::kNext;
}

template <typename Run>
Result<Value> Interpreter::captured(const Run& run) {
  Text text(budget_);
  Text* const outer = std::exchange(out_, &text);
  const Result<Flow> flow = run();
  out_ = outer;
  if (!flow.ok()) return flow.error();
  return make_string(std::move(text));
}

Result<Value> Interpreter::call_loop(const ForStatement& loop, const ScopePtr& scope,
                                     const Value& items, int64_t depth) {
  const Level level(*this);
  return captured([&] { return run_loop(loop, scope, items, depth); });
}

Status Interpreter::assign(const Target& target, Scope& scope, const Value& value) {
  if (!target.attribute.empty()) {
    const Value object = look_up(scope, target.name);
    auto* space = dynamic_cast<Namespace*>(object.object());
    if (space == nullptr) return fail("cannot assign attribute on non-namespace object");
    space->set(target.attribute, value);
    return {};
  }
  if (!target.is_tuple) {
    scope.set(target.name, value);
    return {};
  }
  PUMICE_TRY(const Values items, items_of(budget_, value));
  if (items.size() != target.items.size()) {
    return fail("{} values to unpack, expected {}", items.size(), target.items.size());
  }
  for (size_t i = 0; i < items.size(); ++i) {
    PUMICE_TRY_STATUS(assign(target.items[i], scope, items[i]));
  }
  return {};
}

Result<Interpreter::Flow> Interpreter::run(const SetStatement& set, const ScopePtr& scope) {
  PUMICE_TRY(const Value value, evaluate(*set.value, scope));
  PUMICE_TRY_STATUS(assign(set.target, *scope, value));
  return Flow::kNext;
}

Result<Value> Interpreter::filtered(const Expr& filter, const ScopePtr& scope, const Value& input) {
  const Value* const outer = std::exchange(filter_input_, &input);
  Result<Value> result = evaluate(filter, scope);
  filter_input_ = outer;
  return result;
}

Result<Interpreter::Flow> Interpreter::run(const SetBlockStatement& set, const ScopePtr& scope) {
  PUMICE_TRY(Value value, captured([&] { return run_body(set.body, child(scope)); }));
  if (set.filter != nullptr) {
    PUMICE_TRY(value, filtered(*set.filter, scope, value));
  }
  PUMICE_TRY_STATUS(assign(set.target, *scope, value));
  return Flow::kNext;
}

Result<Interpreter::Flow> Interpreter::run(const FilterStatement& filter, const ScopePtr& scope) {
  PUMICE_TRY(const Value text, captured([&] { return run_body(filter.body, child(scope)); }));
  PUMICE_TRY(const Value value, filtered(*filter.filter, scope, text));
  append_str(*out_, value);
  return Flow::kNext;
}

Value Interpreter::macro(const Signature& signature, const Body& body, const ScopePtr& scope) {
  keep(scope);
  return make_object<Macro>(budget_, signature, body, scope);
}

Result<Interpreter::Flow> Interpreter::run(const MacroStatement& definition,
                                           const ScopePtr& scope) {
  scope->set(definition.signature.name, macro(definition.signature, definition.body, scope));
  return Flow::kNext;
}

Result<Interpreter::Flow> Interpreter::run(const CallStatement& statement, const ScopePtr& scope) {
  const auto& call = std::get<CallExpr>(statement.call->node);
  PUMICE_TRY(const Value callee, evaluate(*call.callee, scope));
  PUMICE_TRY(Arguments arguments, evaluate(call.arguments, scope));
  arguments.named.emplace_back("caller", macro(statement.caller, statement.body, scope));
  PUMICE_TRY(const Value value, this->call(callee, arguments));
  append_str(*out_, value);
  return Flow::kNext;
}

Result<Interpreter::Flow> Interpreter::run(const WithStatement& with, const ScopePtr& scope) {
  const ScopePtr inner = child(scope);
  for (const auto& [target, expression] : with.values) {
    PUMICE_TRY(const Value value, evaluate(*expression, scope));
    PUMICE_TRY_STATUS(assign(target, *inner, value));
  }
  return run_body(with.body, inner);
}

Result<Interpreter::Flow> Interpreter::run(LoopControl control, const ScopePtr&) {
  return control == LoopControl::kBreak ? Flow::kBreak : Flow::kContinue;
}

Result<Value> Interpreter::call_macro(const Signature& signature, const Body& body,
                                      const ScopePtr& closure, const Arguments& arguments) {
  const ScopePtr scope = child(closure);
  const auto& parameters = signature.parameters;
  const size_t n_given = std::min(arguments.positional.size(), parameters.size());
  if (n_given < arguments.positional.size() && !signature.uses_varargs) {
    return fail("macro '{}' takes not more than {} argument(s)", signature.name, parameters.size());
  }
  const size_t n_plain = parameters.size() - signature.defaults.size();
  for (size_t i = 0; i < parameters.size(); ++i) {
    const Value* by_name = arguments.find(parameters[i]);
    if (i < n_given && by_name != nullptr) {
      return fail("macro '{}' got two values for '{}'", signature.name, parameters[i]);
    }
    if (i < n_given || by_name != nullptr) {
      scope->set(parameters[i], i < n_given ? arguments.positional[i] : *by_name);
    } else if (i >= n_plain) {
      PUMICE_TRY(Value value, evaluate(*signature.defaults[i - n_plain], scope));
      scope->set(parameters[i], std::move(value));
    } else {
      scope->set(parameters[i],
                 undefined(fmt::format("parameter '{}' was not provided", parameters[i])));
    }
  }
  Entries more(budget_);
  for (const auto& [name, value] : arguments.named) {
    budget_.walk(parameters.size());
    if (std::ranges::find(parameters, name) != parameters.end()) continue;
    if (name == "caller" && signature.uses_caller) continue;
    if (!signature.uses_kwargs) {
      return fail("macro '{}' takes no keyword argument '{}'", signature.name, printable(name, 40));
    }
    more.emplace_back(string(name), value);
  }
  if (signature.uses_kwargs) scope->set("kwargs", make_dict(std::move(more)));
  if (signature.uses_varargs) {
    const auto& given = arguments.positional;
    scope->set("varargs", make_list(Values(given.begin() + static_cast<ptrdiff_t>(n_given),
                                           given.end(), budget_),
                                    ListKind::kTuple));
  }
  const bool has_caller = std::ranges::find(parameters, "caller") != parameters.end();
  if (signature.uses_caller && !has_caller) {
    const Value* caller = arguments.find("caller");
    scope->set("caller", caller != nullptr ? *caller : undefined("No caller defined"));
  }
  return captured([&] { return run_body(body, scope); });
}

// --- Expressions.

Result<Value> Interpreter::evaluate(const Expr& expression, const ScopePtr& scope) {
  const Level level(*this);
  const int outer = std::exchange(line_, expression.line);
  Result<Value> value =
      std::visit([&](const auto& node) { return evaluate(node, scope); }, expression.node);
  if (value.ok()) line_ = outer;
  return value;
}

Result<Value> Interpreter::evaluate(const ConstExpr& constant, const ScopePtr&) {
  return constant.value;
}

Result<Value> Interpreter::evaluate(const NameExpr& name, const ScopePtr& scope) {
  return look_up(*scope, name.name);
}

Result<Value> Interpreter::evaluate(const ListExpr& list, const ScopePtr& scope) {
  Values items(budget_);
  items.reserve(list.items.size());
  for (const ExprPtr& item : list.items) {
    PUMICE_TRY(Value value, evaluate(*item, scope));
    items.push_back(std::move(value));
  }
  return make_list(std::move(items), list.kind);
}

Result<Value> Interpreter::evaluate(const DictExpr& dict, const ScopePtr& scope) {
  Entries entries(budget_);
  for (const auto& [key_expression, value_expression] : dict.entries) {
    PUMICE_TRY(Value key, evaluate(*key_expression, scope));
    PUMICE_TRY(Value value, evaluate(*value_expression, scope));
    if (!is_hashable(budget_, key)) return fail("unhashable type: '{}'", type_name(key));
    entries.emplace_back(std::move(key), std::move(value));
  }
  return make_dict(std::move(entries));
}

Result<Value> Interpreter::evaluate(const ConditionalExpr& choice, const ScopePtr& scope) {
  PUMICE_TRY(const Value condition, evaluate(*choice.condition, scope));
  if (is_true(condition)) return evaluate(*choice.then, scope);
  if (choice.otherwise != nullptr) return evaluate(*choice.otherwise, scope);
  return undefined("the inline if-expression evaluated to false and no else was given");
}

Result<Value> Interpreter::evaluate(const UnaryExpr& unary, const ScopePtr& scope) {
  PUMICE_TRY(const Value value, evaluate(*unary.operand, scope));
  return unary_operation(unary.op, value);
}

Result<Value> Interpreter::evaluate(const BinaryExpr& binary, const ScopePtr& scope) {
  PUMICE_TRY(const Value left, evaluate(*binary.left, scope));
  PUMICE_TRY(const Value right, evaluate(*binary.right, scope));
  return binary_operation(budget_, binary.op, left, right);
}

Result<Value> Interpreter::evaluate(const LogicExpr& logic, const ScopePtr& scope) {
  PUMICE_TRY(Value left, evaluate(*logic.left, scope));
  if (is_true(left) != logic.is_and) return left;
  return evaluate(*logic.right, scope);
}

Result<Value> Interpreter::evaluate(const ConcatExpr& concat, const ScopePtr& scope) {
  Text text(budget_);
  for (const ExprPtr& part : concat.parts) {
    PUMICE_TRY(const Value value, evaluate(*part, scope));
    append_str(text, value);
  }
  return make_string(std::move(text));
}

Result<Value> Interpreter::evaluate(const CompareExpr& comparison, const ScopePtr& scope) {
  PUMICE_TRY(Value left, evaluate(*comparison.first, scope));
  for (const auto& [op, expression] : comparison.rest) {
    PUMICE_TRY(Value right, evaluate(*expression, scope));
    PUMICE_TRY(const bool holds, compare(budget_, op, left, right));
    if (!holds) return Value(false);
    left = std::move(right);
  }
  return Value(true);
}

Result<Value> Interpreter::evaluate(const AttributeExpr& attribute, const ScopePtr& scope) {
  PUMICE_TRY(const Value object, evaluate(*attribute.object, scope));
  return get_attribute(*this, object, attribute.name);
}

Result<Value> Interpreter::evaluate(const ItemExpr& item, const ScopePtr& scope) {
  PUMICE_TRY(const Value object, evaluate(*item.object, scope));
  PUMICE_TRY(const Value key, evaluate(*item.key, scope));
  return get_item(*this, object, key);
}

Result<Value> Interpreter::evaluate(const SliceExpr& slice, const ScopePtr& scope) {
  PUMICE_TRY(const Value object, evaluate(*slice.object, scope));
  Value bounds[3];
  const ExprPtr* const parts[3] = {&slice.start, &slice.stop, &slice.step};
  for (size_t i = 0; i < 3; ++i) {
    if (*parts[i] == nullptr) continue;
    PUMICE_TRY(bounds[i], evaluate(**parts[i], scope));
  }
  return get_slice(*this, object, bounds[0], bounds[1], bounds[2]);
}

Result<Arguments> Interpreter::evaluate(const CallArguments& given, const ScopePtr& scope) {
  Arguments arguments(budget_);
  arguments.positional.reserve(given.positional.size());
  for (const ExprPtr& argument : given.positional) {
    PUMICE_TRY(Value value, evaluate(*argument, scope));
    arguments.positional.push_back(std::move(value));
  }
  if (given.unpacked != nullptr) {
    PUMICE_TRY(const Value value, evaluate(*given.unpacked, scope));
    PUMICE_TRY(const Values items, items_of(budget_, value));
    arguments.positional.insert(arguments.positional.end(), items.begin(), items.end());
  }
  for (const auto& [name, expression] : given.named) {
    PUMICE_TRY(Value value, evaluate(*expression, scope));
    arguments.named.emplace_back(name, std::move(value));
  }
  if (given.unpacked_named != nullptr) {
    PUMICE_TRY(arguments.named_by, evaluate(*given.unpacked_named, scope));
    const DictData* mapping = arguments.named_by.dict();
    if (mapping == nullptr) return fail("argument after ** must be a mapping");
    for (const auto& [key, item] : mapping->entries(budget_)) {
      if (!key.is_string()) return fail("keywords must be strings");
      arguments.named.emplace_back(key.text(budget_), item);
    }
  }
  return arguments;
}

Result<Value> Interpreter::evaluate(const CallExpr& call_expression, const ScopePtr& scope) {
  PUMICE_TRY(const Value callee, evaluate(*call_expression.callee, scope));
  PUMICE_TRY(const Arguments arguments, evaluate(call_expression.arguments, scope));
  return call(callee, arguments);
}

Result<Value> Interpreter::call(const Value& callee, const Arguments& arguments) {
  const Level level(*this);
  if (callee.is_undefined()) return callee.why_undefined();
  if (callee.object() == nullptr) {
    return fail("'{}' object is not callable", type_name(callee));
  }
  const Value kept = callee;  // the call may replace where it came from
  return kept.object()->call(*this, arguments);
}

Result<Value> Interpreter::evaluate(const FilterExpr& filter_expression, const ScopePtr& scope) {
  Value input;
  if (filter_expression.input == nullptr) {
    input = *filter_input_;
  } else {
    PUMICE_TRY(input, evaluate(*filter_expression.input, scope));
  }
  PUMICE_TRY(const Arguments arguments, evaluate(filter_expression.arguments, scope));
  return filter(filter_expression.name, input, arguments);
}

Result<Value> Interpreter::evaluate(const TestExpr& test_expression, const ScopePtr& scope) {
  PUMICE_TRY(const Value input, evaluate(*test_expression.input, scope));
  PUMICE_TRY(const Arguments arguments, evaluate(test_expression.arguments, scope));
  PUMICE_TRY(const bool holds, test(test_expression.name, input, arguments));
  return Value(holds);
}

Result<Value> Interpreter::filter(std::string_view name, const Value& input,
                                  const Arguments& arguments) {
  const Level level(*this);
  const Filter* found = find_filter(name);
  if (found == nullptr) return fail("no filter named '{}'", printable(name, 40));
  return found->apply(*this, input, arguments);
}

Result<bool> Interpreter::test(std::string_view name, const Value& input,
                               const Arguments& arguments) {
  const Level level(*this);
  const Test* found = find_test(name);
  if (found == nullptr) return fail("no test named '{}'", printable(name, 40));
  return found->holds(*this, input, arguments);
}

}  // namespace pumice::jinja
