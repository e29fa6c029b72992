// Values with state of their own: namespaces and the variable `loop`.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "text/jinja/ast.hpp"
#include "text/jinja/interpreter.hpp"
#include "text/jinja/value.hpp"

namespace pumice::jinja {

/// The only value that templates change: {% set ns.name = … %}.
class Namespace : public Object {
 public:
  std::string_view type_name() const override { return "Namespace"; }
  bool is_callable() const override { return false; }
  std::optional<Value> attribute(Interpreter& interpreter, std::string_view name) override;
  void release() override { attributes_.clear(); }

  void set(Budget& budget, std::string_view name, Value value);

 private:
  std::vector<std::pair<std::string, Value>> attributes_;
  std::vector<std::unique_ptr<Charge>> charges_;
};

/// `loop` in a loop's body; called, the body of a recursive loop over other items.
class Loop : public Object {
 public:
  Loop(const ForStatement& statement, std::weak_ptr<Scope> scope, Value items, int64_t depth)
      : Object(items.depth() + 1),
        statement_(statement),
        scope_(std::move(scope)),
        items_(std::move(items)),
        depth_(depth) {}

  std::string_view type_name() const override { return "LoopContext"; }
  Result<Value> call(Interpreter& interpreter, const Arguments& arguments) override;
  std::optional<Value> attribute(Interpreter& interpreter, std::string_view name) override;
  void release() override { last_changed_.clear(); }

  void advance() { ++index0_; }
  Result<Value> cycle(const Arguments& arguments) const;
  Result<Value> changed(Budget& budget, const Arguments& arguments);

 private:
  Value neighbour(int64_t index) const;

  const ForStatement& statement_;
  std::weak_ptr<Scope> scope_;
  Value items_;
  int64_t depth_;
  int64_t index0_ = 0;
  bool has_changed_ = false;
  std::vector<Value> last_changed_;
};

/// A loop while it runs. What a template keeps of it may hold itself, so the interpreter gets it.
class LoopInUse {
 public:
  LoopInUse(Interpreter& interpreter, std::shared_ptr<Loop> loop)
      : interpreter_(interpreter), loop_(std::move(loop)) {}
  ~LoopInUse() {
    if (loop_.use_count() > 1) interpreter_.retain(loop_);
  }
  LoopInUse(const LoopInUse&) = delete;
  LoopInUse& operator=(const LoopInUse&) = delete;

  Value value() const { return Value(std::shared_ptr<Object>(loop_)); }
  void advance() { loop_->advance(); }

 private:
  Interpreter& interpreter_;
  std::shared_ptr<Loop> loop_;
};

/// A method of `self`, which it keeps.
class BoundMethod : public Object {
 public:
  using Body = Result<Value> (*)(Interpreter& interpreter, const Value& self,
                                 const Arguments& arguments);
  BoundMethod(Value self, Body body)
      : Object(self.depth() + 1), self_(std::move(self)), body_(body) {}

  std::string_view type_name() const override { return "method"; }
  Result<Value> call(Interpreter& interpreter, const Arguments& arguments) override {
    return body_(interpreter, self_, arguments);
  }

 private:
  Value self_;
  Body body_;
};

inline Value bound_method(Value self, BoundMethod::Body body) {
  return Value(std::shared_ptr<Object>(std::make_shared<BoundMethod>(std::move(self), body)));
}

}  // namespace pumice::jinja
