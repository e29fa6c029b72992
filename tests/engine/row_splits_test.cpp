// A single row's keys are spread over more workgroups where a kernel of its own computes it, which no CPU driver is
// tuned to.
#include <fmt/format.h>

#include "shaders/common/matrix_shape.hpp"
#include "shaders/common/tuning.hpp"
#include "shaders/flash_attention/subgroup_tuning.hpp"
#include "shaders/spirv.hpp"
#include "tests/engine/arithmetic.hpp"

namespace pumice {
namespace {

constexpr uint32_t kTokens = 140;
constexpr uint32_t kWhole = 128;  // longer contexts are split

class RowSplits : public test::EngineTest {
 protected:
  /// Of a step for each token by a kernel of attention_row, the row's keys being spread over so many
  /// workgroups.
  std::vector<float> logits_over(uint32_t n_workgroups, std::string_view kernel) {
    const OnDevice own(test::GpuEnvironment::device());
    const auto rows = vk::parse_tuning_rows(
        "test",
        fmt::format("attention_row {}\nattention_splits use busy_workgroups={}\n", kernel,
                    n_workgroups),
        ops::tuning_tables());
    if (!rows.ok()) {
      ADD_FAILURE() << rows.error().message;
      return {};
    }
    pipelines_->prefer(*rows);
    const test::TemporaryFile file = test::write_synthetic_model({});
    const auto model = load(file.path());
    return logits(model, random_tokens(*model, kTokens, 5),
                  {.kv_type = KvType::kF32, .chunk_tokens = 1, .split_tokens = kWhole});
  }

  void expect_only_rounding(std::string_view kernel, double bound) {
    const std::vector<float> one = logits_over(1, kernel);
    const std::vector<float> many = logits_over(1024, kernel);
    EXPECT_LE(test::nmse(many, one), bound);
    const auto split = one.begin() + static_cast<std::ptrdiff_t>(one.size() / kTokens * kWhole);
    EXPECT_TRUE(std::equal(one.begin(), split, many.begin()));
    EXPECT_NE(many, one) << "the rows have as many splits as before";
  }
};

TEST_F(RowSplits, BySubgroupsChangeNothingButRounding) {
  const vk::DevicePlan& plan = test::GpuEnvironment::device()->plan();
  const std::string obstacle =
      ops::subgroup_attention_obstacle(plan, {.workgroup_size = 32,
                                              .max_tile_rows = 2,
                                              .subgroup_size = plan.subgroup_size,
                                              .flight = 1,
                                              .unroll = 4});
  if (!obstacle.empty() || plan.subgroup_size < 8)
    GTEST_SKIP() << "subgroups of " << plan.subgroup_size << "; " << obstacle;
  expect_only_rounding(fmt::format("subgroup use subgroup_size={} workgroup_size=32 tile_rows=2 "
                                   "flight=1 unroll=4 shared_q=0",
                                   plan.subgroup_size),
                       test::kF32Arithmetic.bound);
}

TEST_F(RowSplits, OnMatrixCoresChangeNothingButRounding) {
  const std::string obstacle = ops::half_matrix_obstacle(test::GpuEnvironment::device()->plan());
  if (!obstacle.empty()) GTEST_SKIP() << obstacle;
  if (!find_spirv("flash_attention.matrix").ok()) GTEST_SKIP() << "not in this build";
  expect_only_rounding("matrix use key_tile=16", test::kF16Arithmetic.bound);
  EXPECT_NE(logits_over(1, "matrix use key_tile=16"), logits_over(1, "tile")) << "the same kernel";
}

}  // namespace
}  // namespace pumice
