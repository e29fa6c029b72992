// A device and three ranges of its memory to record on.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "tests/gpu_fixture.hpp"
#include "vk/memory.hpp"
#include "vk/recorder.hpp"
#include "vk/transfer.hpp"

namespace pumice::test {

class RecorderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    device_ = test::GpuEnvironment::device();
    if (!device_) GTEST_SKIP() << "no usable Vulkan device";
    arena_ = std::make_unique<vk::Arena>(device_, vk::MemoryDomain::kDevice, "test", 64 * 1024);
    for (vk::BufferRange& range : ranges_) range = *arena_->allocate(1024);
  }

  std::vector<uint32_t> words(const vk::BufferRange& range) {
    const auto bytes = *vk::download(device_, range);
    std::vector<uint32_t> result(bytes.size() / 4);
    std::memcpy(result.data(), bytes.data(), bytes.size());
    return result;
  }

  std::shared_ptr<vk::Device> device_;
  std::unique_ptr<vk::Arena> arena_;
  vk::BufferRange ranges_[3];
};

}  // namespace pumice::test
