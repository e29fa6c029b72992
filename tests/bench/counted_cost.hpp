// A count of what a step must compute and move that shares nothing with the cost model: it lists a
// model's tensors and walks over rows, heads and keys.
#pragma once

#include <span>

#include "bench/model_cost.hpp"
#include "models/synthetic.hpp"

namespace pumice::bench::test {

Amount counted_part(Part part, const SyntheticModel& model, KvTypes kv_type,
                    std::span<const StepRows> batch, uint32_t n_logit_rows);

}  // namespace pumice::bench::test
