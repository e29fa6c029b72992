// Tells files apart without reading all of them.
#pragma once

#include <array>
#include <cstdint>

#include "base/result.hpp"
#include "models/model_source.hpp"

namespace pumice {

/// A hash of metadata, tensor shapes and a sample of each tensor's bytes. Errors:
/// ModelSource::read's.
Result<std::array<uint64_t, 2>> fingerprint_of(const ModelSource& source);

}  // namespace pumice
