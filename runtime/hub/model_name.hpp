// What names a model of a hub: user/repo[:tag].
#pragma once

#include <string>
#include <string_view>

#include "base/result.hpp"

namespace pumice {

struct ModelName {
  std::string user;
  std::string repo;
  std::string tag;  ///< a quant ("Q4_K_M") or a file ("x.gguf"); empty: none was given

  /// Errors: kInvalidArgument.
  static Result<ModelName> parse(std::string_view text);

  std::string repository() const { return user + "/" + repo; }
  /// As it was given.
  std::string text() const { return repository() + (tag.empty() ? "" : ":" + tag); }
};

/// A user or a repository: letters, digits, '.', '-' and '_', and good as the name of a folder.
bool is_repository_part(std::string_view part);

/// A relative path that a server names, if it may be made below a folder of ours: no segment is
/// empty, hidden, longer than a file's name may be or has characters that other systems or
/// terminals read as something else.
bool is_safe_path(std::string_view path);

}  // namespace pumice
