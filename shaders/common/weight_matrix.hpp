// A weight matrix in device memory, in the resident layout of its type.
#pragma once

#include <cstdint>
#include <vector>

#include "format/weight_type.hpp"
#include "vk/memory.hpp"

namespace pumice::ops {

/// Consecutive rows of a matrix, within one slab.
struct WeightMatrixPart {
  vk::BufferRange
      range;  ///< resident_bytes(type, n_rows, n_cols) bytes (format/resident_layout.hpp)
  uint32_t first_row = 0;  ///< a multiple of kRowGroup
  uint32_t n_rows = 0;
};

struct WeightMatrix {
  const WeightType* type = nullptr;
  uint32_t n_rows = 0;                  ///< output features
  uint32_t n_cols = 0;                  ///< input features
  std::vector<WeightMatrixPart> parts;  ///< by rising row, together all rows
};

}  // namespace pumice::ops
