// What of all programs the decoder (decoder.hpp) can run, decided by their operations alone.
#pragma once

#include "base/result.hpp"
#include "models/model_config.hpp"
#include "models/program.hpp"

namespace pumice {

/// The program as what the decoder takes. Errors (kBadFile) name what it has no kernel for, or say
/// that the operations it has are put together otherwise.
Result<ModelDescription> decodable(const Program& program);

}  // namespace pumice
