// The flags that hold a text to a schema, a grammar or a regular expression, which `run` and `chat`
// share.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <optional>
#include <string>

#include "base/result.hpp"
#include "constraints/constraint_compiler.hpp"
#include "engine/engine_options.hpp"

namespace pumice::tools {

struct ConstraintOptions {
  /// What requests are to have; null without a flag, and before `complete`.
  std::shared_ptr<const Constraint> compiled;

  void add_to(CLI::App& app);
  bool given() const;
  /// Room for what constraints force.
  void apply_to(EngineOptions& options) const;
  /// Reads a file, and compiles as far as that needs no model. Errors: kBadFile for a file that
  /// cannot be read; kInvalidArgument, naming the flag, for all that is wrong with what it says.
  Status validate();
  /// Errors: as of `validate`.
  Status complete(ConstraintCompiler& compiler);

 private:
  std::optional<std::string> json_schema_, json_schema_file_, gbnf_, gbnf_file_, regex_;
  ConstraintKind kind_ = ConstraintKind::kJsonSchema;
  std::string flag_;
  std::string text_;
};

}  // namespace pumice::tools
