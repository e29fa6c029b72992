// Values with state of their own: namespaces and the variable `loop`.
#pragma once

#include <memory>
#include <optional>
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
  explicit Namespace(Budget& budget) : attributes_(budget) {}

  std::string_view type_name() const override { return "Namespace"; }
  bool is_callable() const override { return false; }
  std::optional<Value> attribute(Interpreter& interpreter, std::string_view name) override;
  void release() override { attributes_.clear(); }

  void set(std::string_view name, Value value);

 private:
  using Attribute = std::pair<Text, Value>;

  std::vector<Attribute, Paid<Attribute>> attributes_;
};

/// `loop` in a loop's body; called, the body of a recursive loop over other items.
class Loop : public Object {
 public:
  Loop(Budget& budget, const ForStatement& statement, std::weak_ptr<Scope> scope, Value items,
       int64_t depth)
      : Object(items.depth() + 1),
        statement_(statement),
        scope_(std::move(scope)),
        items_(std::move(items)),
        depth_(depth),
        last_changed_(budget) {}

  std::string_view type_name() const override { return "LoopContext"; }
  Result<Value> call(Interpreter& interpreter, const Arguments& arguments) override;
  std::optional<Value> attribute(Interpreter& interpreter, std::string_view name) override;
  void release() override { last_changed_.clear(); }

  void advance() { ++index0_; }
  Result<Value> cycle(const Arguments& arguments) const;
  Result<Value> changed(Budget& budget, const Arguments& arguments);

 private:
  Value neighbour(Budget& budget, int64_t index) const;

  const ForStatement& statement_;
  std::weak_ptr<Scope> scope_;
  Value items_;
  int64_t depth_;
  int64_t index0_ = 0;
  bool has_changed_ = false;
  Values last_changed_;
};

/// A loop while it runs. What a template keeps of it may hold itself, so the interpreter gets it.
class LoopInUse {
 public:
  LoopInUse(Interpreter& interpreter, Value loop)
      : interpreter_(interpreter), loop_(std::move(loop)) {}
  ~LoopInUse() {
    if (object()->use_count() > 1) interpreter_.retain(loop_);
  }
  LoopInUse(const LoopInUse&) = delete;
  LoopInUse& operator=(const LoopInUse&) = delete;

  const Value& value() const { return loop_; }
  void advance() { object()->advance(); }

 private:
  Loop* object() const { return static_cast<Loop*>(loop_.object()); }

  Interpreter& interpreter_;
  Value loop_;
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

inline Value bound_method(Budget& budget, Value self, BoundMethod::Body body) {
  return make_object<BoundMethod>(budget, std::move(self), body);
}

}  // namespace pumice::jinja
