// The flags that say how tokens are chosen and where a text ends, which `run` and `chat` share.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "host/model_owner.hpp"
#include "sampling/options.hpp"
#include "tools/constraint_options.hpp"

namespace pumice::tools {

struct SamplingOptions {
  SamplerOptions sampler{.temperature = 0.8f, .top_k = 40, .top_p = 0.95f, .min_p = 0.05f};
  bool ignore_eos = false;
  std::vector<std::string> stop_strings;
  ConstraintOptions constraint;

  void add_to(CLI::App& app);
  /// What can be told before there is a model. Errors: kInvalidArgument, kBadFile.
  Status validate();
  /// The rest; draws a seed where none was chosen. Errors: kInvalidArgument.
  Status complete(const host::ModelTexts& texts);

 private:
  int64_t seed_ = -1;
};

}  // namespace pumice::tools
