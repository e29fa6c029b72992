// Cases of gemv by what they are of, and which of its kernels tests have the time for.
#pragma once

#include "shaders/gemv/gemv.hpp"
#include "shaders/op_case.hpp"

namespace pumice::ops {

/// lavapipe before 25 takes more than a minute to compile the kernels for GPUs of one type with
/// blocks of 256, which it never chooses.
bool gemv_compiles_quickly(const vk::DevicePlan& plan, GemvKernel kernel, const WeightType& type);

/// Those of LinearFinish; gemv_cases() has them too.
std::vector<OpCase> gemv_finish_cases();

}  // namespace pumice::ops
