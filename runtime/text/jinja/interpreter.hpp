// Runs a parsed template once. Not thread-safe; nothing it makes outlives it.
#pragma once

#include <ctime>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "text/jinja/ast.hpp"
#include "text/jinja/budget.hpp"
#include "text/jinja/value.hpp"

namespace pumice::jinja {

struct Scope;
using ScopePtr = std::shared_ptr<Scope>;

/// Variables of a template, a body of a loop, a macro's call.
struct Scope {
  using Variable = std::pair<std::string_view, Value>;  // names are those of the template

  Scope(Budget& budget, ScopePtr outer) : parent(std::move(outer)), variables(budget) {}

  const Value* find(std::string_view name) const;
  void set(std::string_view name, Value value);

  ScopePtr parent;
  std::vector<Variable, Paid<Variable>> variables;
  bool kept = false;  ///< by the interpreter, for macros that are defined in it
};

class Interpreter {
 public:
  Interpreter(const Template& program, Budget& budget, Value context, std::optional<std::tm> now);
  ~Interpreter();
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  /// Errors: kInvalidArgument with the line and what went wrong there, kDoesNotFit or kCancelled
  /// where the budget ends.
  Result<Text> run();

  // For functions, filters, tests and methods.
  Budget& budget() { return budget_; }
  Value string(std::string_view text) { return copy_string(budget_, text); }
  Value undefined(std::string_view why) { return Value::undefined(budget_, why); }
  Text str(const Value& value) { return jinja::str(budget_, value); }
  Result<Values> items(const Value& value) { return items_of(budget_, value); }
  /// The caller's time, or the host's.
  std::tm now() const;
  Result<Value> call(const Value& callee, const Arguments& arguments);
  Result<Value> filter(std::string_view name, const Value& input, const Arguments& arguments);
  Result<bool> test(std::string_view name, const Value& input, const Arguments& arguments);
  /// What may come to hold itself lives as long as this, which lets go of what it holds.
  void retain(const Value& object) noexcept;

  // For macros and loops.
  Result<Value> call_macro(const Signature& signature, const Body& body, const ScopePtr& closure,
                           const Arguments& arguments);
  /// The text of a recursive loop over other items.
  Result<Value> call_loop(const ForStatement& loop, const ScopePtr& scope, const Value& items,
                          int64_t depth);

 private:
  enum class Flow { kNext, kBreak, kContinue };
  class Level;

  void keep(const ScopePtr& scope);
  ScopePtr child(const ScopePtr& parent);
  Value look_up(const Scope& scope, std::string_view name);

  Result<Flow> run_body(const Body& body, const ScopePtr& scope);
  Result<Flow> run_statement(const Statement& statement, const ScopePtr& scope);
  Result<Flow> run(const TextStatement& text, const ScopePtr& scope);
  Result<Flow> run(const PrintStatement& print, const ScopePtr& scope);
  Result<Flow> run(const IfStatement& choice, const ScopePtr& scope);
  Result<Flow> run(const ForStatement& loop, const ScopePtr& scope);
  Result<Flow> run(const SetStatement& set, const ScopePtr& scope);
  Result<Flow> run(const SetBlockStatement& set, const ScopePtr& scope);
  Result<Flow> run(const MacroStatement& macro, const ScopePtr& scope);
  Result<Flow> run(const CallStatement& call, const ScopePtr& scope);
  Result<Flow> run(const FilterStatement& filter, const ScopePtr& scope);
  Result<Flow> run(const WithStatement& with, const ScopePtr& scope);
  Result<Flow> run(LoopControl control, const ScopePtr& scope);

  Result<Flow> run_loop(const ForStatement& loop, const ScopePtr& scope, const Value& items,
                        int64_t depth);
  Result<Values> loop_items(const ForStatement& loop, const ScopePtr& scope, const Value& items);
  Status assign(const Target& target, Scope& scope, const Value& value);
  /// The text that `run` writes.
  template <typename Run>
  Result<Value> captured(const Run& run);
  Value macro(const Signature& signature, const Body& body, const ScopePtr& scope);
  Result<Value> filtered(const Expr& filter, const ScopePtr& scope, const Value& input);

  Result<Value> evaluate(const Expr& expression, const ScopePtr& scope);
  Result<Value> evaluate(const ConstExpr& constant, const ScopePtr& scope);
  Result<Value> evaluate(const NameExpr& name, const ScopePtr& scope);
  Result<Value> evaluate(const ListExpr& list, const ScopePtr& scope);
  Result<Value> evaluate(const DictExpr& dict, const ScopePtr& scope);
  Result<Value> evaluate(const ConditionalExpr& choice, const ScopePtr& scope);
  Result<Value> evaluate(const UnaryExpr& unary, const ScopePtr& scope);
  Result<Value> evaluate(const BinaryExpr& binary, const ScopePtr& scope);
  Result<Value> evaluate(const LogicExpr& logic, const ScopePtr& scope);
  Result<Value> evaluate(const ConcatExpr& concat, const ScopePtr& scope);
  Result<Value> evaluate(const CompareExpr& compare, const ScopePtr& scope);
  Result<Value> evaluate(const AttributeExpr& attribute, const ScopePtr& scope);
  Result<Value> evaluate(const ItemExpr& item, const ScopePtr& scope);
  Result<Value> evaluate(const SliceExpr& slice, const ScopePtr& scope);
  Result<Value> evaluate(const CallExpr& call, const ScopePtr& scope);
  Result<Value> evaluate(const FilterExpr& filter, const ScopePtr& scope);
  Result<Value> evaluate(const TestExpr& test, const ScopePtr& scope);
  Result<Arguments> evaluate(const CallArguments& arguments, const ScopePtr& scope);

  const Template& program_;
  Budget& budget_;
  Value context_;
  std::optional<std::tm> now_;
  Text* out_ = nullptr;
  const Value* filter_input_ = nullptr;  ///< of a filter or set block whose chain is evaluated
  int depth_ = 0;
  int line_ = 0;  ///< of what runs; after an error, of what failed
  Scope globals_;
  std::shared_ptr<Object> retained_;  ///< the last, which has the one before it
  /// Of macros and recursive loops, which do not own them.
  std::vector<ScopePtr, Paid<ScopePtr>> kept_;
};

}  // namespace pumice::jinja
