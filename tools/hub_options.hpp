// Flags of everything that may download a model.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <memory>
#include <string>

#include "base/result.hpp"
#include "hub/hub.hpp"

namespace pumice::tools {

struct HubFlags {
  bool offline = false;

  /// --offline.
  void add_to(CLI::App& app);
  /// What the flags and the environment (HF_ENDPOINT, HF_TOKEN, HF_HUB_OFFLINE) say. Errors:
  /// Hub::create's.
  Result<Hub> hub() const;
};

/// -hf: a model by its name in a hub instead of a file.
struct HubModelFlags {
  std::string name;
  HubFlags hub;

  /// -hf and --offline.
  void add_to(CLI::App& app);
  /// With -hf, sets `model` to the path of the file, which is pulled first if need be; without,
  /// leaves it alone. Errors: kInvalidArgument where `model` names a file too (other than
  /// PUMICE_MODEL); Hub::get's.
  Status resolve(std::string& model) const;
};

/// Draws one pull on stderr.
class PullDisplay {
 public:
  PullDisplay();
  ~PullDisplay();
  /// Not to be called after the end of this object.
  PullEvents events();
  /// It was successful: says so, if anything was downloaded.
  void finish();

 private:
  class Progress;
  std::unique_ptr<Progress> progress_;
};

/// "4.92 GB".
std::string format_bytes(uint64_t bytes);

}  // namespace pumice::tools
