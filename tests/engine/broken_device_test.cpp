// Devices that hang, and one that chooses tokens that there are not: who waits and who closes
// returns, nothing of one that hangs is freed, and requests go on elsewhere.
#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "host/recovery.hpp"
#include "shaders/spirv.hpp"
#include "tests/engine/synthetic_fixture.hpp"
#include "tests/vk/broken_driver.hpp"

namespace pumice {
namespace {

using test::BrokenDriver;

class BrokenDevice : public test::SyntheticEngineTest {
 protected:
  using Clock = std::chrono::steady_clock;

  void SetUp() override {
    SyntheticEngineTest::SetUp();
    if (IsSkipped()) return;
    file_.reset(new test::TemporaryFile(test::write_synthetic_model({})));
  }
  void TearDown() override {
    file_.reset();
    SyntheticEngineTest::TearDown();
  }

  /// On the hardware of the tests' device, through an instance of its own.
  Result<host::OpenedModel> open(const vk::Device::Intercept& intercept) const {
    const vk::Device& tested = *pipelines_->device();
    PUMICE_TRY(vk::Instance created, vk::Instance::create());
    const auto instance = std::make_shared<vk::Instance>(std::move(created));
    PUMICE_TRY(const std::vector<vk::DeviceSnapshot> snapshots, instance->snapshots());
    size_t index = 0;
    while (snapshots[index].device_uuid != tested.snapshot().device_uuid ||
           snapshots[index].driver_id != tested.snapshot().driver_id) {
      ++index;
    }
    PUMICE_TRY(vk::DevicePlan plan, vk::plan_device(snapshots[index], tested.plan().limits));
    host::OpenedModel opened;
    PUMICE_TRY(opened.device,
               vk::Device::create(instance, index, snapshots[index], plan, {}, intercept));
    opened.pipelines = std::make_shared<vk::PipelineLibrary>(opened.device, "", spirv_hash());
    PUMICE_TRY(const GgufFile file, GgufFile::open(file_->path()));
    PUMICE_TRY(opened.model, Model::load(opened.device, file));
    return opened;
  }
  static EngineOptions options() { return {.context_tokens = 128, .n_sequences = 3}; }

  std::unique_ptr<test::TemporaryFile> file_;
};

class HangingDevice : public BrokenDevice {
 protected:
  static constexpr double kHangTimeout_s = 0.1;
  static constexpr double kSoon_s = 20;  // of machines that do other things too

  /// An engine whose device hangs amid a request.
  void begin() {
    auto opened = open(BrokenDriver::intercept);
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    opened_ = std::move(opened).value();
    device_ = opened_.device->handle();
    instance_ = opened_.device->instance()->handle();
    instance_functions_ = opened_.device->instance()->functions();
    auto created = Engine::create(opened_.pipelines, opened_.model, options());
    ASSERT_TRUE(created.ok()) << created.error().message;
    engine_ = std::move(created).value();
    greedy(*engine_, tokens(40, 1), 3);
    ASSERT_TRUE(engine_->submit({.prompt = tokens(40, 2), .max_new_tokens = 9}).ok());
    opened_.device->wait_idle();
    opened_.device->retire([] {});  // with what it has finished
    // Not before: kernels are compiled at their first dispatch, which takes longer.
    opened_.device->set_hang_timeout(kHangTimeout_s);
    BrokenDriver::hang();
    ASSERT_TRUE(engine_->poll(1).ok());
    start_ = Clock::now();
  }
  /// Close all there is: nothing of it was freed, and nobody waits for ever.
  void end() {
    engine_.reset();
    EXPECT_TRUE(opened_.device->hangs());
    EXPECT_TRUE(opened_.device->is_lost());
    opened_ = {};
    EXPECT_LT(std::chrono::duration<double>(Clock::now() - start_).count(), kSoon_s);
    EXPECT_EQ(BrokenDriver::n_endless_waits(), 0);
    EXPECT_EQ(BrokenDriver::n_destroyed(), 0);
    BrokenDriver::clean_up(device_);
    // It is there still: loaders end a program that destroys an instance twice.
    instance_functions_.vkDestroyInstance(instance_, nullptr);
  }

