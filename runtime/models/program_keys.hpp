// A program against the metadata of a file: keys that change what a model computes, of which each
// family reads some.
#pragma once

#include <array>
#include <span>
#include <string_view>

#include "base/result.hpp"
#include "format/gguf.hpp"

namespace pumice {

/// "<architecture>.<key>". Where a family does not read it, the file may have it all the same if it
/// says what holds without it.
struct TellingKey {
  std::string_view key;
  /// Architectures whose pages read it, then empty.
  std::array<std::string_view, 24> readers = {};
  /// Those that leave it out, as llama.cpp does, then empty.
  std::array<std::string_view, 2> left_out = {};
  double neutral = 0;             ///< means what is so without the key, as 0 does
  std::string_view same_as = {};  ///< another key, whose value does too

  bool concerns(std::string_view architecture) const;
};

std::span<const TellingKey> telling_keys();

/// Errors (kBadFile) name the first key that the family does not read and that means something:
/// without it the model would be another one.
Status check_keys(const GgufFile& file, std::string_view architecture);

}  // namespace pumice
