// The same text and logits whatever a device lacks: with each optional feature withdrawn by itself,
// with all of them, and at every subgroup size it offers.
#include "tests/engine/engine_fixture.hpp"

#include <nlohmann/json.hpp>

namespace pumice {
namespace {

class Withdrawal : public test::EngineTest, public ::testing::WithParamInterface<std::string> {
 protected:
  void SetUp() override {
    EngineTest::SetUp();
    if (IsSkipped()) return;
    if (!std::filesystem::exists(test::shared_path("reference"))) GTEST_SKIP() << "no shared data";
    const auto limits = vk::parse_plan_options(GetParam());
    ASSERT_TRUE(limits.ok()) << limits.error().message;
    std::string unchanged;
    const auto device = test::GpuEnvironment::open([&](const vk::DeviceSnapshot& snapshot) {
      unchanged = why_unchanged(snapshot, *limits);
      return vk::plan_device(snapshot, unchanged.empty() ? *limits : vk::PlanOptions{});
    });
    ASSERT_TRUE(device.ok()) << device.error().message;
    if (!unchanged.empty()) GTEST_SKIP() << unchanged;
    limited_.emplace(*device);
  }
  void TearDown() override { limited_.reset(); }

  /// Where the device already is what the limit would make of it there is nothing to run.
  static std::string why_unchanged(const vk::DeviceSnapshot& snapshot,
                                   const vk::PlanOptions& limits) {
    const auto whole = vk::plan_device(snapshot);
    const auto limited = vk::plan_device(snapshot, limits);
    if (!limited.ok()) return limited.error().message;
    const bool same = limited->features == whole->features &&
                      limited->subgroup == whole->subgroup &&
                      limited->subgroup_size == whole->subgroup_size &&
                      limited->timestamp_valid_bits == whole->timestamp_valid_bits;
    return same ? "the device is like that already" : "";
  }

  void expect_logits(const std::string& name, KvType kv_type, double bound) {
    const auto stem = test::shared_path("reference/" + name).string();
    const auto model = load(stem + ".gguf");
    ASSERT_NE(model, nullptr);
    const auto tokens = test::read_json(stem + ".json").at("tokens").get<std::vector<TokenId>>();
    const auto expected = test::read_floats(stem + ".f32");
    for (const uint32_t chunk : {3u, 512u}) {  // rows of gemv and attention; tiles
      const auto got = logits(model, tokens, {.kv_type = kv_type, .chunk_tokens = chunk});
      EXPECT_LE(test::nmse(got, expected), bound) << name << ", chunks of " << chunk;
    }
  }

 private:
  std::optional<OnDevice> limited_;
};

TEST_P(Withdrawal, ChangesNoTextAndNoLogits) {
  const auto model = load(test::shared_path("models/stories260K.gguf"));
  ASSERT_NE(model, nullptr);
  const auto story = test::read_json(test::shared_path("reference/stories260K.greedy.json")).at(0);
  const auto prompt = story.at("prompt_tokens").get<std::vector<TokenId>>();
  const auto expected = story.at("tokens").get<std::vector<TokenId>>();
  for (const uint32_t chunk : {1u, 4u, 64u}) {
    const auto engine =
        make_engine(model, {.context_tokens = 128, .chunk_tokens = chunk, .greedy_only = true});
    ASSERT_NE(engine, nullptr);
    EXPECT_EQ(greedy(*engine, prompt, static_cast<uint32_t>(expected.size())), expected)
        << "chunks of " << chunk;
  }
  expect_logits("quants/F16", KvType::kF32, 1e-9);
  expect_logits("quants/mix-Q4_K_M", KvType::kF16, 1e-6);
}

std::vector<std::string> limits() {
  std::vector<std::string> all{"no-all",     "floor",      "binding=256k",
                               "subgroup=4", "subgroup=8", "subgroup=16"};
  for (const std::string& feature : vk::withdrawable_features()) all.push_back("no-" + feature);
  return all;
}

std::string test_name(const ::testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  for (char& c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  }
  return name;
}

INSTANTIATE_TEST_SUITE_P(Limits, Withdrawal, ::testing::ValuesIn(limits()), test_name);

}  // namespace
}  // namespace pumice
