// The self-test as an embedder calls it.
#include <filesystem>
#include <string>

#include "tests/api/api_fixture.hpp"
#include "tests/temporary_folder.hpp"

namespace pumice {
namespace {

class ApiSelfTest : public test::ApiTest {
 protected:
  static pumice_self_test_options options_of(const char* operations) {
    pumice_self_test_options options{sizeof options};
    options.operations = pumice_str(operations);
    return options;
  }
};

TEST_F(ApiSelfTest, KernelsAreTestedAndTheVerdictIsKept) {
  const test::TemporaryFolder folder;
  const std::string directory = folder.path().string();
  pumice_device_options device_options{sizeof device_options};
  device_options.cache_directory = pumice_str(directory.c_str());
  pumice_device* device = nullptr;
  ASSERT_EQ(pumice_device_open(&device_options, &device), PUMICE_OK) << pumice_last_error();
  EXPECT_NE(test::log_of(device, PUMICE_LOG_INFO).find("have not been tested"), std::string::npos);
  const pumice_self_test_options options = options_of("rms_norm");
  pumice_self_test_result result{sizeof result};
  EXPECT_OK(pumice_self_test(device, &options, &result));
  EXPECT_GT(result.n_cases, 0u);
  EXPECT_EQ(result.n_errors, 0u);
  EXPECT_GT(result.n_passed, 0u);
  EXPECT_EQ(result.n_failed, 0u);
  EXPECT_GT(result.n_not_run, result.n_passed);
  pumice_device_close(device);
  // Another one knows.
  ASSERT_EQ(pumice_device_open(&device_options, &device), PUMICE_OK) << pumice_last_error();
  EXPECT_EQ(test::log_of(device, PUMICE_LOG_INFO).find("have not been tested"), std::string::npos);
  const uint32_t n_passed = result.n_passed;
  const pumice_self_test_options other = options_of("layer_norm");
  EXPECT_OK(pumice_self_test(device, &other, &result));
  EXPECT_GT(result.n_passed, n_passed);
  pumice_device_close(device);
}

TEST_F(ApiSelfTest, EnginesGoOnBesideIt) {
  pumice_self_test_options options = options_of("rms_norm");
  pumice_self_test_result result{sizeof result};
  pumice_engine* engine = test::create_engine(model_);
  const std::string before = test::ask(engine, 0, test::request_of("Once", 8)).text;
  EXPECT_OK(pumice_self_test(device_, &options, &result));
  EXPECT_EQ(test::ask(engine, 0, test::request_of("Once", 8)).text, before);
  pumice_engine_close(engine);
}

TEST_F(ApiSelfTest, TimeIsBounded) {
  pumice_self_test_options options{sizeof options};
  options.timeout_us = 1;
  pumice_self_test_result result{sizeof result};
  EXPECT_STATUS(PUMICE_CANCELLED, pumice_self_test(device_, &options, &result));
  EXPECT_LE(result.n_cases, 1u);
}

TEST_F(ApiSelfTest, UnknownOperationsAreNamed) {
  const pumice_self_test_options options = options_of("rms_norm,nonsense");
  pumice_self_test_result result{sizeof result};
  EXPECT_STATUS(PUMICE_INVALID_ARGUMENT, pumice_self_test(device_, &options, &result));
  EXPECT_EQ(std::string(pumice_last_error()).find("unknown operation 'nonsense': use "), 0u);
}

}  // namespace
}  // namespace pumice
