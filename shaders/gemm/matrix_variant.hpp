// gemm_matrix.comp on a device: which matrix shape and which tiles, from its plan alone.
#pragma once

#include "shaders/gemm/gemm_variants.hpp"

namespace pumice::ops {

/// The variant "matrix": a tile for few rows and one for many, within the device's shared memory,
/// workgroups and registers; or the obstacle.
GemmVariant matrix_variant(const vk::DevicePlan& plan);

}  // namespace pumice::ops
