// A program against the tensors of a file.
#pragma once

#include <cstdint>

#include "base/result.hpp"
#include "format/gguf.hpp"
#include "models/model_source.hpp"
#include "models/program.hpp"

namespace pumice {

/// Errors (kBadFile) name the first tensor that is missing, has another shape or a type that has no
/// codec, or that no operation reads: without it the model would be another one. Of a block that
/// predicts the last is said of its own tensors, of a model of all but those blocks'.
Status check_tensors(const ModelSource& source, const Program& program);

/// Bytes that a file has of blocks that predict tokens after the next
/// (Program::n_prediction_blocks): no operation reads them, and plain decoding never loads them.
uint64_t prediction_bytes(const GgufFile& file, const Program& program);

}  // namespace pumice
