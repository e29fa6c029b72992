// --lora: adapters beside a model.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "models/model_source.hpp"

namespace pumice::tools {

struct AdapterOptions {
  std::vector<std::string> given;  ///< "NAME=FILE", "FILE", "FILE@SCALE"

  /// For all that the command does, or as many as there are, to be asked for by their names.
  void add_to(CLI::App& app, bool several);
  /// The model with the adapters, in their order; without --lora as it is. Errors:
  /// AdapterSource::open's.
  Result<ModelSource> apply_to(const ModelSource& source) const;
  std::vector<std::string> names() const;
  /// GenerationRequest::adapter of a command's own requests.
  uint32_t own() const { return given.empty() ? 0 : 1; }
};

}  // namespace pumice::tools
