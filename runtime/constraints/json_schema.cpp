#include "constraints/json_schema.hpp"

#include <string>
#include <utility>
#include <vector>

#include "constraints/schema_grammar.hpp"

namespace pumice {
namespace schema {
namespace {

/// Of schemas that nothing satisfies, the innermost one.
class Culprit {
 public:
  explicit Culprit(const SchemaDocument& document) : document_(document) {}

  const Json& within(const Json& schema) {
    for (const Json* const part : needed_parts(schema)) {
      if (n_left_ == 0) break;
      --n_left_;
      if (is_impossible(*part)) return within(*part);
    }
    return schema;
  }

 private:
  /// Schemas without a value of which `schema` has none either; the plain ways only.
  std::vector<const Json*> needed_parts(const Json& schema) const {
    std::vector<const Json*> parts;
    if (!schema.is_object()) return parts;
    const auto member = [](const Json& object, const std::string& name) -> const Json* {
      const auto found = object.is_object() ? object.find(name) : object.end();
      return found != object.end() ? &*found : nullptr;
    };
    const Json* const properties = member(schema, "properties");
    const Json* const required = member(schema, "required");
    if (properties != nullptr && required != nullptr && required->is_array()) {
      for (const Json& name : *required) {
        const Json* const part = name.is_string() ? member(*properties, name) : nullptr;
        if (part != nullptr) parts.push_back(part);
      }
    }
    if (const Json* const all = member(schema, "allOf"); all != nullptr && all->is_array()) {
      for (const Json& part : *all) parts.push_back(&part);
    }
    const Json* const items = member(schema, "items");
    const Json* const min_items = member(schema, "minItems");
    if (items != nullptr && min_items != nullptr && *min_items > 0) parts.push_back(items);
    if (const Json* const reference = member(schema, "$ref"); reference != nullptr) {
      const Result<const Json*> target = document_.target(schema);
      if (target.ok()) parts.push_back(*target);
    }
    return parts;
  }

  bool is_impossible(const Json& schema) const {
    const Result<bool> found = within_fuel("", [&]() -> Result<bool> {
      GrammarBuilder builder(kFuel);
      PUMICE_TRY(const Symbol root, SchemaGrammar(builder, document_).make(schema));
      PUMICE_TRY(const Grammar grammar, std::move(builder).build(root));
      return grammar.rules[grammar.start].productions.empty();
    });
    return found.ok() && *found;
  }

  static constexpr uint64_t kFuel = ExpressionSet::kDefaultFuel / 16;
  const SchemaDocument& document_;
  int n_left_ = 100;  // parts to be looked at; references may be rings
};

}  // namespace
}  // namespace schema

Result<Symbol> json_schema_symbol(GrammarBuilder& grammar, std::string_view schema) {
  PUMICE_TRY(const schema::SchemaDocument document, schema::SchemaDocument::read(schema));
  return schema::SchemaGrammar(grammar, document).make(document.root());
}

Result<Symbol> json_object_symbol(GrammarBuilder& grammar, std::string_view schema,
                                  const ValueWriting& writing) {
  PUMICE_TRY(const schema::SchemaDocument document, schema::SchemaDocument::read(schema));
  return schema::SchemaGrammar(grammar, document, writing).make_object(document.root());
}

Result<Symbol> json_arguments_symbol(GrammarBuilder& grammar, std::string_view schema,
                                     const ArgumentWriting& writing) {
  PUMICE_TRY(const schema::SchemaDocument document, schema::SchemaDocument::read(schema));
  return schema::SchemaGrammar(grammar, document, writing.values)
      .make_arguments(document.root(), writing);
}

Result<Grammar> compile_json_schema(std::string_view schema) {
  return within_fuel("the JSON schema", [&]() -> Result<Grammar> {
    PUMICE_TRY(const schema::SchemaDocument document, schema::SchemaDocument::read(schema));
    GrammarBuilder builder;
    PUMICE_TRY(const Symbol root, schema::SchemaGrammar(builder, document).make(document.root()));
    PUMICE_TRY(Grammar grammar, std::move(builder).build(root));
    if (!grammar.rules[grammar.start].productions.empty()) return grammar;
    const schema::Json& culprit = schema::Culprit(document).within(document.root());
    return make_error(ErrorCode::kInvalidArgument, "{}: no value is as the schema says",
                      document.place(culprit));
  });
}

Result<Grammar> any_json_object() { return compile_json_schema(R"({"type": "object"})"); }

}  // namespace pumice
