// Models for which a device has too little memory, through the C ABI: their weights lie beside it,
// as those of the program do, and compute the same.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "api/handles.hpp"
#include "tests/api/api_fixture.hpp"
#include "tests/gpu_fixture.hpp"
#include "tests/paths.hpp"
#include "vk/plan.hpp"

namespace pumice {
namespace {

using test::Answer;

struct Used {
  pumice_stats stats = {sizeof(pumice_stats)};  // before any poll
  Answer answer;
  std::string warnings;
};

/// On a device that takes memory that the host can map for memory of another heap.
class WeightsBeside : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!test::GpuEnvironment::device()) GTEST_SKIP() << "no usable Vulkan device";
  }
  void TearDown() override { close(); }

  void open(uint64_t budget_bytes, bool has_other_heap = true) {
    close();
    auto device = test::GpuEnvironment::open(
        [=](const vk::DeviceSnapshot& snapshot) -> Result<vk::DevicePlan> {
          PUMICE_TRY(vk::DevicePlan plan, vk::plan_device(snapshot));
          for (const auto domain : {vk::MemoryDomain::kUpload, vk::MemoryDomain::kReadback}) {
            auto& heap = plan.memory[static_cast<size_t>(domain)].heap;
            heap = has_other_heap ? UINT32_MAX : plan.domain(vk::MemoryDomain::kDevice).heap;
          }
          plan.device_budget_bytes = std::min(plan.device_budget_bytes, budget_bytes);
          return plan;
        });
    ASSERT_TRUE(device.ok()) << device.error().message;
    const auto log = std::make_shared<host::LogQueue>();
    const host::OpenOptions options{.logger = host::LogQueue::logger(log, LogLevel::kInfo)};
    device_ = api::make_device(std::make_shared<host::DeviceOwner>(*device, options, nullptr), log)
                  .release();
  }
  pumice_status load(const pumice_engine_options* engine) {
    const std::string path = test::source_path("models/pumice-stories.gguf").string();
    pumice_model_options options{sizeof options};
    options.path = {path.data(), path.size()};
    options.engine = engine;
    return pumice_model_load(device_, &options, &model_);
  }
  void close() {
    pumice_model_close(model_);
    pumice_device_close(device_);
    model_ = nullptr;
    device_ = nullptr;
  }
  /// A model for an engine, that engine, and a request. NULL: the default.
  Used use(uint64_t budget_bytes, const pumice_engine_options* options) {
    Used used;
    open(budget_bytes);
    EXPECT_OK(load(options));
    pumice_engine* engine = nullptr;
    if (model_ != nullptr) EXPECT_OK(pumice_engine_create(model_, options, &engine));
    if (engine == nullptr) return used;
    EXPECT_OK(pumice_get_stats(engine, &used.stats));
    used.answer = test::ask(engine, 0, test::request_of("Once upon a time", 8));
    used.warnings = test::log_of(device_, PUMICE_LOG_WARNING);
    pumice_engine_close(engine);
    return used;
  }
  static pumice_engine_options engine_options() {
    pumice_engine_options options{sizeof options};
    options.context_tokens = 128;
    options.n_sequences = 2;
    return options;
  }

  pumice_device* device_ = nullptr;
  pumice_model* model_ = nullptr;
};

TEST_F(WeightsBeside, AreThoseThatDoNotFitBesideTheEngineThatIsNamed) {
  const pumice_engine_options options = engine_options();
  const Used all = use(UINT64_MAX, &options);
  EXPECT_EQ(all.stats.weight_bytes_beside, 0u);
  EXPECT_EQ(all.warnings, "");
  const uint64_t budget = all.stats.budgeted_bytes - all.stats.weight_bytes / 2;
  const Used tight = use(budget, &options);
  EXPECT_GE(tight.stats.weight_bytes_beside, all.stats.weight_bytes / 2);
  EXPECT_LT(tight.stats.weight_bytes_beside, all.stats.weight_bytes);
  EXPECT_LE(tight.stats.budgeted_bytes, budget);
  EXPECT_NE(tight.warnings.find("stay in the host's memory"), std::string::npos);
  EXPECT_EQ(tight.answer.tokens, all.answer.tokens);
}

TEST_F(WeightsBeside, MakeRoomForTheDefaultEngineWhereNoneIsNamed) {
  const Used all = use(UINT64_MAX, nullptr);
  EXPECT_EQ(all.stats.weight_bytes_beside, 0u);
  const Used tight = use(all.stats.budgeted_bytes - 1, nullptr);
  EXPECT_GT(tight.stats.weight_bytes_beside, 0u);
  EXPECT_LT(tight.stats.weight_bytes_beside, all.stats.weight_bytes);
  EXPECT_EQ(tight.answer.tokens, all.answer.tokens);
}

TEST_F(WeightsBeside, AreLoadedWhereOnlyAnEngineSmallerThanTheDefaultFits) {
  const Used all = use(UINT64_MAX, nullptr);
  pumice_engine_options small{sizeof small};
  small.context_tokens = 16;
  const Used least = use(UINT64_MAX, &small);
  const uint64_t budget = least.stats.budgeted_bytes - least.stats.weight_bytes / 2;
  ASSERT_LT(budget, all.stats.budgeted_bytes - all.stats.weight_bytes);
  open(budget);
  ASSERT_EQ(load(nullptr), PUMICE_OK) << pumice_last_error();
  pumice_engine* engine = nullptr;
  EXPECT_STATUS(PUMICE_DOES_NOT_FIT, pumice_engine_create(model_, nullptr, &engine));
  EXPECT_OK(pumice_engine_create(model_, &small, &engine));
  pumice_engine_close(engine);
}

TEST_F(WeightsBeside, AreRefusedWithTheNumbersWhereNothingFits) {
  const pumice_engine_options options = engine_options();
  for (const bool has_other_heap : {false, true}) {
    const pumice_engine_options* const none = nullptr;
    for (const pumice_engine_options* engine : {&options, none}) {
      open(uint64_t{256} << 10, has_other_heap);
      ASSERT_NE(device_, nullptr);
      EXPECT_STATUS(PUMICE_DOES_NOT_FIT, load(engine));
      EXPECT_EQ(model_, nullptr);
      EXPECT_NE(std::string(pumice_last_error()).find(" MiB"), std::string::npos)
          << pumice_last_error();
    }
  }
  open(uint64_t{16} << 20);
  pumice_engine_options large = engine_options();
  large.n_sequences = 1000;
  EXPECT_STATUS(PUMICE_DOES_NOT_FIT, load(&large));
  EXPECT_OK(load(&options));
  open(UINT64_MAX);
  pumice_engine_options wrong = engine_options();
  wrong.kv_type = pumice_str("f17");
  EXPECT_STATUS(PUMICE_INVALID_ARGUMENT, load(&wrong));
  wrong = {};
  EXPECT_STATUS(PUMICE_INVALID_ARGUMENT, load(&wrong));
}

}  // namespace
}  // namespace pumice
