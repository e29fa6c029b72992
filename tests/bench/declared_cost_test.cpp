// The cost model against what the dispatches of real engine steps declare (vk::Cost).
#include <algorithm>
#include <map>

#include "bench/model_cost.hpp"
#include "tests/engine/engine_fixture.hpp"
#include "tests/engine/synthetic_model.hpp"

namespace pumice::bench {
namespace {

/// Declared costs of a step by the model's part.
struct Declared {
  std::map<std::string, vk::Cost, std::less<>> parts;
  uint32_t n_splits = 0;  ///< dispatches that combine partial results of attention

  vk::Cost operator[](std::initializer_list<std::string_view> names) const {
    vk::Cost sum;
    for (const std::string_view name : names) {
      EXPECT_TRUE(parts.contains(name)) << name;
      if (parts.contains(name)) sum += parts.find(name)->second;
    }
    return sum;
  }
};

class DeclaredCost : public pumice::test::EngineTest {
 protected:
  // Rows of whole blocks and matrices of whole groups of 32 rows: the resident layout pads nothing.
  static constexpr SyntheticShape kShape{.name = "whole blocks",
                                         .n_layers = 2,
                                         .n_embd = 256,
                                         .n_heads = 4,
                                         .n_kv_heads = 2,
                                         .n_ff = 512,
                                         .n_vocab = 512};

  /// What every step of one request declares, each part by dispatches of its own.
  std::vector<Declared> steps_of(const SyntheticModel& synthetic, uint32_t n_prompt,
                                 uint32_t n_new) {
    const pumice::test::TemporaryFile file(std::filesystem::temp_directory_path() /
                                           fmt::format("pumice-declared-{}.gguf", getpid()));
    EXPECT_TRUE(write_synthetic_model(synthetic, file.path()).ok());
    const auto model = load(file.path());
    FusionRules parts_apart;
    parts_apart.set(FusionRule::kNorm, false);
    parts_apart.set(FusionRule::kActivation, false);
    const auto engine = make_engine(model, {.math = ops::Math::kF32,
                                            .fusion = parts_apart,
                                            .context_tokens = 512,
                                            .token_budget = 64,
                                            .chunk_tokens = 64,
                                            .prefix_cache = false,
                                            .greedy_only = true});
    std::vector<Declared> steps;
    engine->set_hooks({.observer = [&](const StepTrace&, const vk::RecordedWork& work) {
      Declared& step = steps.emplace_back();
      for (const vk::CommandInfo& command : work.commands()) {
        if (command.label == "attention_reduce") {
          ++step.n_splits;
        } else {
          step.parts[std::string(command.scope.part)] += command.cost;
        }
      }
    }});
    greedy(*engine, std::vector<TokenId>(n_prompt, 7), n_new);
    return steps;
  }

  /// `tiles`: whether attention may read keys several times, once for each tile of rows.
  static void expect_declared(const Declared& declared, const StepWork& paper, bool tiles) {
    const auto equal = [&](Part part, std::initializer_list<std::string_view> names) {
      EXPECT_EQ(declared[names].flops, paper[part].flops) << part_name(part);
      EXPECT_EQ(declared[names].bytes, paper[part].bytes()) << part_name(part);
    };
    equal(Part::kEmbedding, {"embedding"});
    equal(Part::kQkv, {"qkv"});
    equal(Part::kRopeKv, {"rope_kv"});
    equal(Part::kAttentionOutput, {"attn_output"});
    equal(Part::kGateUp, {"gate_up"});
    equal(Part::kActivation, {"activation"});
    equal(Part::kDown, {"ffn_down"});
    const vk::Cost attention = declared[{"attention"}];
    EXPECT_EQ(attention.flops, paper[Part::kAttention].flops);
    if (tiles) {
      EXPECT_GE(attention.bytes, paper[Part::kAttention].kv_bytes);
    } else {
      EXPECT_EQ(attention.bytes, paper[Part::kAttention].kv_bytes);
    }
  }
};

TEST_F(DeclaredCost, AStepDeclaresWhatThePaperSays) {
  for (const std::string_view type : {"Q4_K", "F16", "Q8_0"}) {
    const SyntheticModel synthetic =
        *SyntheticModel::create(kShape, {.type = &weight_type(type), .pure = true});
    const ModelShape shape = *model_shape(synthetic, KvType::kF16);
    const std::vector<Declared> steps = steps_of(synthetic, 100, 3);
    ASSERT_GE(steps.size(), 4u);  // two chunks of the prompt, then single rows

    const StepRows first{0, 64};
    const StepWork without_logits = step_cost(shape, {&first, 1}, 0);
    expect_declared(steps[0], without_logits, true);
    EXPECT_FALSE(steps[0].parts.contains("output")) << type;
    const vk::Cost norms = steps[0][{"attn_norm", "ffn_norm"}];
    EXPECT_EQ(norms.flops, without_logits[Part::kNorms].flops);
    EXPECT_EQ(norms.bytes, without_logits[Part::kNorms].bytes());

    const StepRows rest{64, 36};
    const StepRows row{100, 1};
    for (const auto& [declared, rows] : {std::pair(&steps[1], rest), std::pair(&steps[2], row)}) {
      const StepWork paper = step_cost(shape, {&rows, 1}, 1);
      expect_declared(*declared, paper, rows.n_rows > 1);
      EXPECT_EQ((*declared)[{"output"}].flops, paper[Part::kOutput].flops);
      EXPECT_EQ((*declared)[{"output"}].bytes, paper[Part::kOutput].bytes());
      const vk::Cost all_norms = (*declared)[{"attn_norm", "ffn_norm", "output_norm"}];
      EXPECT_EQ(all_norms.flops, paper[Part::kNorms].flops);
      EXPECT_EQ(all_norms.bytes, paper[Part::kNorms].bytes());
    }
  }
}

TEST_F(DeclaredCost, SplittingALongContextAddsCombiningOnly) {
  const SyntheticModel synthetic = *SyntheticModel::create(kShape, {.pure = true});
  const std::vector<Declared> steps = steps_of(synthetic, 300, 3);
  const StepRows row{301, 1};
  const StepWork paper = step_cost(*model_shape(synthetic, KvType::kF16), {&row, 1}, 1);
  const Declared& last = steps.at(6);  // after five chunks and one token
  EXPECT_EQ(last.n_splits, kShape.n_layers);
  expect_declared(last, paper, false);
}

TEST_F(DeclaredCost, EveryCommandOfALayerSaysSo) {
  const SyntheticModel synthetic = *SyntheticModel::create(kShape, {});
  const pumice::test::TemporaryFile file(std::filesystem::temp_directory_path() /
                                         fmt::format("pumice-scopes-{}.gguf", getpid()));
  ASSERT_TRUE(write_synthetic_model(synthetic, file.path()).ok());
  const auto engine = make_engine(load(file.path()), {.context_tokens = 64, .greedy_only = true});
  std::vector<uint32_t> layers;
  engine->set_hooks({.observer = [&](const StepTrace&, const vk::RecordedWork& work) {
    for (const vk::CommandInfo& command : work.commands()) {
      EXPECT_FALSE(command.scope.part.empty()) << command.label;
      if (command.scope.part == "ffn_down") layers.push_back(command.scope.layer);
      if (command.scope.part == "sampling") {
        EXPECT_EQ(command.scope.layer, vk::Scope::kNoLayer);
      }
    }
  }});
  greedy(*engine, {1, 2, 3}, 1);
  EXPECT_EQ(layers, (std::vector<uint32_t>{0, 1}));
}

}  // namespace
}  // namespace pumice::bench
