// Where a model's files come from: the system, functions of the host's, or its memory.
#pragma once

#include "base/result.hpp"
#include "format/input_file.hpp"
#include "host/load_model.hpp"
#include "pumice/pumice.h"

namespace pumice::api {

/// A copy of all that the options say but for the files and the memory, which stay the host's.
/// Errors: kInvalidArgument.
Result<host::LoadOptions> read_model_options(const pumice_model_options* given);

}  // namespace pumice::api
