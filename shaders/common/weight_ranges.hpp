// What a matrix takes of its arena, written once: WeightMatrix::upload allocates by it, and plans of
// memory count by it.
#pragma once

#include <cstdint>
#include <vector>

#include "format/weight_type.hpp"

namespace pumice {

/// Bytes of each range, in order: the type's grid if it has one, then parts of at most `part_bytes`,
/// or of one group of rows if that is more.
std::vector<uint64_t> weight_ranges(const WeightType& type, uint32_t n_rows, uint32_t n_cols,
                                    uint64_t part_bytes);

}  // namespace pumice
