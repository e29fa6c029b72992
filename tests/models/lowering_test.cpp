// Programs become dispatches: which, between which buffers, in how much memory.
#include "models/lowering.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <random>

#include "models/decoder.hpp"
#include "models/decoder_buffers.hpp"
#include "models/families.hpp"
#include "models/program_builder.hpp"
#include "models/read_shares.hpp"
#include "tests/models/plain_transformer.hpp"
#include "tests/shared_data.hpp"

namespace pumice {
namespace {

Program llama(const SyntheticShape& shape = {.n_layers = 2}) {
  const SyntheticModel made = SyntheticModel::create(shape, {}).value();
  return build_program(ModelSource::synthetic(made).value()).value();
}

/// Parts of the dispatches, in their order.
std::vector<std::string> parts(const Lowered& lowered) {
  std::vector<std::string> names;
  for (const Dispatch& dispatch : lowered.dispatches) names.push_back(dispatch.label);
  return names;
}

FusionRules without(const char* rule) {
  return FusionRules::parse(std::string("-") + rule).value();
}

/// Of those in a layer, the ones that are recorded where products do what they can besides.
std::vector<std::string> parts_of_few_rows(const Lowered& lowered, uint32_t layer) {
  std::vector<std::string> names;
  for (const Dispatch& dispatch : lowered.dispatches) {
    if (dispatch.layer == layer && !dispatch.covered_by) names.push_back(dispatch.label);
  }
  return names;
}

/// The n-th operation of a kind.
template <typename T>
T& nth(Program& program, size_t n) {
  for (Op& op : program.ops) {
    T* const found = std::get_if<T>(&op.what);
    if (found != nullptr && n-- == 0) return *found;
  }
  throw std::out_of_range("no such operation");
}

TEST(Lowering, ALlamasLayerIsNineDispatches) {
  const Lowered lowered = lower(llama()).value();
  const std::vector<std::string> layer = {"attn_norm", "qkv",         "rope_kv",
                                          "attention", "attn_output", "ffn_norm",
                                          "gate_up",   "activation",  "ffn_down"};
  std::vector<std::string> expected = {"embedding"};
  for (int i = 0; i < 2; ++i) expected.insert(expected.end(), layer.begin(), layer.end());
  expected.insert(expected.end(), {"output_norm", "output"});
  EXPECT_EQ(parts(lowered), expected);
  for (size_t i = 0; i < lowered.dispatches.size(); ++i) {
    const Dispatch& dispatch = lowered.dispatches[i];
    const bool inside = i >= 1 && i < 19;
    EXPECT_EQ(dispatch.layer, inside ? std::optional<uint32_t>((i - 1) / 9) : std::nullopt) << i;
    EXPECT_EQ(dispatch.rows == RowSet::kLogits, i >= 19) << i;
  }
  EXPECT_EQ(lowered.buffers[lowered.logits].width, 512u);
  EXPECT_EQ(lowered.attention_classes.size(), 1u);
}

TEST(Lowering, OfFewRowsADenseLayerIsSixDispatches) {
  const std::vector<std::string> six = {"qkv",         "rope_kv", "attention",
                                        "attn_output", "gate_up", "ffn_down"};
  const Program models[] = {
      llama({.n_layers = 3}),
      build_program(
          ModelSource::synthetic(
              SyntheticModel::create(find_synthetic_preset("qwen3-8b").value(), {}).value())
              .value())
          .value()};
  for (const Program& program : models) {
    const Lowered lowered = lower(program).value();
    // The first norm follows no product.
    std::vector<std::string> first = six;
    first.insert(first.begin(), "attn_norm");
    EXPECT_EQ(parts_of_few_rows(lowered, 0), first) << program.architecture;
    for (uint32_t layer = 1; layer < program.layers.size(); ++layer) {
      EXPECT_EQ(parts_of_few_rows(lowered, layer), six) << program.architecture << layer;
    }
    // The last one gathers rows.
    EXPECT_FALSE(lowered.dispatches.back().covered_by);
    EXPECT_FALSE(lowered.dispatches[lowered.dispatches.size() - 2].covered_by);
  }
}

TEST(Lowering, ProductsAroundANormShareIt) {
  const Lowered lowered = lower(llama({.n_layers = 1})).value();
  const auto linear = [&](size_t i) { return std::get<call::Linear>(lowered.dispatches[i].what); };
  const auto& norm = std::get<call::RmsNorm>(lowered.dispatches[6].what);
  const call::Linear before = linear(5), behind = linear(7);
  EXPECT_EQ(lowered.dispatches[6].covered_by, 5u);
  ASSERT_TRUE(before.norm && behind.scale);
  EXPECT_EQ(before.norm->stream.buffer, norm.x.buffer);
  EXPECT_EQ(before.norm->normed.buffer, norm.y.buffer);
  EXPECT_EQ(before.norm->weight, norm.weight);
  EXPECT_EQ(before.norm->squares.buffer, behind.scale->squares.buffer);
  EXPECT_EQ(behind.scale->eps, norm.eps);
  EXPECT_FALSE(before.scale || behind.norm || linear(2).scale || linear(2).norm || linear(9).norm);
  EXPECT_EQ(lowered.dispatches[8].covered_by, 7u);
  ASSERT_TRUE(behind.gate);
  EXPECT_EQ(behind.gate->y.buffer, std::get<call::Gated>(lowered.dispatches[8].what).y.buffer);
  // What the product before writes of few rows is there from then on, and of more where the norm begins.
  const Buffer& normed = lowered.buffers[norm.y.buffer];
  EXPECT_EQ(normed.few.first, 5u);
  EXPECT_EQ(normed.uses.first, 6u);
  EXPECT_EQ(normed.uses.last, 7u);
  const Buffer& squares = lowered.buffers[before.norm->squares.buffer];
  EXPECT_EQ(squares.width, 256u / 32);
  EXPECT_EQ(squares.few.first, 5u);
  EXPECT_EQ(squares.few.last, 7u);
  EXPECT_TRUE(squares.uses.none());
}

size_t n_covered(const Program& program, const FusionRules& rules = {}) {
  const Lowered lowered = lower(program, rules).value();
  return std::ranges::count_if(lowered.dispatches,
                               [](const Dispatch& d) { return d.covered_by.has_value(); });
}

TEST(Lowering, ANormThatOthersHavePartInIsADispatch) {
  Program program = llama({.n_layers = 1});
  EXPECT_EQ(n_covered(program), 2u);
  EXPECT_EQ(n_covered(program, without("norm")), 1u);
  EXPECT_EQ(n_covered(program, without("activation")), 1u);
  EXPECT_EQ(n_covered(program, without("residual")), 1u) << "it adds nothing";
  EXPECT_EQ(n_covered(program, without("gate")), 1u);
  EXPECT_EQ(n_covered(program, without("stack")), 1u) << "gates and ups are two products";
  EXPECT_EQ(n_covered(program, FusionRules::none()), 0u);
  nth<op::RmsNorm>(program, 1).group = 64;
  EXPECT_EQ(n_covered(program), 1u) << "of groups of a row";
}

TEST(Lowering, ScoresThatNothingDividesAreAClassOfTheirOwn) {
  Program program = llama({.n_layers = 2});
  EXPECT_FALSE(lower(program).value().attention_classes.front().large_scores);
  nth<op::Attention>(program, 1).scale = 1;
  const Lowered lowered = lower(program).value();
  ASSERT_EQ(lowered.attention_classes.size(), 2u);
  EXPECT_FALSE(lowered.attention_classes[0].large_scores);
  EXPECT_TRUE(lowered.attention_classes[1].large_scores);
  EXPECT_EQ(attention_math(lowered.attention_classes[0], ops::Math::kAuto), ops::Math::kAuto);
  EXPECT_EQ(attention_math(lowered.attention_classes[1], ops::Math::kAuto), ops::Math::kF32);
  EXPECT_EQ(attention_math(lowered.attention_classes[1], ops::Math::kF16), ops::Math::kF16);
}

TEST(Lowering, WhatTurnsDifferentlyTurnsByItselfInPlace) {
  Program program = llama({.n_layers = 1});
  nth<op::Rope>(program, 1).halves = true;
  const Lowered lowered = lower(program).value();
  const std::vector<std::string> expected = {"embedding", "attn_norm", "qkv",       "rope",
                                             "rope",      "rope_kv",   "attention", "attn_output"};
  const std::vector<std::string> all = parts(lowered);
  EXPECT_EQ(std::vector(all.begin(), all.begin() + 8), expected);
  EXPECT_EQ(std::get<call::Rope>(lowered.dispatches[3].what).n_heads, 4u);
  EXPECT_EQ(std::get<call::Rope>(lowered.dispatches[4].what).x.first, 256u);
  EXPECT_FALSE(std::get<call::RopeKv>(lowered.dispatches[5].what).rope);
}

TEST(Lowering, LayersThatShareAStateOnlyReadIt) {
  const auto path = test::shared_path("reference/families/gemma4.gguf");
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "no shared data: " << path;
  const Program program = build_program(ModelSource::open(path).value()).value();
  const Lowered lowered = lower(program).value();
  const auto count = [&](const char* part) { return std::ranges::count(parts(lowered), part); };
  EXPECT_EQ(program.layers.size(), 6u);
  EXPECT_EQ(count("attention"), 6);
  EXPECT_EQ(count("rope_kv"), 3);
  EXPECT_EQ(count("qkv"), 3);
  EXPECT_EQ(program.state_groups[0].n_slots + program.state_groups[1].n_slots, 3u);
}

TEST(Lowering, TheStreamStaysWhereItIsAndTheLastNormGathers) {
  const Lowered lowered = lower(llama()).value();
  const auto norm = [&](size_t i) { return std::get<call::RmsNorm>(lowered.dispatches[i].what); };
  const BufferId x = std::get<call::Embed>(lowered.dispatches[0].what).y.buffer;
  EXPECT_FALSE(norm(1).residual);
  for (const size_t i : {1u, 6u, 10u, 15u, 19u}) {
    EXPECT_EQ(norm(i).x.buffer, x) << i;
    EXPECT_EQ(norm(i).gathers, i == 19) << i;
    if (i > 1) {
      ASSERT_TRUE(norm(i).residual) << i;
      EXPECT_EQ(norm(i).residual->buffer,
                std::get<call::Linear>(lowered.dispatches[i - 1].what).y.buffer);
    }
  }
}

TEST(Lowering, EachRuleLeftOutIsWorkOfItsOwn) {
  const Program program = llama({.n_layers = 1});
  const size_t all = lower(program).value().dispatches.size();
  const auto n = [&](const FusionRules& rules) {
    return lower(program, rules).value().dispatches.size();
  };
  EXPECT_EQ(n(without("stack")), all + 3);     // k, v, up
  EXPECT_EQ(n(without("residual")), all + 2);  // after attention and the feed-forward
  EXPECT_EQ(n(without("gate")), all + 1);      // the activation, then the product
  for (const char* unused : {"embed_scale", "bias", "head_norm", "norm", "activation"}) {
    EXPECT_EQ(n(without(unused)), all) << unused;
  }
  EXPECT_EQ(n(FusionRules::none()), all + 6);
}

TEST(Lowering, RulesAreNamed) {
  EXPECT_EQ(FusionRules().text(), "all");
  EXPECT_EQ(FusionRules::none().text(), "none");
  EXPECT_EQ(FusionRules::parse("gate").value().text(), "gate");
  EXPECT_EQ(FusionRules::parse("-gate").value().text(),
            "stack,embed_scale,residual,bias,head_norm,expand,norm,activation,planes");
  for (size_t i = 0; i < kFusionRuleCount; ++i) {
    const auto rule = static_cast<FusionRule>(i);
    EXPECT_TRUE(FusionRules::parse(fusion_rule_name(rule)).value().has(rule));
  }
  for (const char* wrong : {"", "-", "gates", "-all", "gate,stack"}) {
    EXPECT_FALSE(FusionRules::parse(wrong).ok()) << wrong;
  }
  EXPECT_NE(FusionRules::parse("x").error().message.find("embed_scale"), std::string::npos);
}

/// Buffers that are in use at once lie apart, in steps of every number of rows.
void expect_apart(const Lowered& lowered, const ActivationPlan& plan, const DecoderLimits& limits) {
  const auto end = [&](BufferId id, uint32_t rows) {
    const Buffer& b = lowered.buffers[id];
    const uint32_t all = b.rows == RowSet::kAll ? limits.rows : limits.logit_rows;
    return plan.offsets[id] + 4 * uint64_t{b.width} * std::min(all, rows);
  };
  const auto expect = [&](Uses Buffer::*uses, uint32_t rows) {
    for (BufferId a = 0; a < lowered.buffers.size(); ++a) {
      const Uses& of_a = lowered.buffers[a].*uses;
      if (of_a.none()) continue;
      EXPECT_EQ(plan.offsets[a] % 256, 0u);
      EXPECT_LE(end(a, rows), plan.bytes);
      for (BufferId b = 0; b < a; ++b) {
        const bool apart = end(a, rows) <= plan.offsets[b] || end(b, rows) <= plan.offsets[a];
        EXPECT_TRUE(apart || !of_a.meets(lowered.buffers[b].*uses))
            << a << " and " << b << " of " << rows << " rows";
      }
    }
  };
  expect(&Buffer::uses, limits.rows);
  expect(&Buffer::few, ops::Gemv::kMaxRows);
}

TEST(Lowering, MemoryIsSharedByWhatIsNeverInUseAtOnce) {
  const DecoderLimits limits{.rows = 20, .logit_rows = 2};
  std::mt19937 random(1);
  const auto some = [&](uint32_t n) { return static_cast<uint32_t>(random() % n); };
  for (int i = 0; i < 200; ++i) {
    Lowered lowered;
    for (int b = 0; b < 20; ++b) {
      Buffer buffer{.width = 1 + some(300), .rows = some(4) == 0 ? RowSet::kLogits : RowSet::kAll};
      const uint32_t first = some(30);
      buffer.few = {.first = first, .last = first + some(6)};
      const bool only_of_few = buffer.rows == RowSet::kAll && some(5) == 0;
      if (!only_of_few)
        buffer.uses = {.first = std::min(first + some(2), buffer.few.last),
                       .last = buffer.few.last};
      if (buffer.rows == RowSet::kLogits) buffer.uses = buffer.few;
      lowered.buffers.push_back(buffer);
    }
    expect_apart(lowered, plan_activations(lowered, limits), limits);
  }
}

TEST(Lowering, MoreLayersNeedNoMoreMemory) {
  const auto bytes = [](uint32_t n_layers, const FusionRules& rules = {}) {
    const Lowered lowered = lower(llama({.n_layers = n_layers}), rules).value();
    const DecoderLimits limits{.rows = 512, .logit_rows = 1};
    const ActivationPlan plan = plan_activations(lowered, limits);
    expect_apart(lowered, plan, limits);
    return plan.bytes;
  };
  EXPECT_EQ(bytes(3), bytes(30));
  // x, gates with ups, what they give: no more than is in use at once.
  EXPECT_LE(bytes(3), 512u * 4 * (256 + 2 * 512 + 512));
  // What is done of few rows alone needs memory for few.
  for (const char* rule : {"-norm", "-activation"}) {
    EXPECT_EQ(bytes(3), bytes(3, FusionRules::parse(rule).value())) << rule;
  }
}

TEST(ReadShares, AreWhatATokenReadsOfEachMatrix) {
  const auto share = [](const Program& program, std::string_view name) {
    const auto tensor = std::ranges::find(program.tensors, name, &TensorSpec::name);
    EXPECT_NE(tensor, program.tensors.end()) << name;
    return read_shares(
        program, lower(program).value())[static_cast<size_t>(tensor - program.tensors.begin())];
  };
  const Program mixture = llama(find_synthetic_preset("moe-tiny").value());
  EXPECT_DOUBLE_EQ(share(mixture, "token_embd.weight"), 1.0 / 512);
  EXPECT_DOUBLE_EQ(share(mixture, "blk.1.attn_q.weight"), 1);
  EXPECT_DOUBLE_EQ(share(mixture, "blk.1.ffn_gate_inp.weight"), 1);
  EXPECT_DOUBLE_EQ(share(mixture, "blk.1.ffn_up_exps.weight"), 2.0 / 4);
  EXPECT_DOUBLE_EQ(share(mixture, "output.weight"), 1);
  const Program tied = llama({.n_layers = 1, .tied = true});
  EXPECT_DOUBLE_EQ(share(tied, "token_embd.weight"), 1 + 1.0 / 512);
}

TEST(Lowering, ACutProgramEndsAsTheWholeOne) {
  const Program program = llama({.n_layers = 5});
  const Program cut = first_layers(program, 2);
  EXPECT_EQ(cut.layers.size(), 2u);
  const Lowered lowered = lower(cut).value();
  EXPECT_EQ(parts(lowered), parts(lower(llama({.n_layers = 2})).value()));
  // Its matrices are those of the whole, which are in memory.
  const Lowered whole = lower(program).value();
  for (const auto& group : lowered.matrices) {
    const auto same = [&](const std::vector<MatrixRows>& other) {
      return other.size() == group.size() && other[0].tensor == group[0].tensor;
    };
    EXPECT_TRUE(std::ranges::any_of(whole.matrices, same));
  }
  EXPECT_EQ(first_layers(program, 5).ops.size(), program.ops.size());
  EXPECT_EQ(first_layers(program, 9).layers.size(), 5u);
}

TEST(Lowering, OneGroupOfStateIsOnePage) {
  const Program program = llama({.n_layers = 3});
  const StateLayout layout = state_layout(program, KvType::kF16);
  constexpr uint32_t kSlot = 2 * 16 * 2 * 64 * 2;  // k and v, tokens, heads, numbers, bytes
  ASSERT_EQ(layout.kinds.size(), 1u);
  EXPECT_EQ(layout.page_bytes, 3 * kSlot);
  EXPECT_EQ(layout.place({0, 2}).offset_bytes, 2 * kSlot);
  EXPECT_EQ(page_kinds(program, layout)[0].form, StateForm::kFull);
  // Keys of 64 bytes and two scales, values of 32 bytes and two scales.
  EXPECT_EQ(state_layout(program, {KvType::kQ8_0, KvType::kQ4_0}).page_bytes,
            3 * 16 * 2 * (64 + 4 + 32 + 4));
}

TEST(Lowering, ALatentIsKeptWithoutACopyAndWithoutValues) {
  const auto path = test::shared_path("reference/families/deepseek2.gguf");
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "no shared data: " << path;
  const Program program = build_program(ModelSource::open(path).value()).value();
  const Lowered lowered = lower(program).value();
  const std::vector<std::string> all = parts(lowered);
  const std::vector<std::string> attention = {
      "attn_norm",     "attn_q_a",       "attn_q_a_norm", "attn_q_b",   "rope",
      "attn_kv_a_mqa", "attn_kv_a_norm", "rope",          "attn_k_b",   "rope_kv",
      "attention",     "attn_v_b",       "attention",     "attn_output"};
  EXPECT_EQ(std::vector(all.begin() + 1, all.begin() + 15), attention);
  EXPECT_EQ(std::get<call::Rope>(lowered.dispatches[5].what).x.first, 32u);
  EXPECT_EQ(std::get<call::Rope>(lowered.dispatches[8].what).x.first, 64u);
  EXPECT_EQ(lowered.attention_classes.front().head_dim, 96u);
  EXPECT_EQ(lowered.attention_classes.front().value_dim(), 64u);

  // The same once more, of chunks of many rows: queries from before their way to the latents'
  // space, results to where their way out of it ends.
  ASSERT_EQ(lowered.attention_classes.size(), 2u);
  const AttentionClass& expanded = lowered.attention_classes.back();
  EXPECT_EQ(expanded.expands, 0u);
  EXPECT_EQ(expanded.n_kv_heads, 4u);
  EXPECT_EQ(expanded.head_dim, 64u);
  EXPECT_EQ(expanded.value_dim(), 64u);
  const auto& to_latents = std::get<call::HeadLinear>(lowered.dispatches[9].what);
  const auto& from_latents = std::get<call::HeadLinear>(lowered.dispatches[12].what);
  const auto& again = std::get<call::ExpandedAttention>(lowered.dispatches[13].what);
  EXPECT_EQ(to_latents.attention_class, 0u);
  EXPECT_EQ(from_latents.attention_class, 0u);
  EXPECT_EQ(again.attention_class, 1u);
  EXPECT_EQ(again.q.buffer, to_latents.x.buffer);
  EXPECT_EQ(again.y.buffer, from_latents.y.buffer);
  EXPECT_FALSE(again.fused);
  EXPECT_GE(lowered.buffers[again.q.buffer].uses.last, 13u);
  const Lowered absorbed = lower(program, without("expand")).value();
  EXPECT_EQ(absorbed.attention_classes.size(), 1u);
  EXPECT_EQ(absorbed.dispatches.size(), lowered.dispatches.size() - program.layers.size());

  const StateLayout layout = state_layout(program, {KvType::kF16, KvType::kF32});
  EXPECT_EQ(layout.block_bytes(), 2 * 16 * 96 * 2);  // layers, tokens, numbers, bytes
  EXPECT_EQ(page_kinds(program, layout)[0].form, StateForm::kLatent);
}

TEST(Lowering, ValuesThatAreSmallerThanKeysLieBesideThemAndTakeLess) {
  const auto file = test::PlainTransformer(test::form_with_small_values()).file();
  const Program program = build_program(file->file()).value();
  const Lowered lowered = lower(program).value();
  const std::vector<std::string> all = parts(lowered);
  const std::vector<std::string> expected = {"attn_norm", "qkv",         "rope_kv",
                                             "attention", "attn_output", "scale"};
  EXPECT_EQ(std::vector(all.begin() + 1, all.begin() + 7), expected);
  const auto& rope_kv = std::get<call::RopeKv>(lowered.dispatches[3].what);
  EXPECT_EQ(lowered.buffers[rope_kv.qkv.buffer].width, 4 * 64 + 64 + 32u);
  EXPECT_EQ(rope_kv.v_dim, 32u);
  ASSERT_EQ(lowered.attention_classes.size(), 2u);
  for (const AttentionClass& one : lowered.attention_classes) {
    EXPECT_EQ(one.head_dim, 64u);
    EXPECT_EQ(one.value_dim(), 32u);
  }
  // Of four layers two see all, with one kv head rather than two.
  const StateLayout layout = state_layout(program, {KvType::kF16, KvType::kQ8_0});
  constexpr uint32_t kHead = 16 * (64 * 2 + 32 + 4);  // tokens; keys, values and their scale
  ASSERT_EQ(layout.kinds.size(), 3u);
  EXPECT_EQ(layout.kinds[0].bytes, 2 * kHead);
  EXPECT_EQ(layout.kinds[1].bytes, 2 * kHead);
  EXPECT_EQ(layout.place({1, 1}).offset_bytes, 0u);
}

TEST(Lowering, NumbersThatLieApartAreCopiedSideBySide) {
  ProgramBuilder p({.architecture = "test", .n_vocab = 8, .context_length = 64});
  const ValueId x = p.embed("token_embd", 8, 8);
  p.begin_layer(x);
  const auto halves = [&](ValueId y, uint32_t first, uint32_t second) {
    const ValueId a = p.split(y, first, 4);
    return p.concat(a, p.split(y, second, 4));
  };
  const ValueId y = p.linear(halves(x, 4, 0), "a", 8);
  p.end_layer(p.linear(halves(y, 0, 4), "b", 8));
  const Program program = p.finish(p.linear(y, "output", 8)).value();
  const std::vector<std::string> expected = {"embedding", "concat", "concat", "a"};
  const std::vector<std::string> all = parts(lower(program).value());
  EXPECT_EQ(std::vector(all.begin(), all.begin() + 4), expected);
}

TEST(Lowering, APartThatMatricesCannotReadWhereItIsIsCopied) {
  const auto second = [](uint32_t n_before, uint32_t n_first) {
    ProgramBuilder p({.architecture = "test", .n_vocab = 8, .context_length = 64});
    const ValueId x = p.linear(p.embed("token_embd", 8, 8), "x", n_before);
    const Program program = p.finish(p.linear(p.split(x, n_first, 8), "output", 8)).value();
    const Lowered lowered = lower(program).value();
    return std::holds_alternative<call::Linear>(lowered.dispatches[2].what);
  };
  EXPECT_TRUE(second(16, 8));
  EXPECT_FALSE(second(16, 6));
  EXPECT_FALSE(second(14, 4));
}

TEST(Lowering, APartOfWhatIsReadLaterIsNotChangedInPlace) {
  const auto dispatches = [](bool reads_all, uint32_t other_first) {
    ProgramBuilder p({.architecture = "test", .n_vocab = 8, .context_length = 64});
    const ValueId x = p.linear(p.embed("token_embd", 8, 8), "x", 8);
    const ValueId active = p.silu(p.split(x, 0, 4));
    const ValueId other = p.linear(p.split(x, other_first, 4), "other", 8);
    const ValueId sum = p.add(p.linear(active, "y", 8), other);
    const Program program = p.finish(reads_all ? p.add(sum, x) : sum).value();
    return lower(program).value().dispatches;
  };
  const auto in_place = [](const std::vector<Dispatch>& all) {
    for (const Dispatch& dispatch : all) {
      const auto* const call = std::get_if<call::Elementwise>(&dispatch.what);
      if (call != nullptr && call->kind == ops::Elementwise::Kind::kSilu) {
        return call->a.buffer == call->y.buffer;
      }
    }
    throw std::out_of_range("no activation");
  };
  EXPECT_TRUE(in_place(dispatches(false, 4)));
  EXPECT_FALSE(in_place(dispatches(false, 3)));
  EXPECT_FALSE(in_place(dispatches(true, 4)));
}

TEST(Lowering, GroupsAreCutIntoPagesAboutAsLargeAsTheSmallest) {
  Program program = llama({.n_layers = 4});
  program.state_groups.push_back(
      {.name = "window", .n_kv_heads = 2, .head_dim = 64, .window = 128, .n_slots = 22});
  const StateLayout layout = state_layout(program, KvType::kF32);
  constexpr uint32_t kSlot = 2 * 16 * 2 * 64 * 4;
  ASSERT_EQ(layout.kinds.size(), 1u + 6u);  // 4 | 4 4 4 4 4 2
  EXPECT_EQ(layout.page_bytes, 4 * kSlot);
  EXPECT_EQ(layout.place({0, 3}).kind, 0u);
  EXPECT_EQ(layout.place({1, 0}).kind, 1u);
  EXPECT_EQ(layout.place({1, 21}).kind, 6u);
  EXPECT_EQ(layout.place({1, 21}).offset_bytes, kSlot);
  const std::vector<PageKind> groups = page_kinds(program, layout);
  EXPECT_EQ(groups[0].form, StateForm::kFull);
  EXPECT_EQ(groups[6].form, StateForm::kWindow);
  EXPECT_EQ(groups[6].window_tokens, 128u);
  // A long context: the full group all of it, each window its own.
  EXPECT_EQ(pages_of_context(groups, 16000, 64), 1000 + 6 * ((127 + 127 + 15) / 16 + 1u));
  // Slots of other widths.
  program.state_groups[1].n_kv_heads = 1;
  EXPECT_EQ(state_layout(program, KvType::kF32).kinds.size(), 1u + 3u);
}

TEST(Lowering, StatesOfRecurrencesLieInPagesOfTheirOwn) {
  Program program = llama({.n_layers = 4});
  constexpr uint32_t kSlot = 2 * 16 * 2 * 64 * 2;         // of keys and values in 16 bits
  constexpr uint64_t kState = 4 * kSlot / sizeof(float);  // as many bytes as all layers' block
  StateGroup states{.name = "conv", .n_slots = 4, .recurrent = true};
  states.state_floats = {kState / 2 - 1, kState / 2, kState, kState};
  program.state_groups.push_back(states);
  const StateLayout layout = state_layout(program, KvType::kF16);
  ASSERT_EQ(layout.kinds.size(), 1u + 3u);  // two | one | one
  EXPECT_EQ(layout.page_bytes, 4 * kSlot);
  EXPECT_EQ(layout.block_bytes(), 4 * kSlot);
  EXPECT_EQ(layout.block_tokens, 16u);
  EXPECT_EQ(layout.recurrent_kinds(), 0b1110u);
  EXPECT_EQ(layout.place({1, 1}).kind, 1u);
  EXPECT_EQ(layout.place({1, 1}).offset_bytes, 2 * kSlot) << "a whole number of 256 bytes";
  EXPECT_EQ(layout.place({1, 2}).kind, 2u);
  EXPECT_EQ(layout.place({1, 3}).offset_bytes, 0u);
  const std::vector<PageKind> groups = page_kinds(program, layout);
  EXPECT_EQ(groups[0].form, StateForm::kFull);
  EXPECT_EQ(groups[3].form, StateForm::kRecurrent);
  // One that is read, one that is written, and one that the next step writes meanwhile.
  EXPECT_EQ(pages_of_context(groups, 160, 64), 10 + 3 * 3u);
}

TEST(Lowering, BlocksHaveMoreTokensWhereStatesAreLarge) {
  Program program = llama({.n_layers = 4});
  constexpr uint32_t kBlock = 4 * 2 * 16 * 2 * 64 * 2;  // of 16 positions
  constexpr uint64_t kState = kBlock / sizeof(float);
  program.state_groups.push_back({.name = "states", .n_slots = 0, .recurrent = true});
  StateGroup& states = program.state_groups.back();
  const auto layout_of = [&](std::vector<uint64_t> floats) {
    states.n_slots = static_cast<uint32_t>(floats.size());
    states.state_floats = std::move(floats);
    return state_layout(program, KvType::kF16);
  };
  // A state is never cut.
  const StateLayout one = layout_of({10 * kState});
  EXPECT_EQ(one.page_bytes, 10u * kBlock);
  EXPECT_EQ(one.block_tokens, 10 * 16u);
  EXPECT_EQ(one.block_bytes(), kBlock);
  EXPECT_EQ(pages_of_context(page_kinds(program, one), 1000, 64, one.block_tokens), 7 + 3u);
  EXPECT_EQ(layout_of({100 * kState}).block_tokens, StateLayout::kMostBlockTokens);
  // A small one and a large one of each layer share a page.
  const StateLayout pairs = layout_of({kState / 4, 5 * kState, kState / 4, 5 * kState});
  EXPECT_EQ(pairs.kinds.size(), 1u + 2u);
  EXPECT_EQ(pairs.page_bytes, 5u * kBlock + kBlock / 4);
  EXPECT_EQ(pairs.block_tokens, 5 * 16u);
  // No more pages than a cache has groups.
  const StateLayout many = layout_of(std::vector<uint64_t>(40, kState));
  EXPECT_LE(many.kinds.size(), 16u);
  EXPECT_LE(many.page_bytes, 3u * kBlock);
}

TEST(Lowering, WhatNoKernelDoesIsNamed) {
  const std::pair<const char*, std::function<void(Program&)>> changes[] = {
      {"a state outside of attention",
       [](Program& p) { nth<op::Attention>(p, 1).kv = nth<op::Attention>(p, 0).kv; }},
  };
  for (const auto& [reason, change] : changes) {
    Program program = llama();
    change(program);
    const Result<Lowered> lowered = lower(program);
    ASSERT_FALSE(lowered.ok()) << reason;
    EXPECT_EQ(lowered.error().code, ErrorCode::kBadFile);
    EXPECT_EQ(
        lowered.error().message,
        std::string("architecture llama: Pumice can describe and check this model but not run "
                    "it yet: there is no kernel for ") +
            reason);
  }
}

TEST(Lowering, MoreExpertsThanTheRouterTakesAreRefusedByNumber) {
  const auto refusal = [](uint32_t n_experts, uint32_t n_used) {
    ProgramBuilder p({.architecture = "test", .n_vocab = n_experts, .context_length = 64});
    const ValueId x = p.embed("token_embd", n_experts, n_experts);
    const ValueId routes = p.route(x, n_used);
    const ValueId y = p.expert_linear(x, routes, "experts", {n_experts, n_experts, n_experts});
    const Program program = p.finish(p.combine(y, routes)).value();
    const Result<Lowered> lowered = lower(program);
    return lowered.ok() ? "" : lowered.error().message;
  };
  EXPECT_EQ(refusal(512, 16), "");
  EXPECT_NE(refusal(516, 4).find("4 of 516 experts"), std::string::npos);
  EXPECT_NE(refusal(64, 17).find("17 of 64 experts"), std::string::npos);
}

}  // namespace
}  // namespace pumice
