#include "bench/configuration.hpp"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace pumice::bench {
namespace {

TEST(Configuration, EveryKeyReachesTheEnginesOptions) {
  const auto parsed = Configuration::parse(
      "math=i8,kv=f32,chunk=64,batch=96,split=128,prefix_cache=on,run_ahead=off,invariant=on,"
      "fuse=-gate");
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  const EngineOptions options = parsed->applied_to({.context_tokens = 77, .prefix_cache = false});
  EXPECT_EQ(options.math, ops::Math::kI8);
  EXPECT_EQ(options.kv_type, KvType::kF32);
  EXPECT_EQ(options.chunk_tokens, 64u);
  EXPECT_EQ(options.token_budget, 96u);
  EXPECT_EQ(options.split_tokens, 128u);
  EXPECT_TRUE(options.prefix_cache);
  EXPECT_FALSE(options.run_ahead);
  EXPECT_TRUE(options.invariant);
  EXPECT_FALSE(options.fusion.has(FusionRule::kGate));
  EXPECT_TRUE(options.fusion.has(FusionRule::kStack));
  EXPECT_EQ(options.context_tokens, 77u) << "what is not named stays";
}

TEST(Configuration, KeysAndValuesMayHaveTypesOfTheirOwn) {
  EXPECT_EQ(Configuration::parse("kv=q8_0")->applied_to({}).kv_type, KvType::kQ8_0);
  EXPECT_EQ(Configuration::parse("kv=q8_0-bf16")->applied_to({}).kv_type,
            KvTypes(KvType::kQ8_0, KvType::kBF16));
  const auto unknown = Configuration::parse("kv=q9");
  ASSERT_FALSE(unknown.ok());
  EXPECT_NE(unknown.error().message.find("q8_0, q4_0"), std::string::npos)
      << unknown.error().message;
}

TEST(Configuration, NothingChangesNothing) {
  for (const char* text : {"", "null"}) {
    const auto parsed = Configuration::parse(text);
    ASSERT_TRUE(parsed.ok()) << text;
    EXPECT_EQ(parsed->name(), "default");
    EXPECT_EQ(options_to_json(parsed->applied_to({})), options_to_json({}));
  }
}

TEST(Configuration, VariantsAndLimitsAddUpAndOfOthersTheLastCounts) {
  const auto parsed = Configuration::parse(
      "limit=shared=16k,variant=-gemm.*.i8,limit=no-fp16,variant=gemv.q4_k,math=i8,math=f32");
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  EXPECT_EQ(parsed->limit, "shared=16k,no-fp16");
  EXPECT_EQ(parsed->variants, (std::vector<std::string>{"-gemm.*.i8", "gemv.q4_k"}));
  EXPECT_EQ(parsed->math, ops::Math::kF32);
}

TEST(Configuration, WhatCannotBeReadIsNamed) {
  const auto refuses = [](const char* text, const char* says) {
    const auto parsed = Configuration::parse(text);
    ASSERT_FALSE(parsed.ok()) << text;
    EXPECT_EQ(parsed.error().code, ErrorCode::kInvalidArgument);
    EXPECT_NE(parsed.error().message.find(says), std::string::npos) << parsed.error().message;
  };
  refuses("math", "KEY=VALUE");
  refuses("math=i8,,kv=f16", "KEY=VALUE");
  refuses("maths=i8", "'maths'");
  refuses("math=f64", "math=f64: expected auto, f32");
  refuses("kv=i8", "kv=i8");
  refuses("chunk=0", "chunk=0");
  refuses("chunk=1e3", "chunk=1e3");
  refuses("batch=99999999999", "batch=99999999999");
  refuses("split=40", "multiple of 16");
  refuses("run_ahead=yes", "on or off");
  refuses("fuse=gates", "embed_scale");
  refuses("variant=-", "name of a kernel");
  refuses("limit=wat", "wat");
  refuses("\x1b[31m", "\\x1b");
}

}  // namespace
}  // namespace pumice::bench
