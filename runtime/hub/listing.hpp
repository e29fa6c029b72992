// What a hub says about a repository.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "hub/selection.hpp"

namespace pumice {

struct Listing {
  std::string commit;  ///< 40 hexadecimal digits; "main" where the server names none
  std::vector<RemoteFile> files;
};

/// The answer to /api/models/user/repo?blobs=true of Hugging Face. Files whose entries make no
/// sense are left out. Errors: kBadFile for what is no such answer.
Result<Listing> parse_listing(std::string_view json);

}  // namespace pumice
