// A program is built an operation a call; what does not fit together is an error that says where.
#include "models/program_builder.hpp"

#include <gtest/gtest.h>

namespace pumice {
namespace {

const ModelDimensions kDimensions{.architecture = "test", .n_vocab = 16, .context_length = 64};

using Build = void (*)(ProgramBuilder&, ValueId x);

/// The error of a program that does this to an embedding of 8 numbers in its layer 0.
std::string error_of(Build build) {
  ProgramBuilder p(kDimensions);
  const ValueId x = p.embed("token_embd", 8, 16);
  p.begin_layer(x);
  build(p, x);
  p.end_layer(x);
  const Result<Program> program = p.finish(p.linear(x, "output", 16));
  if (program.ok()) return "";
  EXPECT_EQ(program.error().code, ErrorCode::kBadFile);
  return program.error().message;
}

TEST(ProgramBuilder, NamesValuesByTensorOrOperand) {
  ProgramBuilder p(kDimensions);
  ValueId x = p.scale(p.embed("token_embd", 8, 16), 2);
  p.begin_layer(x);
  const ValueId gate = p.silu(p.linear(x, "ffn_gate", 4));
  const ValueId up = p.linear(x, "ffn_up", 4, ProgramBuilder::Bias::kAdded);
  const ValueId again = p.linear(x, "ffn_up", 4);
  x = p.add(x, p.linear(p.mul(p.add(gate, up), again), "ffn_down", 8));
  p.end_layer(x);
  const Program program = p.finish(p.linear(x, "token_embd", 16)).value();
  std::string names;
  for (const Value& value : program.values) names += value.name + " ";
  EXPECT_EQ(names,
            "token_embd x ffn_gate ffn_gate.silu ffn_up ffn_up.2 add mul ffn_down x logits ");
  std::string tensors;
  for (const TensorSpec& tensor : program.tensors) tensors += tensor.name + " ";
  EXPECT_EQ(tensors,
            "token_embd.weight blk.0.ffn_gate.weight blk.0.ffn_up.weight blk.0.ffn_up.bias "
            "blk.0.ffn_down.weight ");
  EXPECT_EQ(program.tensors[0].dims, (std::array<uint64_t, 4>{8, 16, 1, 1}));
  ASSERT_EQ(program.layers.size(), 1u);
  EXPECT_EQ(program.layers[0].first_op, 2u);
  EXPECT_EQ(program.layers[0].end_op, 10u);
  EXPECT_EQ(program.values[program.layers[0].input].width, 8u);
  EXPECT_EQ(program.logits, program.ops.back().result);
}

TEST(ProgramBuilder, StateGroupsCountTheirSlots) {
  ProgramBuilder p(kDimensions);
  const uint32_t full = p.state_group("full", 1, 8);
  const uint32_t recent = p.state_group("window", 1, 8, 32);
  const ValueId x = p.embed("token_embd", 8, 16);
  p.append(full, x, x);
  p.append(recent, x, x);
  const ValueId kv = p.append(full, x, x);
  const ValueId y = p.attention(x, kv, {.n_heads = 1, .scale = 1});
  const Program program = p.finish(p.linear(y, "output", 16)).value();
  EXPECT_EQ(program.state_groups[0].n_slots, 2u);
  EXPECT_EQ(program.state_groups[1].n_slots, 1u);
  EXPECT_EQ(std::get<op::Append>(program.ops[3].what).slot, 1u);
}

TEST(ProgramBuilder, WhatDoesNotFitIsNamed) {
  EXPECT_EQ(error_of([](auto&, auto) {}), "");
  EXPECT_EQ(error_of([](auto& p, auto x) { p.add(x, p.linear(x, "a", 4)); }),
            "blk.0.add: 8 numbers and 4");
  EXPECT_EQ(error_of([](auto& p, auto x) { p.mul(x, p.linear(x, "a", 3)); }),
            "blk.0.mul: 8 numbers times 3");
  EXPECT_EQ(error_of([](auto& p, auto x) { p.linear_rows(x, "a", 12, 8, 5); }),
            "blk.0.a: rows 8 to 13 of 12");
  EXPECT_EQ(error_of([](auto& p, auto x) { p.split(x, 6, 3); }),
            "blk.0.split: numbers 6 to 9 of 8");
  EXPECT_EQ(error_of([](auto& p, auto x) { p.head_norm(x, "a", 3, 1e-5f); }),
            "blk.0.a: 8 numbers are not heads of 3");
  EXPECT_EQ(error_of([](auto& p, auto x) { p.route(x, 9); }), "blk.0.route: 9 of 8 experts");
  EXPECT_EQ(error_of([](auto& p, auto x) { p.route(x, 3, {.n_groups = 4, .n_used_groups = 1}); }),
            "blk.0.route: 3 of 8 experts in 1 of 4 groups");
  EXPECT_EQ(error_of([](auto& p, auto x) { p.within(x, -1); }), "blk.0.clamp: a limit of -1");
  EXPECT_EQ(error_of([](auto& p, auto x) { p.soft_cap(x, 0); }), "blk.0.soft_cap: a cap of 0");
  EXPECT_EQ(error_of([](auto& p, auto x) {
              p.linear(x, "a", 4);
              p.linear(x, "a", 5);
            }),
            "blk.0.a.weight: read in two shapes");
  EXPECT_EQ(error_of([](auto& p, auto x) { p.append(p.state_group("full", 2, 8), x, x); }),
            "blk.0.append: keys of 8 and values of 8 numbers where state group full has 16 and 16");
  EXPECT_EQ(error_of([](auto& p, auto x) {
              const ValueId kv = p.append(p.state_group("full", 2, 4), x, x);
              p.attention(x, kv, {.n_heads = 3, .scale = 1});
            }),
            "blk.0.attention: 8 numbers are not 3 heads of 4 on 2 kv heads");
  EXPECT_EQ(error_of([](auto& p, auto x) {
              const ValueId kv = p.append(p.state_group("window", 1, 8, 32), x, x);
              p.attention(x, kv, {.n_heads = 1, .scale = 1, .window = 33});
            }),
            "blk.0.attention: a window of 33 keys in a state group that keeps 32");
  EXPECT_EQ(error_of([](auto& p, auto x) {
              p.rope(x, p.rotation({{.dims = 6}}, 6, ProgramBuilder::Pairs::kHalves));
            }),
            "blk.0.rope: 8 numbers are not heads of 6");
  EXPECT_EQ(error_of([](auto& p, auto) {
              p.rotation({{.dims = 6, .base = 0}}, 6, ProgramBuilder::Pairs::kHalves);
            }),
            "rope: base 0, factor 1 and attention factor 1 must be positive");
  EXPECT_EQ(error_of([](auto& p, auto x) {
              p.expert_linear(x, p.route(x, 2), "a", {5, 3, 8});
            }),
            "blk.0.a: 8 numbers are not one row of 5, nor 2 of them");
}

TEST(ProgramBuilder, LatentsThatDoNotFitAreNamed) {
  EXPECT_EQ(error_of([](auto& p, auto x) { p.append(p.latent_group("latent", 8, 6), x, x); }),
            "blk.0.append: state group latent keeps no values");
  EXPECT_EQ(error_of([](auto& p, auto x) { p.append(p.state_group("full", 1, 8), x); }),
            "blk.0.append: state group full keeps values");
  EXPECT_EQ(error_of([](auto& p, auto) { p.latent_group("latent", 8, 9); }),
            "state group latent: values of 9 of 8 numbers");
  EXPECT_EQ(error_of([](auto& p, auto x) {
              p.head_linear(x, "a", {.n_heads = 2, .n_cols = 5, .head_rows = 3, .n_rows = 3});
            }),
            "blk.0.a: 8 numbers are not 2 heads of 5 or more");
  EXPECT_EQ(error_of([](auto& p, auto x) {
              p.head_linear(
                  x, "a", {.n_heads = 2, .n_cols = 4, .head_rows = 3, .first_row = 2, .n_rows = 2});
            }),
            "blk.0.a: rows 2 to 4 of 3");
}

TEST(ProgramBuilder, OnlyTheFirstMisfitIsReported) {
  EXPECT_EQ(error_of([](auto& p, auto x) {
              p.add(x, p.linear(x, "a", 4));
              p.add(x, p.linear(x, "b", 5));
            }),
            "blk.0.add: 8 numbers and 4");
}

TEST(ProgramBuilder, TheResultIsAsWideAsTheVocabulary) {
  ProgramBuilder p(kDimensions);
  EXPECT_EQ(p.finish(p.embed("token_embd", 8, 16)).error().message,
            "logits: 8 numbers for a vocabulary of 16");
}

}  // namespace
}  // namespace pumice
