// The symbols of what a schema says, for the doors in json_schema.hpp.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "constraints/grammar.hpp"
#include "constraints/json_schema.hpp"
#include "constraints/schema_model.hpp"

namespace pumice::schema {

/// Makes the symbols of goals, each once; a goal's symbol may be used before it is defined.
class SchemaGrammar {
 public:
  SchemaGrammar(GrammarBuilder& grammar, const SchemaDocument& document, ValueWriting writing = {});

  Result<Symbol> make(const Json& schema);
  /// Of its values the objects alone.
  Result<Symbol> make_object(const Json& schema);
  Result<Symbol> make_arguments(const Json& schema, const ArgumentWriting& writing);

 private:
  /// How the members of an object are written; `other`: one whose name is in `names`.
  struct Members {
    Symbol open, between, close;
    std::function<Result<Symbol>(const ObjectShape::Property&)> listed;
    std::function<Result<Symbol>(Expression names, GoalId goal)> other;
  };

  Status define_open();
  Expression white_space();
  /// `mark` with white space before or behind it.
  Symbol opening(std::string_view mark) {
    return grammar_.lexeme(set_.concat(set_.literal(mark), space_));
  }
  Symbol closing(std::string_view mark) {
    return grammar_.lexeme(set_.concat(space_, set_.literal(mark)));
  }
  Symbol comma() { return opening(","); }
  Symbol nothing() { return grammar_.choice({}); }
  Symbol key(std::string_view name);
  Symbol key_of(Expression names);
  /// `item` from `min` to `max` times with `between` between, and before the first if something is there already.
  Symbol list(Symbol item, Symbol between, size_t min, size_t max, bool after_other);

  /// Without texts that have what a writing cannot have.
  Expression avoiding(Expression texts);
  Symbol text(const StringShape& shape);
  Symbol text_constant(const std::string& text);
  std::string_view word(bool value) const;

  Symbol symbol(GoalId goal);
  Result<Symbol> values_of(GoalId goal);
  Result<Symbol> values_of(GoalId goal, const Shape& shape);
  Symbol constant(const Json& value);
  Symbol plain(const Shape& shape);

  Result<Symbol> array(GoalId goal, const ArrayShape& array);
  Result<Symbol> items_with(GoalId goal, const ArrayShape& array);
  Result<Symbol> unique_items(GoalId goal, const ArrayShape& array);
  Result<Symbol> object(GoalId goal, const ObjectShape& object);
  Result<Symbol> members(GoalId goal, const ObjectShape& object, const Members& members);
  Result<Symbol> other_member(const ObjectShape& object, const Members& members);

  // Of arguments.
  Expression has(std::string_view text);
  Expression looks_like_json();
  Result<Symbol> argument(std::span<const Symbol> name, GoalId goal, bool is_text,
                          const ArgumentWriting& writing);
  Result<Symbol> raw_text(const Shape& shape, bool is_text);

  Error fail(GoalId goal, std::string_view why) const {
    return make_error(ErrorCode::kInvalidArgument, "{}: {}", model_.place(goal), why);
  }

  GrammarBuilder& grammar_;
  const ValueWriting writing_;
  ExpressionSet& set_;
  SchemaTexts texts_;
  SchemaModel model_;
  Expression space_;
  std::map<GoalId, Symbol> symbols_;
  std::vector<GoalId> open_;
};

}  // namespace pumice::schema
