// The shaders dequantise to the same bits as the CPU, which does to the same as other
// implementations.
#include <algorithm>
#include <bit>
#include <cmath>

#include "random_matrix.hpp"
#include "test_files.hpp"
#include "tests/gpu_fixture.hpp"
#include "tests/shared_data.hpp"
#include "vk/pipeline.hpp"
#include "vk/recorder.hpp"
#include "vk/transfer.hpp"
#include "weights_test.h"

namespace pumice {

namespace test {
std::span<const vk::ShaderModule> weights_test_modules();
}

namespace {

/// All rows of a resident matrix, up to a multiple of 32 rows and columns, read by the shader.
class GpuReader {
 public:
  explicit GpuReader(std::shared_ptr<vk::Device> device)
      : device_(device), pipelines_(device, "", 0), uploader_(device) {}

  std::vector<float> read(const WeightType& type, const std::vector<std::byte>& resident,
                          uint64_t n_cols, bool by_tile, std::string_view suffix = "") {
    const std::string name = std::string(type.shaders).append(suffix);
    const auto module =
        std::ranges::find(test::weights_test_modules(), name, &vk::ShaderModule::name);
    const WeightsTestSpec spec{.by_tile = by_tile ? 1u : 0u};
    const auto pipeline = pipelines_.declare({.module = *module,
                                              .constants = vk::constants_of(spec),
                                              .push_bytes = sizeof(WeightsTestPush)});
    EXPECT_TRUE(pipeline.ok()) << pipeline.error().message;
    EXPECT_TRUE(pipelines_.compile().ok());
    const auto n_groups = static_cast<uint32_t>(resident.size() / row_group_bytes(type, n_cols));
    const auto n_blocks = static_cast<uint32_t>((n_cols + 31) / 32);
    vk::Arena arena(device_, vk::MemoryDomain::kDevice, "test");
    const vk::BufferRange weights = *arena.allocate(resident.size());
    const vk::BufferRange out = *arena.allocate(uint64_t{n_groups} * kRowGroup * n_blocks * 128);
    EXPECT_TRUE(uploader_.write<std::byte>(weights, resident).ok());
    vk::BufferRange grid;
    if (!type.grid.empty()) {
      grid = *arena.allocate(type.grid.size_bytes());
      EXPECT_TRUE(uploader_.write(grid, type.grid).ok());
    }
    const WeightsTestPush push{
        .weights = weights.address(),
        .out_weights = out.address(),
        .grid = grid.address(),
        .n_col_tiles = static_cast<uint32_t>(n_col_tiles(type, n_cols)),
        .n_blocks = n_blocks,
    };
    vk::Recorder recorder(device_);
    recorder.fill(out, 0x7FC00000u);
    recorder.dispatch(**pipeline, push, {n_groups}, {vk::reads(weights), vk::writes(out)}, {});
    const auto work = recorder.finish();
    EXPECT_TRUE(work.ok() && vk::run(*device_, *work).ok());
    const std::vector<std::byte> bytes = *vk::download(device_, out);
    std::vector<float> values(bytes.size() / sizeof(float));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }

