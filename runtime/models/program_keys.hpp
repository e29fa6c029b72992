// A program against the metadata of a file: keys that change what a model computes, of which each
// family's page reads some.
#pragma once

#include <span>
#include <string_view>

#include "base/result.hpp"
#include "models/metadata.hpp"

namespace pumice {

/// "<architecture>.<key>". Where the page does not ask for it, the file may have it all the same if
/// it says what holds without it.
struct TellingKey {
  std::string_view key;
  double neutral = 0;             ///< means what is so without the key, as 0 does
  std::string_view same_as = {};  ///< another key, whose value does too
};

/// All that any architecture is known to have, sorted; a key that is not among them is not held
/// against a file.
std::span<const TellingKey> telling_keys();

/// After the page has read `metadata`. Errors (kBadFile) name the first telling key of the file
/// that means something and that the page never asked for: without it the model would be another
/// one.
Status check_keys(const Metadata& metadata);

}  // namespace pumice
