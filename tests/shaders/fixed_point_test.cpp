// The arithmetic of sampling gives the same bits on the device as on the CPU.
#include "fixed_point_test.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "sampling/fixed_point.hpp"
#include "sampling/philox.hpp"
#include "tests/gpu_fixture.hpp"
#include "vk/pipeline.hpp"
#include "vk/recorder.hpp"
#include "vk/transfer.hpp"

namespace pumice {
namespace {

const uint32_t kShader[] =
#include "fixed_point_test.inc"
    ;

/// Floats from 2^-27 to 18, where fixed_exp does something, and random words.
std::vector<uint32_t> test_words() {
  std::vector<uint32_t> words = {0, 0x80000000u, 1, 0x7F800000u, 0xFF800000u, 0x7FC00000u, ~0u};
  for (uint32_t bits = 0x32000000; bits < 0x41900000; bits += 2003) words.push_back(bits);
  std::mt19937 engine(1);
  for (int i = 0; i < 50000; ++i) words.push_back(static_cast<uint32_t>(engine()));
  return words;
}

std::array<uint32_t, 9> expected(const std::vector<uint32_t>& words, uint32_t i) {
  const uint32_t word = words[i];
  const uint32_t next = words[(i + 1) % words.size()];
  const float value = canonical(std::bit_cast<float>(word));
  const uint64_t total = uint64_t{i % 4096} << 32 | next;
  const uint64_t down = scale_floor(word, total);
  const uint64_t up = scale_ceil(word, total);
  return {fixed_exp(std::bit_cast<float>(word)),
          std::bit_cast<uint32_t>(value),
          score_key(value),
          std::bit_cast<uint32_t>(value),
          random_word(uint64_t{word} << 32 | next, uint64_t{word} << 32 | i),
          static_cast<uint32_t>(down),
          static_cast<uint32_t>(down >> 32),
          static_cast<uint32_t>(up),
          static_cast<uint32_t>(up >> 32)};
}

TEST(FixedPoint, IsTheSameOnTheDevice) {
  PUMICE_REQUIRE_DEVICE(device);
  const std::vector<uint32_t> words = test_words();
  vk::PipelineLibrary pipelines(device, "", 0);
  const auto pipeline = pipelines.declare({.module = {"fixed_point_test", kShader},
                                           .constants = vk::constants_of(FixedPointTestSpec{}),
                                           .push_bytes = sizeof(FixedPointTestPush)});
  ASSERT_TRUE(pipeline.ok()) << pipeline.error().message;
  ASSERT_TRUE(pipelines.compile().ok());
  vk::Arena arena(device, vk::MemoryDomain::kDevice, "test");
  const vk::BufferRange input = *arena.allocate(words.size() * 4);
  const vk::BufferRange output = *arena.allocate(words.size() * 36);
  vk::Uploader uploader(device);
  ASSERT_TRUE(uploader.write(input, std::span<const uint32_t>(words)).ok());

  vk::Recorder recorder(device);
  const auto n = static_cast<uint32_t>(words.size());
  const FixedPointTestPush push{.words = input.address(), .found = output.address(), .n = n};
  recorder.dispatch(**pipeline, push, {(n + 63) / 64}, {vk::reads(input), vk::writes(output)}, {});
  const auto work = recorder.finish();
  ASSERT_TRUE(work.ok() && vk::run(*device, *work).ok());
  const std::vector<std::byte> bytes = *vk::download(device, output);
  for (uint32_t i = 0; i < n; ++i) {
    std::array<uint32_t, 9> found{};
    std::memcpy(found.data(), bytes.data() + size_t{i} * sizeof found, sizeof found);
    ASSERT_EQ(found, expected(words, i)) << "word " << i << ", 0x" << std::hex << words[i];
  }
}

}  // namespace
}  // namespace pumice
