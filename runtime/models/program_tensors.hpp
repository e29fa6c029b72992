// A program against the tensors of a file.
#pragma once

#include "base/result.hpp"
#include "models/model_source.hpp"
#include "models/program.hpp"

namespace pumice {

/// Errors (kBadFile) name the first tensor that is missing, has another shape or a type that has no
/// codec, or that no operation reads: without it the model would be another one.
Status check_tensors(const ModelSource& source, const Program& program);

}  // namespace pumice
