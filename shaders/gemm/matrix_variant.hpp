// gemm_matrix.comp on a device: which matrix shape and which tiles.
#pragma once

#include "shaders/gemm/gemm_variants.hpp"

namespace pumice::ops {

/// The variant "matrix": a tile for few rows and one for many (gemm_matrix of gemm.tune), within
/// the device's shared memory, workgroups and registers; or the obstacle.
GemmVariant matrix_variant(const TuningTarget& target);

}  // namespace pumice::ops
