// Offsets and counts beyond 32 bits: files of which only the ends exist, the rest being holes.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>

#include "format/resident_layout.hpp"
#include "test_files.hpp"

namespace pumice {
namespace {

constexpr uint64_t kGiB = uint64_t{1} << 30;

/// A GGUF with a tensor of over 4 GiB (F32, [65536, 20000]) and a small one behind it.
std::string sparse_header() {
  constexpr uint32_t kF32 = 0;
  return test::GgufBytes(2, 0)
      .tensor("big", {65536, 20000}, kF32, 0)
      .tensor("last", {8}, kF32, uint64_t{65536} * 20000 * 4)
      .pad()
      .str();
}

void write_at(const std::filesystem::path& path, uint64_t offset, std::span<const float> values) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(static_cast<std::streamoff>(offset));
  file.write(reinterpret_cast<const char*>(values.data()),
             static_cast<std::streamsize>(values.size_bytes()));
  ASSERT_TRUE(file);
}

TEST(LargeFiles, TensorsBehindFourGiBAreReadWhereTheyLie) {
  const std::string header = sparse_header();
  const test::TemporaryFile file(header);
  constexpr uint64_t kBigBytes = uint64_t{65536} * 20000 * 4;
  static_assert(kBigBytes > 4 * kGiB);
  const float last[] = {1, 2, 3, 4, 5, 6, 7, 8};
  std::vector<float> row(65536);
  for (size_t i = 0; i < row.size(); ++i) row[i] = static_cast<float>(i);
  write_at(file.path(), header.size() + kBigBytes, last);
  write_at(file.path(), header.size() + kBigBytes - row.size() * 4, row);  // the last row of big

  const auto gguf = GgufFile::open(file.path());
  ASSERT_TRUE(gguf.ok()) << gguf.error().message;
  EXPECT_EQ(gguf->size_bytes(), header.size() + kBigBytes + sizeof last);
  const GgufTensor* small = gguf->find_tensor("last");
  ASSERT_NE(small, nullptr);
  const std::vector<std::byte> bytes = test::bytes_of(*gguf, *small);
  EXPECT_EQ(std::memcmp(bytes.data(), last, sizeof last), 0);
  const GgufTensor* big = gguf->find_tensor("big");
  ASSERT_NE(big, nullptr);
  EXPECT_EQ(big->n_bytes, kBigBytes);

  // The matrix ends with a whole group of rows.
  static_assert(20000 % kRowGroup == 0);
  const uint64_t group_bytes = kRowGroup * big->type->file_bytes(65536);
  std::vector<std::byte> group(group_bytes);
  ASSERT_TRUE(gguf->read(*big, kBigBytes - group_bytes, group).ok());
  std::vector<std::byte> resident(row_group_bytes(*big->type, 65536));
  repack(*big->type, group.data(), kRowGroup, 65536, 0, 1, resident.data());
  std::vector<float> found(row.size());
  unpack_row(*big->type, resident.data(), 65536, 19999 % kRowGroup, found.data());
  EXPECT_EQ(found, row);
}

/// Zero bytes that take no memory until they are written.
class Hole {
 public:
  explicit Hole(size_t bytes)
      : bytes_(bytes),
        data_(::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {}
  ~Hole() {
    if (data_ != MAP_FAILED) ::munmap(data_, bytes_);
  }
  Hole(const Hole&) = delete;
  Hole& operator=(const Hole&) = delete;
  std::byte* data() const { return data_ == MAP_FAILED ? nullptr : static_cast<std::byte*>(data_); }

 private:
  size_t bytes_;
  void* data_;
};

TEST(LargeMatrices, OfMoreThanTwoToThe32WeightsAreRepackedToTheLastRow) {
  const WeightType& type = weight_type("Q8_0");
  constexpr uint64_t kRows = 1'100'000;
  constexpr uint64_t kCols = 4096;
  static_assert(kRows * kCols > uint64_t{1} << 32);
  const uint64_t row_bytes = type.file_bytes(kCols);
  EXPECT_GT(resident_bytes(type, kRows, kCols), 4 * kGiB);
  const Hole blocks(kRows * row_bytes);
  if (blocks.data() == nullptr) GTEST_SKIP() << "no address space for the matrix";
  std::byte* const last = blocks.data() + (kRows - 1) * row_bytes;
  for (uint64_t i = 0; i < row_bytes; ++i) last[i] = static_cast<std::byte>(i * 7 % 60);
  std::vector<float> expected(kCols);
  dequantize(type, last, kCols, expected.data());

  std::vector<std::byte> resident(row_group_bytes(type, kCols));
  repack(type, blocks.data(), kRows, kCols, n_row_groups(kRows) - 1, 1, resident.data());
  std::vector<float> found(kCols);
  unpack_row(type, resident.data(), kCols, (kRows - 1) % kRowGroup, found.data());
  EXPECT_EQ(std::memcmp(found.data(), expected.data(), kCols * sizeof(float)), 0);
}

}  // namespace
}  // namespace pumice
