// pumice info --fit: what running a model would take of a device's memory, and what else would fit.
#pragma once

#include <cstdint>
#include <string>

#include <CLI/CLI.hpp>

#include "base/log.hpp"
#include "base/result.hpp"
#include "tools/device_options.hpp"

namespace pumice::tools {

/// The flags of an engine that its memory depends on, as `run` has them.
struct FitOptions {
  std::string synthetic;  ///< instead of a file
  uint32_t context_tokens = 0;
  uint32_t token_budget = 512;
  uint32_t chunk_tokens = 512;
  std::string kv_type_k = "f16";
  std::string kv_type_v = "f16";

  /// All of them need `fit`, the flag --fit.
  void add_to(CLI::App& app, CLI::Option* fit);
};

/// Prints the plan of `model` (a file, or empty for a synthetic one) on the device that would be
/// chosen, with alternatives. Nothing is loaded. Errors: kDoesNotFit, after it is printed, if it
/// does not fit.
Status print_fit(const FitOptions& options, const std::string& model, const DeviceOptions& device,
                 bool json, const Logger& logger);

}  // namespace pumice::tools
