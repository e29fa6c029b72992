// Which files of a repository are the model that somebody asked for.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "hub/model_name.hpp"

namespace pumice {

struct RemoteFile {
  std::string path;  ///< in the repository; is_safe_path
  uint64_t size_bytes = 0;
  std::string sha256;  ///< 64 lower-case hexadecimal digits; empty: the server names none
};

/// One model: a GGUF file, or all parts of a split one in their order.
struct ModelFiles {
  std::string label;  ///< the path without ".gguf" and without "-00001-of-00003"
  std::string quant;  ///< "Q4_K_M", "UD-Q4_K_XL", "BF16"; empty: the name says none
  std::vector<RemoteFile> files;
  bool is_whole = true;  ///< false: a split one that lacks parts

  uint64_t size_bytes() const;
};

/// The models among the files of a repository, by label. What is no GGUF, has an unsafe path or is
/// no language model (mmproj, imatrix) is left out.
std::vector<ModelFiles> all_models_of(std::span<const RemoteFile> files);
/// Those that are whole.
std::vector<ModelFiles> models_of(std::span<const RemoteFile> files);

/// The one of `models` that `name` asks for, whatever the case of letters. A tag is the quant, or
/// another part of the file's name ("1b-Q4_K_M") between punctuation, or the whole name with
/// ".gguf". Without a tag: Q4_K_M, else Q8_0, else the first.
/// Errors (kBadFile) list what there is: none, no such, or several.
Result<ModelFiles> select_model(std::span<const ModelFiles> models, const ModelName& name);

}  // namespace pumice
