// The flags that hold a text to a schema, a grammar or a regular expression, which `run` and `chat`
// share.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>

#include "answers/answer_constraint.hpp"
#include "base/result.hpp"
#include "engine/engine_options.hpp"
#include "host/model_owner.hpp"

namespace pumice::tools {

/// Room for the tokens that a constraint forces.
void reserve_forced_rows(EngineOptions& options);

struct ConstraintOptions {
  void add_to(CLI::App& app);
  bool given() const;
  /// Room for what constraints force.
  void apply_to(EngineOptions& options) const;
  /// Reads a file, and compiles as far as that needs no model. Errors: kBadFile for a file that
  /// cannot be read; kInvalidArgument, naming the flag, for all that is wrong with what it says.
  Status validate();
  /// What requests wish, once `validate` was called.
  AnswerWish wish() const;
  /// Compiles it, so that no first request waits for that. Errors: as of `validate`.
  Status complete(const host::ModelTexts& texts) const;

 private:
  std::optional<std::string> json_schema_, json_schema_file_, gbnf_, gbnf_file_, regex_;
  ConstraintKind kind_ = ConstraintKind::kJsonSchema;
  std::string flag_;
  std::string text_;
};

}  // namespace pumice::tools
