// Models split into several files: NAME-00001-of-00003.gguf and so on. Each part is a GGUF file of
// its own, with some of the tensors, and says which part it is: split.no (from 0), split.count, and
// split.tensors.count of all parts together. The first has the model's metadata.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "base/result.hpp"
#include "format/gguf.hpp"

namespace pumice {

/// Which part of a model a file is, as it says itself.
struct GgufPart {
  /// A model may have this many, each of which is an open file.
  static constexpr uint32_t kMaxCount = 512;

  uint32_t number = 1;  ///< from 1, as in names
  uint32_t count = 1;   ///< 1: the file is all of its model
  bool operator==(const GgufPart&) const = default;
};

/// Errors (kBadFile, without a path): keys of the wrong type, numbers that no part has.
Result<GgufPart> part_of(const GgufFile& file);

/// "-00001-of-00003.gguf"
std::string part_suffix(const GgufPart& part);

/// The file of another part of the model of which `path` is `own`. Errors (kBadFile): the name of
/// `path` does not say which part it is, or says something else.
Result<std::filesystem::path> path_of_part(const std::filesystem::path& path, const GgufPart& own,
                                           uint32_t number);

}  // namespace pumice
