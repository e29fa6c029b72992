// What a template consists of. Immutable once parsed; depth is at most kMaxDepth.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "text/jinja/value.hpp"

namespace pumice::jinja {

struct Expr;
using ExprPtr = std::unique_ptr<const Expr>;

struct CallArguments {
  std::vector<ExprPtr> positional;
  std::vector<std::pair<std::string, ExprPtr>> named;
  ExprPtr unpacked;        ///< *expression
  ExprPtr unpacked_named;  ///< **expression
};

/// Strings are those of `text`.
struct ConstExpr {
  Value value;
  std::unique_ptr<const std::string> text = nullptr;
};
struct NameExpr {
  std::string name;
};
struct ListExpr {
  ListKind kind;
  std::vector<ExprPtr> items;
};
struct DictExpr {
  std::vector<std::pair<ExprPtr, ExprPtr>> entries;
};
struct ConditionalExpr {
  ExprPtr condition, then, otherwise;  ///< `otherwise` may be null: undefined
};
enum class UnaryOp { kNot, kNegative, kPositive };
struct UnaryExpr {
  UnaryOp op;
  ExprPtr operand;
};
enum class BinaryOp { kAdd, kSubtract, kMultiply, kDivide, kFloorDivide, kModulo, kPower };
struct BinaryExpr {
  BinaryOp op;
  ExprPtr left, right;
};
struct LogicExpr {
  bool is_and;
  ExprPtr left, right;
};
struct ConcatExpr {
  std::vector<ExprPtr> parts;
};
enum class CompareOp { kEqual, kNotEqual, kLess, kLessEqual, kGreater, kGreaterEqual, kIn, kNotIn };
struct CompareExpr {
  ExprPtr first;
  std::vector<std::pair<CompareOp, ExprPtr>> rest;
};
struct AttributeExpr {
  ExprPtr object;
  std::string name;
};
struct ItemExpr {
  ExprPtr object, key;
};
struct SliceExpr {
  ExprPtr object, start, stop, step;  ///< all but the object may be null
};
struct CallExpr {
  ExprPtr callee;
  CallArguments arguments;
};
/// With a null input the body of a filter or set block.
struct FilterExpr {
  ExprPtr input;
  std::string name;
  CallArguments arguments;
};
struct TestExpr {
  ExprPtr input;
  std::string name;
  CallArguments arguments;
};

struct Expr {
  std::variant<ConstExpr, NameExpr, ListExpr, DictExpr, ConditionalExpr, UnaryExpr, BinaryExpr,
               LogicExpr, ConcatExpr, CompareExpr, AttributeExpr, ItemExpr, SliceExpr, CallExpr,
               FilterExpr, TestExpr>
      node;
  int line = 0;
  int depth = 1;
};

struct Statement;
using Body = std::vector<std::unique_ptr<const Statement>>;

/// A name, an attribute of a namespace, or a tuple of targets.
struct Target {
  std::string name;
  std::string attribute;      ///< empty: the name itself
  std::vector<Target> items;  ///< of a tuple, which has no name
  bool is_tuple = false;
};

/// Of a macro or a call block.
struct Signature {
  std::string name;
  std::vector<std::string> parameters;
  std::vector<ExprPtr> defaults;  ///< of the last parameters
  bool uses_caller = false;
  bool uses_varargs = false;
  bool uses_kwargs = false;
};

struct TextStatement {
  std::string text;
};
struct PrintStatement {
  ExprPtr value;
};
struct IfStatement {
  std::vector<std::pair<ExprPtr, Body>> branches;
  Body otherwise;
};
struct ForStatement {
  Target target;
  ExprPtr items, condition;  ///< `condition` may be null
  Body body, otherwise;
  bool recursive = false;
};
struct SetStatement {
  Target target;
  ExprPtr value;
};
struct SetBlockStatement {
  Target target;
  ExprPtr filter;  ///< may be null
  Body body;
};
struct MacroStatement {
  Signature signature;
  Body body;
};
struct CallStatement {
  Signature caller;
  Body body;
  ExprPtr call;  ///< a CallExpr
};
struct FilterStatement {
  ExprPtr filter;
  Body body;
};
struct WithStatement {
  std::vector<std::pair<Target, ExprPtr>> values;
  Body body;
};
enum class LoopControl { kBreak, kContinue };

struct Statement {
  std::variant<TextStatement, PrintStatement, IfStatement, ForStatement, SetStatement,
               SetBlockStatement, MacroStatement, CallStatement, FilterStatement, WithStatement,
               LoopControl>
      node;
  int line = 0;
};

struct Template {
  Body body;
};

}  // namespace pumice::jinja
