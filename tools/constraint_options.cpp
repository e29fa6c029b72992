#include "tools/constraint_options.hpp"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/path.hpp"
#include "tools/flags.hpp"
#include "tools/terminal.hpp"

namespace pumice::tools {
namespace {

constexpr uint32_t kForcedRows = 7;  // with the one before them as many as drafts may have

}  // namespace

void reserve_forced_rows(EngineOptions& options) {
  options.spare_logit_rows = std::max(options.spare_logit_rows, kForcedRows);
}

void ConstraintOptions::add_to(CLI::App& app) {
  app.option_defaults()->group("Constraints");
  const std::vector<CLI::Option*> all{
      app.add_option("-j,--json-schema", json_schema_,
                     "The text is JSON that is valid under this JSON Schema; {} is any JSON")
          ->type_name("SCHEMA"),
      app.add_option("--json-schema-file,--jf", json_schema_file_, "The same, of a file")
          ->type_name("FILE"),
      app.add_option("--grammar", gbnf_, "The text is one of this GBNF grammar, from its root on")
          ->type_name("GBNF"),
      app.add_option("--grammar-file", gbnf_file_, "The same, of a file")->type_name("FILE"),
      app.add_option("--regex", regex_, "The whole text matches this regular expression")
          ->type_name("RE"),
  };
  for (CLI::Option* const one : all) {
    for (CLI::Option* const other : all) {
      if (one != other) one->excludes(other);
    }
  }
  app.option_defaults()->group(kDefaultGroup);
}

bool ConstraintOptions::given() const {
  return json_schema_ || json_schema_file_ || gbnf_ || gbnf_file_ || regex_;
}

void ConstraintOptions::apply_to(EngineOptions& options) const {
  if (given()) reserve_forced_rows(options);
}

namespace {

Error wrong(const std::string& flag, const Error& error) {
  return make_error(ErrorCode::kInvalidArgument, "{}: {}", flag, error.message);
}

}  // namespace

Status ConstraintOptions::validate() {
  if (!given()) return {};
  const auto take = [this](const std::optional<std::string>& text,
                           const std::optional<std::string>& file, ConstraintKind kind,
                           const std::string& flag) -> Status {
    if (!text && !file) return {};
    kind_ = kind;
    flag_ = file ? flag + "-file " + *file : flag;
    if (text) text_ = *text;
    if (file) {
      PUMICE_TRY(text_, read_text_file(from_utf8(*file)));
    }
    return {};
  };
  PUMICE_TRY_STATUS(
      take(json_schema_, json_schema_file_, ConstraintKind::kJsonSchema, "--json-schema"));
  PUMICE_TRY_STATUS(take(gbnf_, gbnf_file_, ConstraintKind::kGbnf, "--grammar"));
  PUMICE_TRY_STATUS(take(regex_, {}, ConstraintKind::kRegex, "--regex"));
  // Which tokens a model has is not known yet.
  const Result<Grammar> grammar =
      compile_grammar(kind_, text_, [](std::string_view) { return TokenId{0}; });
  return grammar.ok() ? Status() : wrong(flag_, grammar.error());
}

AnswerWish ConstraintOptions::wish() const {
  if (!given()) return {};
  return {.kind = kind_, .text = text_};
}

Status ConstraintOptions::complete(const host::ModelTexts& texts) const {
  if (!given()) return {};
  const auto made = texts.constraint_cache->get(answer_constraint_key(wish(), {}), [&] {
    return answer_constraint(wish(), {}, *texts.tokenizer);
  });
  return made.ok() ? Status() : wrong(flag_, made.error());
}

}  // namespace pumice::tools
