// What files of LoRA adapters are refused for, and what a program with them is.
#include "models/adapter.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>

#include "models/model_plan.hpp"
#include "tests/models/plain_transformer.hpp"
#include "tests/models/small_adapter.hpp"

namespace pumice {
namespace {

using test::SmallAdapterFile;
using test::SmallTensor;

const test::PlainTransformer& base_model() {
  static const test::PlainTransformer model({.name = "llama", .architecture = "llama"});
  return model;
}

Program base_program() { return build_program(base_model().file()->file()).value(); }

/// The error of an adapter that `change` has changed; empty: it is taken.
std::string error_of(const std::function<void(SmallAdapterFile&)>& change) {
  test::SmallAdapter adapter(base_program(), 1, 2, 4);
  change(adapter.description());
  const auto source = AdapterSource::of_file("style", adapter.description().file());
  if (!source.ok()) return source.error().message;
  const auto program = with_adapters(base_program(), {&*source, 1});
  return program.ok() ? "" : program.error().message;
}

SmallTensor& tensor(SmallAdapterFile& file, const std::string& name) {
  return *std::ranges::find(file.tensors, name, &SmallTensor::name);
}

TEST(AdapterFile, IsTakenWholeOrRefusedByName) {
  const std::pair<std::string, std::function<void(SmallAdapterFile&)>> tests[] = {
      {"", [](SmallAdapterFile&) {}},
      {"adapter style: not a LoRA file: general.type is 'model' and adapter.type 'lora' where "
       "'adapter' and 'lora' are wanted",
       [](SmallAdapterFile& file) { file.general_type = "model"; }},
      {"adapter style: not a LoRA file: general.type is 'adapter' and adapter.type "
       "'control_vector' "
       "where 'adapter' and 'lora' are wanted",
       [](SmallAdapterFile& file) { file.type = "control_vector"; }},
      {"adapter style: activated LoRA (adapter.alora.invocation_tokens) is not supported",
       [](SmallAdapterFile& file) { file.activated = true; }},
      {"adapter style: adapter.lora.alpha must be finite",
       [](SmallAdapterFile& file) { file.alpha = std::numeric_limits<float>::infinity(); }},
      {"adapter style: it is for architecture qwen2, and the model is llama",
       [](SmallAdapterFile& file) { file.architecture = "qwen2"; }},
      {"adapter style: it adds to no matrix", [](SmallAdapterFile& file) { file.tensors.clear(); }},
      {"adapter style: blk.0.attn_q.weight: lora_b is missing",
       [](SmallAdapterFile& file) {
         std::erase_if(file.tensors, [](const SmallTensor& one) {
           return one.name == "blk.0.attn_q.weight.lora_b";
         });
       }},
      {"adapter style: blk.0.attn_norm.weight: neither .lora_a nor .lora_b; what replaces tensors "
       "of the base is not supported, merge it into the model",
       [](SmallAdapterFile& file) {
         file.tensors.push_back({"blk.0.attn_norm.weight", {64}});
       }},
      {"adapter style: blk.9.attn_q.weight: the model does not have this tensor: is it the "
       "adapter's base?",
       [](SmallAdapterFile& file) {
         file.tensors.push_back({"blk.9.attn_q.weight.lora_a", {64, 2}});
         file.tensors.push_back({"blk.9.attn_q.weight.lora_b", {2, 64}});
       }},
      {"adapter style: token_embd.weight: adapters of embeddings, experts and matrices of single "
       "heads are not supported; merge it into the model",
       [](SmallAdapterFile& file) {
         file.tensors.push_back({"token_embd.weight.lora_a", {72, 2}});
         file.tensors.push_back({"token_embd.weight.lora_b", {2, 64}});
       }},
      {"adapter style: blk.1.ffn_up.weight: its lora_a and lora_b are 64 x 2 x 1 and 2 x 95 x 1; "
       "the matrix of the base has 64 columns and 96 rows",
       [](SmallAdapterFile& file) {
         tensor(file, "blk.1.ffn_up.weight.lora_a") = {"blk.1.ffn_up.weight.lora_a", {64, 2}};
         tensor(file, "blk.1.ffn_up.weight.lora_b") = {"blk.1.ffn_up.weight.lora_b", {2, 95}};
       }},
      {"adapter style: blk.0.attn_q.weight: its lora_a and lora_b are 64 x 3 x 1 and 2 x 64 x 1; "
       "the matrix of the base has 64 columns and 64 rows",
       [](SmallAdapterFile& file) {
         tensor(file, "blk.0.attn_q.weight.lora_a") = {"blk.0.attn_q.weight.lora_a", {64, 3}};
         tensor(file, "blk.0.attn_q.weight.lora_b") = {"blk.0.attn_q.weight.lora_b", {2, 64}};
       }},
      {"adapter style: blk.0.attn_q.weight: rank 1025 is above the 1024 that are supported",
       [](SmallAdapterFile& file) {
         tensor(file, "blk.0.attn_q.weight.lora_a") = {"blk.0.attn_q.weight.lora_a", {64, 1025}};
         tensor(file, "blk.0.attn_q.weight.lora_b") = {"blk.0.attn_q.weight.lora_b", {1025, 64}};
       }},
  };
  for (const auto& [expected, change] : tests) EXPECT_EQ(error_of(change), expected);
}

TEST(AdapterFile, HasANameAndAScale) {
  const test::SmallAdapter adapter(base_program(), 1, 2, 4);
  const auto file = adapter.source("x").file;
  EXPECT_EQ(AdapterSource::of_file("", file).error().message, "an adapter needs a name");
  EXPECT_EQ(AdapterSource::of_file("style", file, NAN).error().message,
            "adapter style: its scale must be finite");
  EXPECT_EQ(adapter.source("x").factor(2), 2);
  EXPECT_EQ(AdapterSource::of_file("x", file, 0.5f)->factor(2), 1);
  EXPECT_NE(AdapterSource::of_file("x", file, 0.5f)->fingerprint, adapter.source("x").fingerprint);
  EXPECT_NE(test::SmallAdapter(base_program(), 2, 2, 4).source("x").fingerprint,
            adapter.source("x").fingerprint);
  const std::vector<AdapterSource> twice = {adapter.source("x"), adapter.source("x")};
  EXPECT_EQ(with_adapters(base_program(), twice).error().message, "two adapters have the name x");
}

TEST(AdapterFile, AddsItsCallsAndItsBytes) {
  const auto file = base_model().file();
  const test::SmallAdapter adapter(base_program(), 1, 5, 4);
  const ModelSource source = ModelSource(file->file()).with_adapters({adapter.source("x")});
  const auto base = ModelPlan::of_source(file->file()).value();
  const auto plan = ModelPlan::of_source(source).value();
  // q, k, v, o, gate, up and down of two layers, and the output.
  EXPECT_EQ(plan->program().adapted.size(), 2 * 7 + 1u);
  EXPECT_EQ(plan->loaded().dispatches.size(), base->loaded().dispatches.size() + 2 * 7 + 1);
  uint64_t bytes = 0;
  for (const AdaptedMatrix& matrix : plan->program().adapted) {
    EXPECT_EQ(matrix.rank, 8u);  // 5 or 6, padded
    const auto& dims = plan->program().tensors[matrix.tensor].dims;
    bytes += matrix.rank * (dims[0] + dims[1]) * sizeof(float);
  }
  EXPECT_GE(plan->weights().resident_bytes(), base->weights().resident_bytes() + bytes);
}

}  // namespace
}  // namespace pumice
