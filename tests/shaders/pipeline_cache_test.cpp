// The persistent pipeline cache: one file for each device, driver and shader hash, which is trusted
// only if it is what was written. What drivers put into it is theirs: CPU drivers a bare header,
// which the quirk that keeps the file away is switched off for here.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "shaders/gated_activation/gated_activation.hpp"
#include "shaders/spirv.hpp"
#include "vk/device.hpp"
#include "vk/device_choice.hpp"

namespace pumice {
namespace {

class PipelineCache : public ::testing::Test {
 protected:
  void SetUp() override {
    directory_ = std::filesystem::temp_directory_path() /
                 ("pumice-cache-test-" + std::to_string(::getpid()));
    Result<vk::Instance> instance = vk::Instance::create();
    if (!instance.ok()) GTEST_SKIP() << instance.error().message;
    auto shared = std::make_shared<vk::Instance>(std::move(instance).value());
    const std::vector<vk::DeviceSnapshot> snapshots = *shared->snapshots();
    const Result<size_t> index = vk::choose_device(snapshots, "");
    if (!index.ok()) GTEST_SKIP() << index.error().message;
    vk::DevicePlan plan = *vk::plan_device(snapshots[*index]);
    plan.quirks.pipeline_cache_is_empty = false;
    const Logger logger([this](LogLevel, std::string_view line) { log_ += line; },
                        LogLevel::kWarning);
    Result<std::shared_ptr<vk::Device>> device =
        vk::Device::create(shared, *index, snapshots[*index], std::move(plan), logger);
    ASSERT_TRUE(device.ok()) << device.error().message;
    device_ = *device;
  }
  void TearDown() override {
    device_.reset();
    std::error_code error;
    std::filesystem::remove_all(directory_, error);
  }

  static void save(vk::PipelineLibrary& pipelines) { pipelines.save(); }

  /// Compile one op with the cache of `shader_hash` and save it; what was logged meanwhile.
  std::string compile(uint64_t shader_hash = 1, void (*save_cache)(vk::PipelineLibrary&) = save) {
    log_.clear();
    vk::PipelineLibrary pipelines(device_, directory_, shader_hash);
    EXPECT_TRUE(ops::GatedActivation::plan(pipelines, ops::GatedActivation::Kind::kSilu).ok());
    const Status status = pipelines.compile();
    EXPECT_TRUE(status.ok()) << status.error().message;
    EXPECT_EQ(pipelines.compiled_count(), 1u);
    save_cache(pipelines);
    return log_;
  }
  std::vector<std::filesystem::path> files() const {
    std::vector<std::filesystem::path> result;
    for (const auto& entry : std::filesystem::directory_iterator(directory_))
      result.push_back(entry);
    return result;
  }

  std::filesystem::path directory_;
  std::shared_ptr<vk::Device> device_;
  std::string log_;
};

TEST_F(PipelineCache, IsOneFilePerShaderHashThatIsReadBackWithoutAWord) {
  EXPECT_EQ(compile(), "");
  ASSERT_EQ(files().size(), 1u);
  EXPECT_GT(std::filesystem::file_size(files()[0]), 32u);
  EXPECT_EQ(compile(), "");
  EXPECT_EQ(files().size(), 1u);
  EXPECT_EQ(compile(2), "");
  EXPECT_EQ(files().size(), 2u);
}

TEST_F(PipelineCache, ADamagedFileIsIgnoredWithAWordAndReplaced) {
  compile();
  const std::filesystem::path file = files().at(0);
  {
    std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
    stream.seekp(30);
    stream.put('\x55');
    stream.put('\xAA');
  }
  EXPECT_NE(compile().find("damaged"), std::string::npos);
  EXPECT_EQ(compile(), "");
  std::filesystem::resize_file(file, 10);
  EXPECT_NE(compile().find("damaged"), std::string::npos);
}

TEST_F(PipelineCache, AFolderThatCannotBeWrittenIsAWarning) {
  std::ofstream(directory_) << "a file";
  EXPECT_NE(compile().find("pipeline cache not saved"), std::string::npos) << log_;
}

TEST_F(PipelineCache, AFolderInTheFilesPlaceIsAWarning) {
  compile();
  const std::filesystem::path file = files().at(0);
  std::filesystem::remove(file);
  std::filesystem::create_directory(file);
  EXPECT_NE(compile().find("pipeline cache not saved"), std::string::npos) << log_;
  EXPECT_TRUE(std::filesystem::is_directory(file));
}

/// A limit on the size of files is met as a full disk is. It is for saving alone: SwiftShader keeps
/// the code it makes in files of memory.
void save_to_a_full_disk(vk::PipelineLibrary& pipelines) {
  rlimit before{};
  ::getrlimit(RLIMIT_FSIZE, &before);
  const auto previous = ::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{.rlim_cur = 16, .rlim_max = before.rlim_max};
  ::setrlimit(RLIMIT_FSIZE, &small);
  pipelines.save();
  ::setrlimit(RLIMIT_FSIZE, &before);
  ::signal(SIGXFSZ, previous);
}

TEST_F(PipelineCache, AFullDiskIsAWarningAndLeavesNothing) {
  std::filesystem::create_directory(directory_);
  const std::string log = compile(1, save_to_a_full_disk);
  EXPECT_NE(log.find("pipeline cache not saved"), std::string::npos) << log;
  EXPECT_TRUE(files().empty());
}

}  // namespace
}  // namespace pumice
