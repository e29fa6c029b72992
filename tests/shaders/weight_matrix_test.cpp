// Uploading weight matrices: what may be stacked, how parts are cut, and that every row arrives.
#include "shaders/common/weight_matrix.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>

#include "format/resident_layout.hpp"
#include "shaders/common/linear_cases.hpp"
#include "tests/gpu_fixture.hpp"

namespace pumice {
namespace {

constexpr uint64_t kSlabBytes = 1 << 20;

Result<WeightMatrix> upload(const std::shared_ptr<vk::Device>& device, vk::Arena& arena,
                            std::initializer_list<WeightSource> sources, uint64_t part_bytes,
                            bool force_staging = false) {
  vk::Uploader uploader(device, force_staging);
  return WeightMatrix::upload(uploader, arena, std::vector<WeightSource>(sources), part_bytes);
}

TEST(CanStack, NeedsOneTypeOneWidthAndWholeRowGroups) {
  const WeightType& q8 = weight_type("Q8_0");
  const WeightSource a{&q8, {}, 64, 32};
  const WeightSource ragged{&q8, {}, 33, 32};
  EXPECT_TRUE(can_stack(std::vector{a, a}));
  EXPECT_TRUE(can_stack(std::vector{ragged}));
  EXPECT_FALSE(can_stack(std::vector{a, ragged}));
  EXPECT_FALSE(can_stack(std::vector{a, WeightSource{&q8, {}, 64, 64}}));
  EXPECT_FALSE(can_stack(std::vector{a, WeightSource{&weight_type("Q4_0"), {}, 64, 32}}));
  EXPECT_FALSE(can_stack({}));
}

class WeightUpload : public ::testing::TestWithParam<bool> {};  // whether through staging

TEST_P(WeightUpload, SplitsAStackByRowGroupsAndKeepsEveryRow) {
  PUMICE_REQUIRE_DEVICE(device);
  const WeightType& type = weight_type("Q4_K");
  const ops::RandomWeights a(type, 96, 512, 1);
  const ops::RandomWeights b(type, 64, 512, 2);
  vk::Arena arena(device, vk::MemoryDomain::kDevice, "test", kSlabBytes);
  const uint64_t group_bytes = row_group_bytes(type, 512);
  const auto matrix =
      upload(device, arena, {a.source(), b.source()}, 2 * group_bytes + 1, GetParam());
  ASSERT_TRUE(matrix.ok()) << matrix.error().message;
  EXPECT_EQ(matrix->n_rows, 160u);
  ASSERT_EQ(matrix->parts.size(), 3u);
  std::vector<float> row(512);
  for (const WeightMatrixPart& part : matrix->parts) {
    EXPECT_LE(part.range.size_bytes, 2 * group_bytes);
    const auto bytes = vk::download(device, part.range);
    ASSERT_TRUE(bytes.ok());
    for (uint32_t i = 0; i < part.n_rows; ++i) {
      const uint32_t n = part.first_row + i;
      unpack_row(type, bytes->data(), 512, i, row.data());
      const float* expected = n < 96 ? &a.values[n * 512] : &b.values[(n - 96) * 512];
      ASSERT_TRUE(std::equal(row.begin(), row.end(), expected)) << "row " << n;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(EitherWay, WeightUpload, ::testing::Bool());

TEST(WeightUpload, LastPartHoldsTheRowsThatAreLeft) {
  PUMICE_REQUIRE_DEVICE(device);
  const ops::RandomWeights a(weight_type("F32"), 70, 32, 1);
  vk::Arena arena(device, vk::MemoryDomain::kDevice, "test", kSlabBytes);
  const auto matrix = upload(device, arena, {a.source()}, row_group_bytes(*a.type, 32));
  ASSERT_TRUE(matrix.ok()) << matrix.error().message;
  ASSERT_EQ(matrix->parts.size(), 3u);
  EXPECT_EQ(matrix->parts[2].first_row, 64u);
  EXPECT_EQ(matrix->parts[2].n_rows, 6u);
}

TEST(WeightMatrixParts, HoldNoMoreRowGroupsThanEveryDeviceDispatches) {
  const WeightType& type = weight_type("Q4_0");
  constexpr uint64_t kGiB = uint64_t{1} << 30;
  ASSERT_GT(kGiB / row_group_bytes(type, 32), 65535u);
  EXPECT_EQ(WeightMatrix::groups_of_part(type, 32, kGiB), 65535u);
  EXPECT_EQ(WeightMatrix::groups_of_part(type, 4096, kGiB), kGiB / row_group_bytes(type, 4096));
  EXPECT_EQ(WeightMatrix::groups_of_part(type, 4096, 1), 0u);
}

TEST_P(WeightUpload, OfWeightsMadeAsTheyAreReadHoldsAGroupAThreadAtATime) {
  PUMICE_REQUIRE_DEVICE(device);
  const WeightType& type = weight_type("Q8_0");
  const ops::RandomWeights a(type, 4096 + 7, 512, 1);  // two megabytes, on several threads
  std::mutex mutex;
  size_t most_bytes = 0;
  size_t total_bytes = 0;
  WeightSource made{.type = &type, .n_rows = a.n_rows, .n_cols = a.n_cols};
  made.fill = [&](uint64_t first_block, std::span<std::byte> out) -> Status {
    const auto blocks = std::span(a.blocks).subspan(first_block * type.block_bytes, out.size());
    std::ranges::copy(blocks, out.begin());
    const std::scoped_lock lock(mutex);
    most_bytes = std::max(most_bytes, out.size());
    total_bytes += out.size();
    return {};
  };
  const auto bytes_of = [&](const WeightSource& source) {
    vk::Arena arena(device, vk::MemoryDomain::kDevice, "test", 4 << 20);
    const auto matrix = upload(device, arena, {source}, 4 << 20, GetParam());
    EXPECT_TRUE(matrix.ok()) << matrix.error().message;
    return vk::download(device, matrix->parts.at(0).range).value();
  };
  EXPECT_TRUE(bytes_of(made) == bytes_of(a.source()));
  EXPECT_EQ(most_bytes, kRowGroup * type.file_bytes(512));
  EXPECT_EQ(total_bytes, a.blocks.size());
}

TEST_P(WeightUpload, EndsWithTheErrorOfASourceThatCannotBeRead) {
  PUMICE_REQUIRE_DEVICE(device);
  const WeightType& type = weight_type("Q8_0");
  const ops::RandomWeights a(type, 4096, 512, 1);
  WeightSource cut{.type = &type, .n_rows = a.n_rows, .n_cols = a.n_cols};
  cut.fill = [&](uint64_t first_block, std::span<std::byte> out) -> Status {
    if (first_block > 3000 * 512 / 32) return make_error(ErrorCode::kBadFile, "the file ends");
    std::ranges::fill(out, std::byte{0});
    return {};
  };
  vk::Arena arena(device, vk::MemoryDomain::kDevice, "test", 4 << 20);
  const auto matrix = upload(device, arena, {cut}, 4 << 20, GetParam());
  ASSERT_FALSE(matrix.ok());
  EXPECT_EQ(matrix.error().code, ErrorCode::kBadFile);
  EXPECT_EQ(matrix.error().message, "the file ends");
}

TEST(WeightUpload, RefusesWhatDoesNotAddUp) {
  PUMICE_REQUIRE_DEVICE(device);
  vk::Arena arena(device, vk::MemoryDomain::kDevice, "test", kSlabBytes);
  const ops::RandomWeights good(weight_type("Q8_0"), 32, 64, 1);
  const auto code = [&](const WeightSource& source, uint64_t part_bytes) {
    const auto matrix = upload(device, arena, {source}, part_bytes);
    return matrix.ok() ? "no error" : matrix.error().message;
  };
  WeightSource source = good.source();
  source.bytes = source.bytes.first(source.bytes.size() - 1);
  EXPECT_NE(code(source, kSlabBytes).find("got 2175"), std::string::npos);
  source = good.source();
  source.n_cols = 33;
  EXPECT_NE(code(source, kSlabBytes).find("multiple of 32"), std::string::npos);
  source = good.source();
  source.type = find_weight_type("NVFP4");
  ASSERT_NE(source.type, nullptr);
  EXPECT_NE(code(source, kSlabBytes).find("NVFP4 are not supported"), std::string::npos);
  EXPECT_NE(code(good.source(), 100).find("above the device's 100"), std::string::npos);
  EXPECT_EQ(upload(device, arena, {good.source()}, 100).error().code, ErrorCode::kDoesNotFit);
}

}  // namespace
}  // namespace pumice
