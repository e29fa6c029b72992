// The driver passport's file: what is remembered, for whom, and what is not believed.
#include "shaders/passport.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "shaders/spirv.hpp"

namespace pumice {
namespace {

using Json = nlohmann::json;
using State = ModuleVerdict::State;

class Passport : public ::testing::Test {
 protected:
  void SetUp() override {
    directory_ = std::filesystem::temp_directory_path() /
                 ("pumice-passport-test-" + std::to_string(::getpid()));
    device_.name = "Test device";
    device_.device_uuid = {1, 2, 3};
    device_.driver_uuid = {4, 5, 6};
    device_.driver_version = 7;
    device_.driver_info = "driver 7";
    for (const vk::ShaderModule& module : spirv_modules()) {
      verdict_.modules[std::string(module.name)] = {State::kPassed, 3, ""};
    }
    verdict_.modules["rms_norm"] = {State::kFailed, 0, "rms_norm n=3: y[0]: got 1, expected 2"};
    verdict_.modules["gated_activation"] = {State::kNotSupported, 0, "shaderFloat16"};
  }
  void TearDown() override {
    std::error_code error;
    std::filesystem::remove_all(directory_, error);
  }

  std::optional<SelfTestVerdict> load(const vk::DeviceSnapshot& device) {
    log_.clear();
    const Logger logger([this](LogLevel, std::string_view line) { log_ += line; },
                        LogLevel::kWarning);
    return load_passport(directory_, device, logger);
  }
  Json saved() {
    EXPECT_TRUE(save_passport(directory_, device_, verdict_).ok());
    std::ifstream file(passport_file(directory_, device_));
    return Json::parse(file);
  }
  /// Whether a file with this content is ignored, with a word about it.
  bool is_refused(const std::string& text) {
    std::ofstream(passport_file(directory_, device_)) << text;
    return !load(device_) && log_.find("damaged") != log_.npos;
  }

  std::filesystem::path directory_;
  vk::DeviceSnapshot device_;
  SelfTestVerdict verdict_;
  std::string log_;
};

TEST_F(Passport, RemembersTheVerdictOfADevice) {
  EXPECT_FALSE(load(device_));
  EXPECT_EQ(log_, "");
  ASSERT_TRUE(save_passport(directory_, device_, verdict_).ok());
  const auto loaded = load(device_);
  ASSERT_TRUE(loaded) << log_;
  EXPECT_EQ(*loaded, verdict_);

  verdict_.running = "gemm Q4_K";
  verdict_.running_modules = {"gated_activation"};
  ASSERT_TRUE(save_passport(directory_, device_, verdict_).ok());
  EXPECT_EQ(load(device_), verdict_);
}

TEST_F(Passport, IsForOneDeviceAndDriverOnly) {
  saved();
  const auto other = [&](auto change) {
    vk::DeviceSnapshot device = device_;
    change(device);
    return load(device);
  };
  EXPECT_FALSE(other([](vk::DeviceSnapshot& d) { d.device_uuid[0] = 9; }));
  EXPECT_FALSE(other([](vk::DeviceSnapshot& d) { d.driver_uuid[0] = 9; }));
  EXPECT_FALSE(other([](vk::DeviceSnapshot& d) { d.driver_version = 8; }));
  EXPECT_FALSE(other([](vk::DeviceSnapshot& d) { d.driver_info = "driver 7.1"; }));
  EXPECT_EQ(log_, "");
}

TEST_F(Passport, OfOtherShadersIsNotBelieved) {
  Json json = saved();
  json["shader_hash"] = "0000000000000000";
  EXPECT_TRUE(is_refused(json.dump()));
}

TEST_F(Passport, ThatIsDamagedOrMadeUpIsIgnoredWithAWord) {
  const Json good = saved();
  const auto with = [&](auto change) {
    Json json = good;
    change(json);
    return json.dump();
  };
  for (const std::string& text :
       {std::string(),
        std::string("{"),
        std::string("null"),
        std::string("[]"),
        std::string(70000, '['),
        good.dump().substr(0, 500),
        std::string(2 << 20, ' ') + good.dump(),
        with([](Json& j) { j["format"] = 2; }),
        with([](Json& j) { j.erase("running"); }),
        with([](Json& j) { j["running"] = 3; }),
        with([](Json& j) { j["running"] = "\x1b[2J"; }),
        with([](Json& j) { j["running_modules"] = {"nosuch"}; }),
        with([](Json& j) { j["running_modules"] = {1}; }),
        with([](Json& j) { j["modules"] = Json::array(); }),
        with([](Json& j) { j["modules"].erase("gated_activation"); }),
        with([](Json& j) { j["modules"]["nosuch"] = j["modules"]["gated_activation"]; }),
        with([](Json& j) { j["modules"]["gated_activation"] = "passed"; }),
        with([](Json& j) { j["modules"]["gated_activation"]["state"] = "parsed"; }),
        with([](Json& j) { j["modules"]["gated_activation"]["n_passed"] = -1; }),
        with([](Json& j) { j["modules"]["gated_activation"]["n_passed"] = 1e300; }),
        with([](Json& j) { j["modules"]["gated_activation"]["n_passed"] = uint64_t{1} << 40; }),
        with([](Json& j) { j["modules"]["gated_activation"]["note"] = std::string(2000, 'x'); }),
        with([](Json& j) { j["modules"]["gated_activation"]["note"] = "a\nb"; })}) {
    EXPECT_TRUE(is_refused(text)) << text.substr(0, 80);
  }
  std::ofstream(passport_file(directory_, device_)) << good;
  EXPECT_TRUE(load(device_)) << log_;
}

TEST_F(Passport, SaysThatACaseDidNotEndOnlyWhenNoTestIsRunning) {
  verdict_.running = "layer_norm n=3";
  verdict_.running_modules = {"layer_norm"};
  ASSERT_TRUE(save_passport(directory_, device_, verdict_).ok());
  {
    const File lock = lock_passport(directory_, device_);
    ASSERT_TRUE(lock.is_open());
    EXPECT_FALSE(lock_passport(directory_, device_).is_open()) << "there is one test at a time";
    ASSERT_TRUE(load(device_)) << log_;
    EXPECT_EQ(load(device_)->running, "");
    EXPECT_FALSE(load(device_)->rejected().contains("layer_norm"));
    EXPECT_TRUE(load(device_)->rejected().contains("rms_norm"));
  }
  EXPECT_EQ(load(device_)->running, "layer_norm n=3");
  EXPECT_TRUE(load(device_)->rejected().contains("layer_norm"));
  EXPECT_FALSE(lock_passport("", device_).is_open());
}

TEST_F(Passport, KeepsWhateverBytesADriverSays) {
  device_.driver_info = "driver \xFF\n";
  verdict_.modules["rms_norm"].note = std::string(1000, '\xFE') + "\x1b\n";
  ASSERT_TRUE(save_passport(directory_, device_, verdict_).ok());
  const auto loaded = load(device_);
  ASSERT_TRUE(loaded) << log_;
  EXPECT_EQ(loaded->rejected(), verdict_.rejected());
}

TEST_F(Passport, ThatCannotBeWrittenIsAnError) {
  std::ofstream(directory_.string()) << "a file where the folder should be";
  EXPECT_FALSE(save_passport(directory_, device_, verdict_).ok());
  EXPECT_FALSE(save_passport("", device_, verdict_).ok());
}

}  // namespace
}  // namespace pumice
