// Which of gemv's kernels tests have the time for.
#pragma once

#include "shaders/gemv/gemv.hpp"

namespace pumice::ops {

/// lavapipe before 25 takes more than a minute to compile the kernels for GPUs of one type with
/// blocks of 256, which it never chooses.
bool gemv_compiles_quickly(const vk::DevicePlan& plan, GemvKernel kernel, const WeightType& type);

}  // namespace pumice::ops