 private:
  std::shared_ptr<vk::Device> device_;
  vk::PipelineLibrary pipelines_;
  vk::Uploader uploader_;
};

/// Below this weights may be of a scale that is subnormal, which devices may flush: MXFP4's.
constexpr float kFlushed = 0x1p-123f;

/// Compare bits, rows and columns beyond the matrix being zero.
void expect_weights(const std::vector<float>& found, const std::vector<float>& expected,
                    uint64_t n_rows, uint64_t n_cols) {
  const uint64_t padded_cols = (n_cols + 31) / 32 * 32;
  size_t n_different = 0;
  for (size_t i = 0; i < found.size(); ++i) {
    const uint64_t row = i / padded_cols;
    const uint64_t col = i % padded_cols;
    const bool inside = row < n_rows && col < n_cols;
    const float want = inside ? expected[row * n_cols + col] : 0.0f;
    if (std::bit_cast<uint32_t>(found[i]) == std::bit_cast<uint32_t>(want)) continue;
    if (!inside && found[i] == 0.0f) continue;
    if (found[i] == 0.0f && std::abs(want) < kFlushed) continue;
    if (n_different++ < 3) {
      ADD_FAILURE() << "row " << row << " column " << col << ": " << found[i] << " not " << want;
    }
  }
  EXPECT_EQ(n_different, 0u) << "of " << found.size();
}

TEST(WeightsGpu, RandomBlocksOfEveryTypeAreReadBitForBit) {
  PUMICE_REQUIRE_DEVICE(device);
  GpuReader reader(device);
  for (const WeightType& type : weight_types()) {
    if (!type.has_codec()) continue;
    for (const bool by_tile : {false, true}) {
      if (!by_tile && type.block_elements > 1) continue;  // the reference's blocks are read so
      SCOPED_TRACE(fmt::format("{} by {}", type.name, by_tile ? "tile" : "block"));
      const uint64_t n_cols = type.block_elements == 1 ? 77 : 3 * type.block_elements;
      const test::RandomMatrix matrix(type, 45, n_cols);
      expect_weights(reader.read(type, matrix.resident(), n_cols, by_tile), matrix.dequantized(),
                     matrix.n_rows, n_cols);
    }
  }
}

TEST(WeightsGpu, BytesWithScalesAndOffsetsAreTheSameWeights) {
  PUMICE_REQUIRE_DEVICE(device);
  GpuReader reader(device);
  for (const WeightType& type : weight_types()) {
    if (!type.has_codec() || type.block_elements == 1) continue;  // floats have no bytes
    SCOPED_TRACE(type.name);
    const test::RandomMatrix matrix(type, 45, uint64_t{3} * type.block_elements);
    expect_weights(reader.read(type, matrix.resident(), matrix.n_cols, true, ".bytes"),
                   matrix.dequantized(), matrix.n_rows, matrix.n_cols);
  }
}

TEST(WeightsGpu, WeightsReadOneByOneAreTheSame) {
  PUMICE_REQUIRE_DEVICE(device);
  GpuReader reader(device);
  for (const WeightType& type : weight_types()) {
    if (!type.has_codec()) continue;
    SCOPED_TRACE(type.name);
    const uint64_t n_cols = type.block_elements == 1 ? 77 : 3 * type.block_elements;
    const test::RandomMatrix matrix(type, 45, n_cols);
    expect_weights(reader.read(type, matrix.resident(), n_cols, true, ".elements"),
                   matrix.dequantized(), matrix.n_rows, n_cols);
  }
}

TEST(WeightsGpu, BlocksOfTheReferenceAreReadBitForBit) {
  PUMICE_REQUIRE_DEVICE(device);
  PUMICE_REQUIRE_SHARED(folder, "reference/quants");
  GpuReader reader(device);
  for (const WeightType& type : weight_types()) {
    for (const char* prefix : {"", "fuzz-"}) {
      const std::string name = prefix + std::string(type.name);
      if (!type.has_codec() || !std::filesystem::exists(folder / (name + ".blocks.bin"))) continue;
      SCOPED_TRACE(name);
      const std::string blocks = test::read_file(folder / (name + ".blocks.bin"));
      const auto expected = test::read_values<float>(folder / (name + ".f32.bin"));
      constexpr uint64_t kCols = 256;
      const uint64_t n_rows = expected.size() / kCols;
      std::vector<std::byte> resident(resident_bytes(type, n_rows, kCols));
      repack(type, reinterpret_cast<const std::byte*>(blocks.data()), n_rows, kCols, 0,
             n_row_groups(n_rows), resident.data());
      expect_weights(reader.read(type, resident, kCols, false), expected, n_rows, kCols);
    }
  }
}

/// Every finite half as a scale, subnormals too: one Q8_0 block each, all quants 1.
TEST(WeightsGpu, EveryHalfScaleIsExact) {
  PUMICE_REQUIRE_DEVICE(device);
  const WeightType& type = weight_type("Q8_0");
  constexpr uint64_t kRows = 2048;
  constexpr uint64_t kCols = 1024;  // 32 blocks a row: 65,536 scales
  std::string blocks;
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<uint16_t>((bits & 0x7C00) == 0x7C00 ? 0 : bits);
    blocks.append(reinterpret_cast<const char*>(&half), 2).append(32, '\1');
  }
  const auto* data = reinterpret_cast<const std::byte*>(blocks.data());
  std::vector<float> expected(kRows * kCols);
  dequantize(type, data, expected.size(), expected.data());
  std::vector<std::byte> resident(resident_bytes(type, kRows, kCols));
  repack(type, data, kRows, kCols, 0, n_row_groups(kRows), resident.data());
  expect_weights(GpuReader(device).read(type, resident, kCols, false), expected, kRows, kCols);
}

}  // namespace
}  // namespace pumice
