// Which of gemv's kernels tests have the time for.
#pragma once

#include "shaders/gemv/gemv.hpp"

namespace pumice::ops {

/// CPU drivers of Vulkan 1.3 (Mesa 22) take more than a minute to compile the kernels for GPUs of
/// one type with blocks of 256, which they never choose.
bool gemv_compiles_quickly(const vk::DevicePlan& plan, GemvKernel kernel, const WeightType& type);

}  // namespace pumice::ops
