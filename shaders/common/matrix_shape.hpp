// The cooperative matrices that kernels of fp16 inputs and fp32 sums are made of.
#pragma once

#include "vk/plan.hpp"

namespace pumice::ops {

/// The shape to use: of those of fp16 inputs and fp32 sums that tiles can be cut into (powers of
/// two, at most 64 × 64 × 32) the largest up to 16 × 16 × 16, the native size or a multiple of it
/// on every GPU known to have matrices. Null: there is none.
const vk::MatrixShape* half_matrix_shape(const vk::DevicePlan& plan);

/// What of the plan forbids every such kernel, "it needs …"; empty if nothing does.
std::string half_matrix_obstacle(const vk::DevicePlan& plan);

}  // namespace pumice::ops
