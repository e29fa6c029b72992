// Plans of memory on made-up devices: what counts, what fits, and what is said when nothing does.
#include "engine/memory_plan.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "models/families.hpp"
#include "models/model_source.hpp"
#include "models/state_layout.hpp"
#include "models/synthetic.hpp"
#include "vk/arena_sizes.hpp"

namespace pumice {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

TEST(ArenaSizes, TheLastSlabIsTheRestOfWhatIsExpected) {
  vk::ArenaSizes sizes(kMiB, kMiB + 300'000);
  sizes.allocate(600'000);
  EXPECT_EQ(sizes.allocated_bytes(), kMiB);
  sizes.allocate(400'000);  // beside it
  EXPECT_EQ(sizes.allocated_bytes(), kMiB);
  sizes.allocate(200'000);
  EXPECT_EQ(sizes.allocated_bytes(), kMiB + 300'032);
  sizes.allocate(100'000);  // from 200'192 on, the next multiple of 256: more than there is
  EXPECT_EQ(sizes.allocated_bytes(), kMiB + 300'032 + 100'096);
  sizes.allocate(1);  // slabs are 64 KiB at least, and the last has 96 bytes left, of which
  EXPECT_EQ(sizes.allocated_bytes(), kMiB + 300'032 + 100'096 + 65'536);  // none are aligned
  EXPECT_EQ(sizes.largest_bytes(), 600'000u);
}

TEST(KvChoices, ATypeHoldsKeysAndValuesOfAllHeads) {
  const auto choices = [](uint32_t head_dim, uint32_t v_dim) {
    Program program;
    program.state_groups = {{.n_kv_heads = 2, .head_dim = 64, .n_slots = 1},
                            {.n_kv_heads = 1, .head_dim = head_dim, .n_slots = 1, .v_dim = v_dim}};
    return kv_choices(program).size();
  };
  EXPECT_EQ(choices(64, 0), kKvTypeNames.size());
  EXPECT_EQ(choices(192, 128), kKvTypeNames.size());
  EXPECT_EQ(choices(80, 64), 3u);
  EXPECT_EQ(choices(64, 24), 3u);
}

class MemoryPlans : public ::testing::Test {
 protected:
  MemoryPlanner on(DeviceMemory device) const {
    device.name = "a device";
    return MemoryPlanner::of_plan(ModelPlan::of_source(source_).value(), device).value();
  }
  MemoryPlanner with_free(uint64_t free_bytes) const {
    return on({.free_bytes = free_bytes, .slab_bytes = 1 << 30});
  }
  uint64_t needed() const { return with_free(0).plan(engine_).value().budgeted_bytes; }
  static std::string refusal(const MemoryPlanner& planner, const EngineOptions& engine) {
    const Status status = planner.check(engine);
    if (status.ok()) return "";
    EXPECT_EQ(status.error().code, ErrorCode::kDoesNotFit);
    return status.error().message;
  }
  static bool has(const std::string& text, std::string_view part) {
    return text.find(part) != std::string::npos;
  }

  ModelSource source_ =
      ModelSource::synthetic(SyntheticModel::create({.context_length = 65536}, {}).value()).value();
  EngineOptions engine_{.context_tokens = 16384};
};

TEST_F(MemoryPlans, EveryByteThatIsNotWeightsFollowsFromTheOptions) {
  const MemoryPlanner planner = with_free(0);
  const MemoryPlan plan = planner.plan(engine_).value();
  const uint64_t page_bytes = state_layout(planner.program(), engine_.kv_type).page_bytes;
  EXPECT_EQ(plan.bytes(MemoryUse::kKv), 1024 * page_bytes);
  EXPECT_EQ(plan.total_bytes(), plan.bytes(MemoryUse::kWeights) + plan.bytes(MemoryUse::kKv) +
                                    plan.bytes(MemoryUse::kActivations) +
                                    plan.bytes(MemoryUse::kReserve));
  EXPECT_GT(plan.total_bytes(), plan.total_bytes(false)) << "rope tables are staged";
  const auto with = [&](auto change) {
    EngineOptions other = engine_;
    change(other);
    return planner.plan(other).value();
  };
  const MemoryPlan longer = with([](EngineOptions& o) { o.context_tokens *= 2; });
  EXPECT_EQ(longer.bytes(MemoryUse::kKv), 2 * plan.bytes(MemoryUse::kKv));
  EXPECT_EQ(longer.bytes(MemoryUse::kWeights), plan.bytes(MemoryUse::kWeights));
  const MemoryPlan wider = with([](EngineOptions& o) { o.token_budget *= 2; });
  EXPECT_GT(wider.bytes(MemoryUse::kActivations), plan.bytes(MemoryUse::kActivations));
  EXPECT_EQ(wider.bytes(MemoryUse::kKv), plan.bytes(MemoryUse::kKv));
  const MemoryPlan logits = with([](EngineOptions& o) { o.prompt_logits = true; });
  EXPECT_GT(logits.bytes(MemoryUse::kReserve), plan.bytes(MemoryUse::kReserve));
  const MemoryPlan bare = with([](EngineOptions& o) { o.spare_logit_rows = 0; });
  EXPECT_LE(plan.total_bytes() - bare.total_bytes(),
            engine_.spare_logit_rows * (planner.program().n_vocab * 4 + 1024));
  const MemoryPlan tiers = with([](EngineOptions& o) { o.cache_host_bytes = kMiB; });
  // Pages pass through memory that stays: 64 MiB of them, here all there are.
  EXPECT_EQ(tiers.total_bytes() - plan.total_bytes(), 1024 * page_bytes);
  EXPECT_EQ(tiers.total_bytes(false) - plan.total_bytes(false), 1024 * page_bytes);
  EXPECT_EQ(with([](EngineOptions& o) { o.context_tokens = 0; }).context_tokens, 65536u);
}

TEST_F(MemoryPlans, OnlyWhatLiesInTheBudgetsHeapCounts) {
  const MemoryPlan all = with_free(0).plan(engine_).value();
  EXPECT_EQ(all.budgeted_bytes, all.total_bytes());
  DeviceMemory discrete{.slab_bytes = 1 << 30};
  discrete.is_budgeted = {true, false, false};
  const MemoryPlan some = on(discrete).plan(engine_).value();
  EXPECT_EQ(some.total_bytes(), all.total_bytes());
  EXPECT_LT(some.budgeted_bytes, all.budgeted_bytes);
  EXPECT_GT(some.budgeted_bytes, all.bytes(MemoryUse::kKv) + all.bytes(MemoryUse::kWeights));
}

TEST_F(MemoryPlans, WhatFitsToTheByteIsTaken) {
  EXPECT_EQ(refusal(with_free(needed()), engine_), "");
  EXPECT_NE(refusal(with_free(needed() - 1), engine_), "");
}

TEST_F(MemoryPlans, ARefusalHasTheNumbersAndTheLongestContextThatFits) {
  const MemoryPlanner planner = with_free(needed() - kMiB);
  const std::string said = refusal(planner, engine_);
  const MemoryPlan plan = planner.plan(engine_).value();
  const uint32_t longest = planner.largest_context(engine_, engine_.context_tokens);
  EXPECT_TRUE(has(said, "a context of 16384 tokens needs " + memory_text(needed()))) << said;
  EXPECT_TRUE(has(said, "weights " + memory_text(plan.bytes(MemoryUse::kWeights)))) << said;
  EXPECT_TRUE(has(said, "KV " + memory_text(plan.bytes(MemoryUse::kKv)))) << said;
  EXPECT_TRUE(has(said, "a device has " + memory_text(needed() - kMiB) + " free, short by"))
      << said;
  EXPECT_TRUE(has(said, "short by 1.0 MiB: -c " + std::to_string(longest))) << said;
  const auto holds = [&](uint32_t tokens) {
    EngineOptions other = engine_;
    other.context_tokens = tokens;
    return refusal(planner, other).empty();
  };
  EXPECT_GT(longest, 8192u);
  EXPECT_TRUE(holds(longest));
  EXPECT_FALSE(holds(longest + kKvBlockTokens));
}

TEST_F(MemoryPlans, ASmallerKvTypeIsOfferedIfItHoldsTheContext) {
  const uint64_t f16_bytes = needed();
  engine_.kv_type = KvType::kF32;
  EXPECT_TRUE(has(refusal(with_free(f16_bytes), engine_), "or -ctk f16 -ctv f16 would fit"));
  const std::string shorter = refusal(with_free(f16_bytes - kMiB), engine_);
  EXPECT_TRUE(has(shorter, "or -ctk f16 -ctv f16 -c 1")) << shorter;
}

TEST_F(MemoryPlans, WhereNoContextFitsThatIsSaid) {
  EXPECT_TRUE(has(refusal(with_free(1000), engine_), "the weights alone are too large"));
  const uint64_t weights = with_free(0).plan(engine_).value().bytes(MemoryUse::kWeights);
  EXPECT_TRUE(has(refusal(with_free(weights + 1000), engine_), "no context fits beside"));
  EXPECT_EQ(with_free(1000).largest_context(engine_, 16384), 0u);
}

/// A mixture whose experts are read by 2 tokens of 4, on a device with memory beside its own.
class MemoryPlansBeside : public MemoryPlans {
 protected:
  MemoryPlanner beside(uint64_t free_bytes, uint64_t beside_bytes) const {
    return on({.free_bytes = free_bytes,
               .slab_bytes = 1 << 30,
               .is_budgeted = {true, false, false},
               .beside = vk::MemoryDomain::kUpload,
               .beside_bytes = beside_bytes});
  }
  void SetUp() override { use(4); }
  void use(uint32_t n_experts) {
    SyntheticShape shape = find_synthetic_preset("moe-tiny").value();
    shape.context_length = 65536;
    shape.n_experts = n_experts;
    source_ = ModelSource::synthetic(SyntheticModel::create(shape, {}).value()).value();
    all_ = beside(UINT64_MAX, 0).plan(engine_).value();
  }
  MemoryPlan all_;
};

TEST_F(MemoryPlansBeside, WeightsThatDoNotFitLieThereTheLeastReadFirst) {
  EXPECT_EQ(all_.beside_bytes, 0u);
  EXPECT_EQ(all_.weight_pieces, UINT32_MAX);
  const uint64_t embedding = 512 * 256 / 256 * 144;  // a row of it is read: 1 of 512
  const MemoryPlanner one = beside(all_.budgeted_bytes - 1, kMiB << 10);
  EXPECT_EQ(refusal(one, engine_), "");
  const MemoryPlan plan = one.plan(engine_).value();
  EXPECT_TRUE(one.fits(plan));
  EXPECT_EQ(plan.total_bytes(), all_.total_bytes());
  EXPECT_EQ(plan.bytes(MemoryUse::kWeights), all_.bytes(MemoryUse::kWeights));
  EXPECT_EQ(plan.budgeted_bytes, all_.budgeted_bytes - plan.beside_bytes);
  EXPECT_GE(plan.beside_bytes, embedding);
  EXPECT_NEAR(plan.beside_read_bytes, embedding / 512.0, 0.5);
  // Then experts, of which a token reads two of four: their pieces come before any other.
  const MemoryPlan some = beside(all_.budgeted_bytes - 400'000, kMiB << 10).plan(engine_).value();
  EXPECT_GT(some.beside_bytes, 400'000u);
  EXPECT_LT(some.weight_pieces, plan.weight_pieces);
  EXPECT_LE(some.beside_read_bytes, 0.51 * static_cast<double>(some.beside_bytes));
  EXPECT_GE(some.beside_read_bytes, 0.3 * static_cast<double>(some.beside_bytes));
}

TEST_F(MemoryPlansBeside, RoomIsLeftForAContextWorthHaving) {
  use(64);  // larger than keys and values of such a context
  engine_.context_tokens = 64;
  const uint64_t small = beside(UINT64_MAX, 0).plan(engine_).value().budgeted_bytes;
  const MemoryPlan plan = beside(small - 1, kMiB << 10).plan(engine_).value();
  engine_.context_tokens = MemoryPlanner::kRoomTokens;
  const uint64_t roomy = beside(UINT64_MAX, 0).plan(engine_).value().budgeted_bytes;
  EXPECT_GE(plan.beside_bytes, roomy - small);
  EXPECT_EQ(beside(small - 1, kMiB << 10).largest_context(engine_, 65536),
            MemoryPlanner::kRoomTokens);
}

TEST_F(MemoryPlansBeside, AContextIsLongerWhereAllWeightsFit) {
  engine_.context_tokens = 8192;
  const uint64_t long_enough = beside(UINT64_MAX, 0).plan(engine_).value().budgeted_bytes;
  EXPECT_GE(beside(long_enough, kMiB << 10).largest_context(engine_, 65536), 8192u);
  EXPECT_LT(beside(long_enough, kMiB << 10).largest_context(engine_, 65536), 16384u);
}

TEST_F(MemoryPlansBeside, WhatDoesNotFitThereEitherIsRefusedWithTheNumbers) {
  const uint64_t weights = all_.bytes(MemoryUse::kWeights);
  const std::string small = refusal(beside(1000, 2 * kMiB / 10), engine_);
  EXPECT_TRUE(has(small, "too large, even with the 0.2 MiB of host memory")) << small;
  const std::string none = refusal(beside(1000, kMiB << 10), engine_);
  EXPECT_TRUE(has(none, "no context fits, even with weights in host memory")) << none;
  EXPECT_TRUE(has(none, "weights " + memory_text(weights))) << none;
}

TEST_F(MemoryPlans, APieceLargerThanTheDeviceGivesIsRefusedThoughAllWouldFit) {
  engine_.token_budget = 64;  // so that the largest piece is the rope table: 256 bytes a position
  const MemoryPlanner small = on({.free_bytes = uint64_t{1} << 40, .slab_bytes = 2 * kMiB});
  const std::string said = refusal(small, engine_);
  EXPECT_TRUE(has(said,
                  "a context of 16384 tokens needs 4.0 MiB in one piece, and a device has "
                  "pieces of 2.0 MiB"))
      << said;
  EXPECT_TRUE(has(said, "-c 8192 would fit")) << said;
}

TEST_F(MemoryPlans, MorePiecesOfAttentionThanADeviceDispatchesAreRefused) {
  const MemoryPlanner planner =
      on({.free_bytes = uint64_t{1} << 40, .slab_bytes = 1 << 30, .max_items = 700});
  const std::string said = refusal(planner, engine_);
  EXPECT_TRUE(has(said, "pieces of attention, and a device can dispatch 700")) << said;
  EXPECT_TRUE(has(said, "would fit")) << said;
}

}  // namespace
}  // namespace pumice
