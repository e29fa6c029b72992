#include "tests/gpu_fixture.hpp"

#include "vk/device_choice.hpp"

namespace pumice::test {
namespace {

// The environment's device. A test program has one; GoogleTest destroys environments in TearDown.
std::shared_ptr<vk::Device>& device_slot() {
  static std::shared_ptr<vk::Device> device;
  return device;
}

struct Choice {
  std::shared_ptr<vk::Instance> instance;
  size_t index = 0;
  vk::DeviceSnapshot snapshot;
};

Result<Choice> choose(std::shared_ptr<vk::Instance> instance) {
  PUMICE_TRY(const std::vector<vk::DeviceSnapshot> snapshots, instance->snapshots());
  const char* selector = std::getenv("PUMICE_DEVICE");
  PUMICE_TRY(const size_t index, vk::choose_device(snapshots, selector != nullptr ? selector : ""));
  return Choice{std::move(instance), index, snapshots[index]};
}

Logger warnings() {
  return Logger([](LogLevel, std::string_view line) { std::cerr << line << '\n'; },
                LogLevel::kWarning);
}

Result<std::shared_ptr<vk::Device>> open_environment_device() {
  vk::InstanceOptions options;
  options.validation = options.sync_validation = validation_requested();
  options.logger = warnings();
  PUMICE_TRY(vk::Instance created, vk::Instance::create(options));
  PUMICE_TRY(const Choice choice, choose(std::make_shared<vk::Instance>(std::move(created))));
  const char* limit = std::getenv("PUMICE_LIMIT");
  PUMICE_TRY(const vk::PlanOptions limits, vk::parse_plan_options(limit != nullptr ? limit : ""));
  PUMICE_TRY(vk::DevicePlan plan, vk::plan_device(choice.snapshot, limits));
  return vk::Device::create(choice.instance, choice.index, choice.snapshot, std::move(plan),
                            options.logger);
}

}  // namespace

std::shared_ptr<vk::Device> GpuEnvironment::device() {
  static bool tried = false;  // so that a machine without a device says so once
  if (!tried) {
    tried = true;
    Result<std::shared_ptr<vk::Device>> result = open_environment_device();
    if (!result.ok()) {
      std::cerr << "no device: " << result.error().message << '\n';
      return nullptr;
    }
    device_slot() = std::move(result).value();
    std::cerr << "device: " << device_slot()->snapshot().name << ", "
              << device_slot()->snapshot().driver_info << ' '
              << vk::format_plan_options(device_slot()->plan().limits) << '\n';
  }
  return device_slot();
}

Result<std::shared_ptr<vk::Device>> GpuEnvironment::open(const MakePlan& make_plan,
                                                         vk::Device::Intercept intercept) {
  PUMICE_TRY(const Choice choice, choose(device()->instance()));
  PUMICE_TRY(vk::DevicePlan plan, make_plan(choice.snapshot));
  return vk::Device::create(choice.instance, choice.index, choice.snapshot, std::move(plan),
                            warnings(), std::move(intercept));
}

Result<std::shared_ptr<vk::Device>> GpuEnvironment::open_as_gpu() {
  return open([](const vk::DeviceSnapshot& snapshot) -> Result<vk::DevicePlan> {
    PUMICE_TRY(vk::DevicePlan plan, vk::plan_device(snapshot));
    plan.device_class = vk::DeviceClass::kGpu;
    return plan;
  });
}

void GpuEnvironment::TearDown() {
  if (!device_slot()) return;
  const std::shared_ptr<vk::Instance> instance = device_slot()->instance();
  EXPECT_EQ(device_slot()->ledger().total_bytes(), 0u) << "device memory was leaked";
  EXPECT_TRUE(device_slot()->ledger().check_integrity().ok());
  EXPECT_EQ(device_slot().use_count(), 1) << "something outlives the tests";
  device_slot().reset();
  EXPECT_EQ(instance->validation_error_count(), 0u) << "validation layers reported errors";
}

}  // namespace pumice::test

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  ::testing::AddGlobalTestEnvironment(new pumice::test::GpuEnvironment);
  return RUN_ALL_TESTS();
}
