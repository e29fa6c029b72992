// A block of Qwen 3.5 that predicts is one of its layers that attend, whatever its number: given
// tokens alone, it says what a model of that one layer says.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "models/families.hpp"
#include "models/lowering.hpp"
#include "models/reference.hpp"
#include "tests/models/nmse.hpp"
#include "tests/models/small_file.hpp"
#include "tests/shared_data.hpp"

namespace pumice {
namespace {

class Qwen35Prediction : public ::testing::Test {
 protected:
  static constexpr uint32_t kEmbd = 128;
  static constexpr uint32_t kLayers = 4;  // the last one attends
  static constexpr double kEps = 1e-6;

  void SetUp() override {
    const auto path = test::shared_path("reference/families/qwen35.gguf");
    if (!std::filesystem::exists(path)) GTEST_SKIP() << "no shared data: " << path;
    const ModelSource golden = ModelSource::open(path).value();
    for (const GgufTensor& tensor : golden.file().tensors()) {
      tensors_.push_back({std::string(tensor.name),
                          {tensor.dims.begin(), tensor.dims.begin() + tensor.n_dims},
                          golden.values(tensor).value()});
    }
  }

  static std::unique_ptr<test::SmallFile> file(const std::vector<test::SmallTensor>& tensors,
                                               uint32_t n_blocks, uint32_t interval,
                                               uint32_t n_prediction) {
    GgufHeader header;
    header.set("general.architecture", "qwen35");
    const auto set = [&](const std::string& key, auto value) {
      header.set("qwen35." + key, value);
    };
    set("context_length", 1024u);
    set("embedding_length", kEmbd);
    set("block_count", n_blocks);
    set("feed_forward_length", 192u);
    set("attention.head_count", 4u);
    set("attention.head_count_kv", 2u);
    set("attention.key_length", 64u);
    set("attention.value_length", 64u);
    set("attention.layer_norm_rms_epsilon", static_cast<float>(kEps));
    set("rope.freq_base", 1e7f);
    set("rope.dimension_count", 16u);
    set("ssm.conv_kernel", 4u);
    set("ssm.inner_size", 128u);
    set("ssm.state_size", 32u);
    set("ssm.time_step_rank", 4u);
    set("ssm.group_count", 2u);
    set("full_attention_interval", interval);
    set("nextn_predict_layers", n_prediction);
    return std::make_unique<test::SmallFile>(tensors, std::move(header));
  }

  /// Of the last layer's tensors, each with another number of its block.
  std::vector<test::SmallTensor> layer_as(const std::string& block) const {
    std::vector<test::SmallTensor> layer;
    for (test::SmallTensor tensor : tensors_) {
      if (!tensor.name.starts_with("blk.3.")) continue;
      tensor.name.replace(0, 6, block);
      layer.push_back(std::move(tensor));
    }
    return layer;
  }

  /// The model of that layer, whose embeddings are normed.
  std::vector<test::SmallTensor> one_layer() const {
    std::vector<test::SmallTensor> all = layer_as("blk.0.");
    for (test::SmallTensor tensor : tensors_) {
      if (tensor.name.starts_with("blk.")) continue;
      for (size_t row = 0; tensor.name == "token_embd.weight" && row < tensor.values.size();
           row += kEmbd) {
        double mean = kEps;
        for (size_t i = 0; i < kEmbd; ++i) mean += std::pow(tensor.values[row + i], 2) / kEmbd;
        for (size_t i = 0; i < kEmbd; ++i) {
          tensor.values[row + i] = static_cast<float>(tensor.values[row + i] / std::sqrt(mean));
        }
      }
      all.push_back(std::move(tensor));
    }
    return all;
  }

  /// The whole model with a block that takes of its inputs the tokens.
  std::vector<test::SmallTensor> with_block() const {
    std::vector<test::SmallTensor> all = tensors_;
    for (test::SmallTensor& tensor : layer_as("blk.4.")) all.push_back(std::move(tensor));
    all.push_back({"blk.4.nextn.enorm.weight", {kEmbd}, std::vector<float>(kEmbd, 1)});
    all.push_back({"blk.4.nextn.hnorm.weight", {kEmbd}, std::vector<float>(kEmbd, 1)});
    std::vector<float> first(size_t{2} * kEmbd * kEmbd);
    for (size_t i = 0; i < kEmbd; ++i) first[i * 2 * kEmbd + i] = 1;
    all.push_back({"blk.4.nextn.eh_proj.weight", {2 * kEmbd, kEmbd}, std::move(first)});
    for (test::SmallTensor& tensor : one_layer()) {  // which is tied
      if (tensor.name != "token_embd.weight") continue;
      tensor.name = "blk.4.nextn.shared_head_head.weight";
      all.push_back(std::move(tensor));
    }
    return all;
  }

  std::vector<test::SmallTensor> tensors_;
};

TEST_F(Qwen35Prediction, IsALayerThatAttends) {
  std::vector<TokenId> tokens(24);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<TokenId>(i * 31 % 509);
  const auto plain = file(one_layer(), 1, 1, 0);
  const Result<Program> layer = build_program(plain->file());
  ASSERT_TRUE(layer.ok()) << layer.error().message;
  const ReferenceLogits exact = reference_logits(plain->file(), *layer, tokens).value();
  const std::vector<float> expected(exact.logits.begin(), exact.logits.end());

  const auto whole = file(with_block(), kLayers + 1, kLayers, 1);
  const Result<Program> block = build_prediction(whole->file());
  ASSERT_TRUE(block.ok()) << block.error().message;
  EXPECT_TRUE(lower(*block).ok());
  ASSERT_EQ(block->state_groups.size(), 1u);
  EXPECT_EQ(block->state_groups[0].name, "full");
  const std::vector<double> hidden(tokens.size() * kEmbd, 0.5);
  const auto got = reference_logits(whole->file(), *block, tokens, {.given = hidden});
  ASSERT_TRUE(got.ok()) << got.error().message;
  EXPECT_LE(test::nmse(got->logits, expected), 1e-11);
}

}  // namespace
}  // namespace pumice
