#include "shaders/recurrence/recurrence_case.hpp"

namespace pumice::ops {

std::vector<OpCase> recurrence_bench_cases(const BenchScale& scale) {
  using Shape = Recurrence::Shape;
  // A gated delta net's of Qwen3-Next, Mamba-2's of Granite 4 (small), Kimi Linear's and the first
  // Mamba's of Jamba, and a part of their heads or columns.
  const Shape delta_net{.n_heads = scale.small ? 2u : 32u,
                        .n_key_heads = scale.small ? 1u : 16u,
                        .key_dim = 128,
                        .value_dim = 128,
                        .delta = true};
  const Shape mamba2{.n_heads = scale.small ? 4u : 128u,
                     .n_key_heads = 1,
                     .key_dim = 128,
                     .value_dim = 64,
                     .has_d = true};
  const Shape kimi{.n_heads = scale.small ? 2u : 32u,
                   .n_key_heads = scale.small ? 2u : 32u,
                   .key_dim = 128,
                   .value_dim = 128,
                   .delta = true,
                   .decay = Recurrence::Decay::kKey};
  const Shape mamba{.n_heads = 1,
                    .n_key_heads = 1,
                    .key_dim = 16,
                    .value_dim = scale.small ? 512u : 8192u,
                    .has_d = true,
                    .decay = Recurrence::Decay::kState};
  std::vector<OpCase> cases;
  for (const Shape& shape : {delta_net, mamba2, kimi, mamba}) {
    for (const uint32_t rows : {1u, 64u, 256u, 512u}) {
      if (scale.small && rows > 64) continue;
      for (const uint32_t piece_rows : {0u, scale.small ? 8u : 16u}) {  // either way, in turn
        if (rows < piece_rows || (piece_rows > 0 && shape.decay == Recurrence::Decay::kState)) {
          continue;
        }
        const RecurrenceCase test{shape, {{rows, false}}, piece_rows};
        cases.push_back(
            {.op = "recurrence",
             .name = test.name(),
             .prepare = [test](OpBed& bed) { return test.prepare_bench(bed); },
             .supported = [test](const vk::DevicePlan& plan) { return test.supported(plan); }});
      }
    }
  }
  return cases;
}

}  // namespace pumice::ops
