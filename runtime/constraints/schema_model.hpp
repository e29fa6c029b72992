// What a schema says of a value, apart from how schemas write it: a *goal* is a set of schemas and of
// denied schemas that all hold of one value, and a goal's *shapes* are what it says by type, as
// alternatives. allOf, $ref and siblings join sets, `not` is the denied member, and children of a shape
// are goals again, so that recursion is a goal met before.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "constraints/decimal.hpp"
#include "constraints/schema_document.hpp"
#include "constraints/schema_texts.hpp"

namespace pumice::schema {

/// A schema of the document that holds of a value, or is denied of it.
struct Statement {
  const Json* schema = nullptr;
  bool denied = false;
  auto operator<=>(const Statement&) const = default;
};

using GoalId = uint32_t;
constexpr GoalId kAnything = 0;  ///< no statement
constexpr GoalId kNothing = 1;   ///< the schema `false`

struct NumberShape {
  struct Bound {
    Decimal value;
    bool exclusive = false;
  };
  struct Multiple {
    Decimal unit;
    bool denied = false;
  };
  bool whole = true;       ///< whole numbers
  bool fractional = true;  ///< the others
  std::optional<Bound> low, high;
  std::vector<Multiple> multiples;
  std::vector<Decimal> excluded;
};

struct StringShape {
  size_t min_length = 0, max_length = kNoLimit;  ///< in code points
  Expression text;                               ///< the decoded text, in UTF-8
  Expression
      most;  ///< what else it might be: of a format that has more texts than `text` has, more
};

struct ArrayShape {
  struct Contains {
    GoalId goal = kAnything;
    size_t from = 0;  ///< items before this index do not count
    size_t min = 1;
  };
  std::vector<GoalId> prefix;
  GoalId rest = kAnything;
  size_t min_items = 0, max_items = kNoLimit;
  std::vector<Contains> contains;
  bool unique = false, repeated = false;  ///< uniqueItems, and its denial
  std::vector<const Json*> excluded;
};

struct ObjectShape {
  struct Property {
    std::string name;
    GoalId goal = kAnything;
    bool required = false;
  };
  /// Members whose names are in `names` and not those of properties.
  struct Others {
    Expression names;
    GoalId goal = kAnything;
  };
  std::vector<Property> properties;  ///< in the schema's order; names differ
  std::vector<Others> others;        ///< disjoint; a name in none is not allowed
  size_t min_members = 0, max_members = kNoLimit;
  std::vector<Others> exists;  ///< some member has such a name and such a value (from denials only)
  std::vector<const Json*> excluded;
};

/// One alternative: the types that are allowed, each with what it must be.
struct Shape {
  bool null = false, no = false, yes = false;
  std::optional<NumberShape> number;
  std::optional<StringShape> string;
  std::optional<ArrayShape> array;
  std::optional<ObjectShape> object;
  /// If set, one of these (of enum or const) that conforms to all above as well.
  std::optional<std::vector<const Json*>> values;
};

using Shapes = std::vector<Shape>;

class SchemaModel {
 public:
  SchemaModel(const SchemaDocument& document, SchemaTexts& texts);

  GoalId root() { return stated(document_.root()); }
  /// The value is as a schema of the document says.
  GoalId stated(const Json& schema) { return goal({{&schema, false}}); }
  /// The goal's alternatives (null only while read_keywords runs): of any of these shapes, and nothing else. Empty if it cannot be. The
  /// reference is valid until the model goes. Errors (kInvalidArgument): what the schema says is malformed
  /// or not supported, with its place. All of it may throw OutOfFuel.
  Result<const Shapes*> shapes(GoalId id);
  /// Whether a value is as the goal says. Errors as above.
  Result<bool> accepts(GoalId id, const Json& value);
  /// Whether it is as the shape says, `values` apart: these conform or do not.
  Result<bool> conforms(const Shape& shape, const Json& value);
  /// True only if no value is as the goal says. Looks a few levels deep. Errors as above.
  Result<bool> provably_nothing(GoalId id, int depth = 0);
  /// What the value of the member `name` must be.
  GoalId member(const ObjectShape& object, std::string_view name);
  GoalId both(GoalId a, GoalId b);
  /// Where the goal's first schema is, for messages.
  std::string place(GoalId id) const;
  Error fail(const Json& at, std::string_view why) const;

 private:
  friend class KeywordReader;
  using Statements = std::vector<Statement>;
  struct Expansion {
    std::optional<Shapes> shapes;  // nullopt while it is made
    int level = 0;                 // how many proofs about children it was begun within
  };

  GoalId goal(Statements statements);
  GoalId denied(const Json& schema) { return goal({{&schema, true}}); }
  Shape anything() const;
  /// Null where a proof about a child comes back to a schema that is being read: nothing is known yet.
  Result<const Shapes*> expand(Statement statement);
  Result<std::optional<Shapes>> read_keywords(Statement statement);

  Result<Shapes> product(const Shapes& a, const Shapes& b);
  Result<Shape> intersection(const Shape& a, const Shape& b);
  Result<std::optional<ObjectShape>> intersection(const ObjectShape& a, const ObjectShape& b);
  std::optional<ArrayShape> intersection(const ArrayShape& a, const ArrayShape& b);
  std::optional<StringShape> intersection(const StringShape& a, const StringShape& b);
  Result<bool> nothing(const Shape& shape, int depth);
  Result<bool> accepts(const ArrayShape& array, const Json& value);
  Result<bool> accepts(const ObjectShape& object, const Json& value);

  const SchemaDocument& document_;
  SchemaTexts& texts_;
  std::map<Statements, GoalId> ids_;
  std::vector<const Statements*> goals_;
  std::deque<std::optional<Shapes>> goal_shapes_;
  std::map<Statement, Expansion> expanded_;
  std::map<GoalId, bool> nothing_;
  int level_ = 0;  // of proofs about children, within each other
  int depth_ = 0;  // of schemas that are being read, within each other
};

}  // namespace pumice::schema
