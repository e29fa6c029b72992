// A model on a device whose kernel is wrong: without a passport it says nonsense, with one the
// golden text.
#include "shaders/passport.hpp"

#include <nlohmann/json.hpp>
#include "shaders/gemv/gemv.hpp"
#include "shaders/spirv.hpp"
#include "tests/engine/engine_fixture.hpp"
#include "tests/shaders/wrong_kernel.hpp"

namespace pumice {
namespace {

// The variant of decoding's matrix product that this device prefers, and the other.
constexpr const char* kPreferred = "gemv.f32.broadcast";
constexpr const char* kOther = "gemv.f32.uniform";

class PassportedStories : public test::EngineTest {
 protected:
  void SetUp() override {
    EngineTest::SetUp();
    if (IsSkipped()) return;
    const auto path = test::shared_path("models/stories260K.gguf");
    if (!std::filesystem::exists(path)) GTEST_SKIP() << "no shared data: " << path;
    if (ops::tuned_x_route(pipelines_->device()->plan()) != ops::XRoute::kBroadcast) {
      GTEST_SKIP() << "this device does not prefer " << kPreferred;
    }
    own_ = pipelines_;
    model_ = load(path);
    ASSERT_NE(model_, nullptr);
    story_ = test::read_json(test::shared_path("reference/stories260K.greedy.json")).at(0);
    directory_ =
        std::filesystem::temp_directory_path() / ("pumice-passport-" + std::to_string(::getpid()));
  }
  void TearDown() override {
    if (own_) pipelines_ = own_;
    model_.reset();
    std::error_code error;
    std::filesystem::remove_all(directory_, error);
  }

  /// A library in which the preferred kernel is wrong.
  std::shared_ptr<vk::PipelineLibrary> wrong_library() const {
    auto library = std::make_shared<vk::PipelineLibrary>(own_->device(), "", spirv_hash());
    library->override_module(kPreferred, test::wrong_kernel(find_spirv(kPreferred)->words));
    return library;
  }
  std::vector<TokenId> tell(std::set<std::string>& variants) {
    const auto engine = make_engine(model_, {.context_tokens = 256, .greedy_only = true});
    if (!engine) return {};
    const auto prompt = story_.at("prompt_tokens").get<std::vector<TokenId>>();
    const auto told = greedy(*engine, prompt, 40);
    variants = engine->variants();
    return told;
  }
  std::vector<TokenId> golden() const {
    auto tokens = story_.at("tokens").get<std::vector<TokenId>>();
    tokens.resize(40);
    return tokens;
  }

  std::shared_ptr<vk::PipelineLibrary> own_;  // of all tests, while one replaces it
  std::shared_ptr<const Model> model_;
  nlohmann::json story_;
  std::filesystem::path directory_;
};

TEST_F(PassportedStories, AreToldByTheOtherVariantOfAKernelThatIsWrong) {
  std::set<std::string> variants;
  pipelines_ = wrong_library();
  EXPECT_NE(tell(variants), golden());
  EXPECT_TRUE(variants.contains(kPreferred));

  const auto tested = wrong_library();
  std::vector<ops::OpCase> cases = ops::all_op_cases();
  std::erase_if(cases, [](const ops::OpCase& test) {
    return test.op != "gemv" || !test.name.starts_with("F32");
  });
  const SelfTestResult result = run_self_test(*tested, cases, {});
  ASSERT_TRUE(result.status.ok()) << result.status.error().message;
  const vk::DeviceSnapshot& device = own_->device()->snapshot();
  ASSERT_TRUE(save_passport(directory_, device, result.verdict).ok());
  const auto passport = load_passport(directory_, device, {});
  ASSERT_TRUE(passport);
  EXPECT_EQ(passport->rejected(), vk::PipelineLibrary::ModuleNames{kPreferred});

  pipelines_ = wrong_library();
  pipelines_->reject(passport->rejected());
  EXPECT_EQ(tell(variants), golden());
  EXPECT_FALSE(variants.contains(kPreferred));
  EXPECT_TRUE(variants.contains(kOther));
  const std::vector<std::string> said = replacements(*pipelines_, *passport);
  ASSERT_EQ(said.size(), 1u);
  for (const char* words : {"gemv.f32 uses gemv.f32.uniform", kPreferred, "self-test"}) {
    EXPECT_NE(said[0].find(words), std::string::npos) << said[0];
  }
}

TEST_F(PassportedStories, AreRefusedWhenNoVariantIsLeft) {
  pipelines_ = wrong_library();
  pipelines_->reject({kPreferred, kOther});
  const auto engine = Engine::create(pipelines_, model_, {.context_tokens = 64});
  ASSERT_FALSE(engine.ok());
  EXPECT_EQ(engine.error().code, ErrorCode::kSelfTestFailed);
  EXPECT_NE(engine.error().message.find("gemv.f32"), std::string::npos) << engine.error().message;
}

}  // namespace
}  // namespace pumice
