// Products of one model's matrices for timing.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "format/weight_type.hpp"
#include "shaders/op_case.hpp"

namespace pumice::ops {

/// `n_rows` outputs over `n_cols` inputs, a multiple of what the type's blocks hold.
struct LinearBenchMatrix {
  const WeightType* type = nullptr;
  uint32_t n_rows = 0;
  uint32_t n_cols = 0;
};

/// Each by one row of x, as many as gemv takes, and a chunk of a prompt; as linear_bench_cases has
/// of well-known models.
std::vector<OpCase> linear_bench_cases(const BenchScale& scale,
                                       std::span<const LinearBenchMatrix> matrices);

}  // namespace pumice::ops