  host::OpenedModel opened_;
  VkDevice device_ = VK_NULL_HANDLE;
  VkInstance instance_ = VK_NULL_HANDLE;
  vk::InstanceFunctions instance_functions_{};
  std::unique_ptr<Engine> engine_;
  Clock::time_point start_;
};

TEST_F(HangingDevice, IsNoticedByWhoWaits) {
  ASSERT_NO_FATAL_FAILURE(begin());
  const Status waited = engine_->wait(1e9);
  ASSERT_FALSE(waited.ok());
  EXPECT_EQ(waited.error().code, ErrorCode::kDeviceLost);
  EXPECT_NE(waited.error().message.find("no progress for 0.1 seconds"), std::string::npos)
      << waited.error().message;
  EXPECT_LT(std::chrono::duration<double>(Clock::now() - start_).count(), kSoon_s);
  const auto polled = engine_->poll(1);
  ASSERT_FALSE(polled.ok());
  EXPECT_EQ(polled.error().code, ErrorCode::kDeviceLost);
  end();
}

TEST_F(HangingDevice, IsNoticedByWhoClosesAnEngine) {
  ASSERT_NO_FATAL_FAILURE(begin());
  end();
}

TEST_F(HangingDevice, IsNoticedByWhoSavesOrRestores) {
  ASSERT_NO_FATAL_FAILURE(begin());
  const auto saved = engine_->save({.tokens = tokens(40, 1)});
  ASSERT_FALSE(saved.ok());
  EXPECT_EQ(saved.error().code, ErrorCode::kDeviceLost);
  end();
}

TEST_F(BrokenDevice, ThatChoosesATokenThatThereIsNotCountsAsLostAndRequestsGoOnElsewhere) {
  const EngineOptions options{
      .kv_type = KvType::kF32, .context_tokens = 128, .n_sequences = 3, .invariant = true};
  constexpr uint64_t kSampledBytes = 2 * 4;  // of a step in which both requests get a token
  const std::vector<TokenId> prompts[] = {tokens(20, 1), tokens(30, 2)};
  const auto undisturbed = make_engine(model_, options);
  std::map<RequestId, std::vector<TokenId>> expected;
  for (const uint32_t word : {UINT32_MAX, model_->program.n_vocab}) {
    auto opened = open(BrokenDriver::intercept);
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    const std::shared_ptr<vk::Device> broken = opened->device;
    auto created = Engine::create(opened->pipelines, opened->model, options);
    ASSERT_TRUE(created.ok()) << created.error().message;
    const std::unique_ptr<Engine> engine = std::move(created).value();
    host::Recovery recovery(std::move(opened).value(), [this] { return open({}); });
    opened = Error{};
    std::map<RequestId, std::vector<TokenId>> told;
    const auto submit = [&](const std::vector<TokenId>& prompt) {
      const auto id = engine->submit({.prompt = prompt, .max_new_tokens = 12});
      ASSERT_TRUE(id.ok());
      if (!expected.contains(*id)) expected[*id] = greedy(*undisturbed, prompt, 12);
    };
    submit(prompts[0]);
    int n_lost = 0;
    for (int i = 0; !engine->idle() && n_lost < 2; ++i) {
      if (i == 4) {
        BrokenDriver::spoil_copies(kSampledBytes, word);
        submit(prompts[1]);
      }
      const auto events = engine->step();
      EXPECT_TRUE(engine->check_integrity().ok());
      if (events.ok()) {
        for (const StepEvent& event : *events) {
          if (event.token) told[event.request].push_back(*event.token);
        }
        continue;
      }
      ++n_lost;
      EXPECT_EQ(events.error().code, ErrorCode::kDeviceLost) << events.error().message;
      EXPECT_NE(events.error().message.find("chose token " + std::to_string(word)),
                std::string::npos)
          << events.error().message;
      EXPECT_TRUE(broken->is_lost());
      EXPECT_FALSE(broken->hangs());
      Engine* const lost = engine.get();
      const Status recovered = recovery.recover({&lost, 1});
      ASSERT_TRUE(recovered.ok()) << recovered.error().message;
    }
    EXPECT_EQ(n_lost, 1);
    EXPECT_EQ(told, expected);
  }
}

}  // namespace
}  // namespace pumice
