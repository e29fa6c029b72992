// Reads the keywords of one schema. Private to its two sources: schema_keywords.cpp and, for the members of arrays and
// objects, schema_members.cpp.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "constraints/schema_model.hpp"

namespace pumice::schema {

/// Reads one schema, or its denial: the shapes of its keywords intersected, or those of their denials joined.
class KeywordReader {
 public:
  KeywordReader(SchemaModel& model, const Json& schema, bool denied)
      : model_(model), texts_(model.texts_), schema_(schema), denied_(denied) {}

  /// Null as SchemaModel::expand.
  Result<std::optional<Shapes>> read();

 private:
  // An empty answer is null.
  using Answer = Result<std::optional<Shapes>>;
  using Handler = Answer (KeywordReader::*)(const Json& value);
  struct Keyword {
    const char* name;
    Handler read;
  };
  static const Keyword kKeywords[];

  Answer members(const Json&);
  Answer elements(const Json&);
  Answer reference(const Json& value);
  Answer all_of(const Json& value);
  Answer any_of(const Json& value);
  Answer one_of(const Json& value);
  Answer negation(const Json& value);
  Answer condition(const Json& value);
  Answer dependencies(const Json& value);
  Answer type(const Json& value);
  Answer constant(const Json& value);
  Answer enumeration(const Json& value);
  Answer required(const Json& value);
  Answer property_names(const Json& value);
  Answer contains(const Json& value);
  Answer unique_items(const Json& value);
  Answer pattern(const Json& value);
  Answer format(const Json& value);
  Answer number_format(const std::string& name);
  Answer multiple_of(const Json& value);
  template <bool kLow>
  Answer bound(const Json& value);
  template <bool kLow>
  Answer exclusive_bound(const Json& value);
  template <bool kLow>
  Answer length(const Json& value);
  template <bool kLow>
  Answer item_count(const Json& value);
  template <bool kLow>
  Answer member_count(const Json& value);

  static const Json kTrue;

  Error fail(const Json& at, std::string_view why) const { return model_.fail(at, why); }
  const Json* find(const char* keyword) const {
    const auto found = schema_.find(keyword);
    return found == schema_.end() ? nullptr : &*found;
  }
  Status check_schema(const Json& value) const;
  Result<std::vector<const Json*>> schemas(const Json& value) const;
  Result<size_t> count(const Json& value) const;
  Result<Decimal> decimal(const Json& value) const;
  Result<std::vector<std::string>> names(const Json& value) const;

  /// What holds of a type's values: of others anything, or, for a denial, no others.
  template <typename Part>
  Answer only(std::optional<Part> Shape::*type, std::optional<Part> part) const {
    Shape shape = denied_ ? Shape{} : model_.anything();
    shape.*type = std::move(part);
    return Answer(Shapes{std::move(shape)});
  }
  Answer everything() const { return Answer(Shapes{model_.anything()}); }
  Answer nothing() const { return Answer(Shapes{}); }
  /// What a keyword that says nothing answers.
  Answer no_statement() const { return denied_ ? nothing() : everything(); }
  Answer values(std::vector<const Json*> values);
  template <bool kLow>
  Answer number_bound(const Json& value, bool exclusive);
  /// Minimum or maximum of a count in a part that `make` gives.
  template <bool kLow, typename Part>
  Answer counted(const Json& value, std::optional<Part> Shape::*type, size_t Part::*min,
                 size_t Part::*max, Part part);
  ObjectShape any_object() const { return *model_.anything().object; }
  ObjectShape object_with(const std::string& name, GoalId goal, bool required) const;
  Shape object_only(ObjectShape object) const;

  Answer expand(const Json& schema, bool denied);
  /// Both, or either, of what two answers say; null if one is.
  Answer both(const Answer& a, const Answer& b);
  static Answer either(Answer a, const Answer& b);
  Result<bool> overlap(const Shapes& a, const Shapes& b);
  Answer dependency(const std::string& name, const Answer& then);

  SchemaModel& model_;
  SchemaTexts& texts_;
  const Json& schema_;
  const bool denied_;
};

}  // namespace pumice::schema
