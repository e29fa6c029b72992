// Cases of the integer variant: its x is quantised, so they are not those of the others.
#pragma once

#include "shaders/op_case.hpp"

namespace pumice::ops {

std::vector<OpCase> gemm_i8_cases();

}  // namespace pumice::ops
