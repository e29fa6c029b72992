// A real matrix of more than 4 GiB, in parts of at most a slab, through every kernel that reads it.
// Its rows are zeros but for those around the edges of parts, whose sums are exact in any order.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <fstream>

#include "shaders/common/linear_cases.hpp"
#include "shaders/embedding/embedding.hpp"
#include "shaders/linear/linear.hpp"
#include "shaders/spirv.hpp"
#include "tests/gpu_fixture.hpp"

namespace pumice::ops {
namespace {

constexpr uint64_t kGiB = uint64_t{1} << 30;
constexpr uint32_t kCols = 32768;
constexpr uint32_t kRows = 34816;
constexpr uint64_t kBytes = uint64_t{kRows} * kCols * 4;
static_assert(kBytes > 4 * kGiB);

/// A line of a file in /proc, in bytes.
uint64_t proc_bytes(const char* path, const std::string& name) {
  std::ifstream file(path);
  std::string word;
  uint64_t kibibytes = 0;
  while (file >> word) {
    if (word == name + ":" && file >> kibibytes) return kibibytes << 10;
  }
  return 0;
}

float value(uint32_t row, uint32_t column) { return static_cast<float>((column + row) % 3); }

/// The matrix in the host's memory, where untouched zeros take none.
class SparseMatrix {
 public:
  explicit SparseMatrix(const std::vector<uint32_t>& rows)
      : values_(static_cast<float*>(::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE,
                                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0))) {
    PUMICE_CHECK(values_ != MAP_FAILED, "no address space for the matrix");
    for (const uint32_t row : rows) {
      for (uint32_t i = 0; i < kCols; ++i) values_[uint64_t{row} * kCols + i] = value(row, i);
    }
  }
  ~SparseMatrix() { ::munmap(values_, kBytes); }
  SparseMatrix(const SparseMatrix&) = delete;
  SparseMatrix& operator=(const SparseMatrix&) = delete;

  WeightSource source() const {
    return {&weight_type("F32"), std::as_bytes(std::span(values_, kBytes / 4)), kRows, kCols};
  }

 private:
  float* values_;
};

/// Rows at both edges of every part, and one inside.
std::vector<uint32_t> marked_rows(uint64_t part_bytes) {
  const auto part_rows = static_cast<uint32_t>(
      WeightMatrix::groups_of_part(weight_type("F32"), kCols, part_bytes) * 32);
  std::vector<uint32_t> rows;
  for (uint32_t first = 0; first < kRows; first += part_rows) {
    const uint32_t last = std::min(first + part_rows, kRows) - 1;
    rows.insert(rows.end(), {first, first + (last - first) / 2, last});
  }
  return rows;
}

class LargeWeights : public ::testing::Test {
 protected:
  void SetUp() override {
    device_ = test::GpuEnvironment::device();
    if (!device_) GTEST_SKIP() << "no usable Vulkan device";
    if (proc_bytes("/proc/meminfo", "MemAvailable") < 7 * kGiB) {
      GTEST_SKIP() << "less than 7 GiB of memory are available";
    }
    pipelines_.emplace(device_, "", spirv_hash());
    bed_.emplace(device_, *pipelines_);
    rows_ = marked_rows(device_->plan().slab_bytes);
    const SparseMatrix matrix(rows_);
    const WeightSource sources[] = {matrix.source()};
    auto uploaded = upload_weights(*bed_, sources, device_->plan().slab_bytes);
    ASSERT_TRUE(uploaded.ok()) << uploaded.error().message;
    weights_ = *uploaded;
    ASSERT_GT(weights_->matrix.parts.size(), 4u);
  }

  vk::BufferRange filled(const std::vector<float>& values) { return *bed_->input(values); }

  std::vector<float> run(const std::function<void(vk::Recorder&)>& record,
                         const vk::BufferRange& y) {
    EXPECT_TRUE(pipelines_->compile().ok());
    vk::Recorder recorder(device_);
    record(recorder);
    const auto work = recorder.finish();
    EXPECT_TRUE(work.ok());
    EXPECT_TRUE(vk::run(*device_, *work).ok());
    const auto bytes = vk::download(device_, y);
    EXPECT_TRUE(bytes.ok());
    std::vector<float> values(bytes->size() / 4);
    std::memcpy(values.data(), bytes->data(), bytes->size());
    return values;
  }

  std::shared_ptr<vk::Device> device_;
  std::optional<vk::PipelineLibrary> pipelines_;
  std::optional<OpBed> bed_;
  std::vector<uint32_t> rows_;
  std::shared_ptr<UploadedWeights> weights_;
};

TEST_F(LargeWeights, AreMultipliedAndLookedUpToTheLastRow) {
  const WeightType* types[] = {weights_->matrix.type};
  const auto linear = Linear::plan(*pipelines_, types, Math::kF32);
  ASSERT_TRUE(linear.ok()) << linear.error().message;
  for (const uint32_t n : {1u, 9u}) {  // gemv, gemm
    std::vector<float> x(size_t{n} * kCols);
    for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(1 + i / kCols);
    const vk::BufferRange x_range = filled(x);
    const vk::BufferRange y_range = *bed_->output(uint64_t{n} * kRows * 4);
    const auto y = run(
        [&](vk::Recorder& recorder) {
          linear->record(recorder, {.weights = weights_->matrix,
                                    .x = x_range,
                                    .x_stride = kCols,
                                    .y = y_range,
                                    .y_stride = kRows,
                                    .rows = n});
        },
        y_range);
    std::vector<float> expected(size_t{n} * kRows, 0.0f);
    for (const uint32_t row : rows_) {
      float sum = 0;
      for (uint32_t i = 0; i < kCols; ++i) sum += value(row, i);
      for (uint32_t m = 0; m < n; ++m) {
        expected[uint64_t{m} * kRows + row] = sum * static_cast<float>(m + 1);
      }
    }
    EXPECT_TRUE(y == expected) << n << " rows of x";
  }

  const auto embedding = Embedding::plan(*pipelines_, *weights_->matrix.type);
  ASSERT_TRUE(embedding.ok()) << embedding.error().message;
  const vk::BufferRange tokens = *bed_->input(rows_);
  const vk::BufferRange y_range = *bed_->output(rows_.size() * kCols * 4);
  const auto y = run(
      [&](vk::Recorder& recorder) {
        embedding->record(recorder, {.tokens = tokens,
                                     .table = &weights_->matrix,
                                     .y = y_range,
                                     .rows = static_cast<uint32_t>(rows_.size())});
      },
      y_range);
  for (size_t i = 0; i < y.size(); ++i) {
    ASSERT_EQ(y[i], value(rows_[i / kCols], static_cast<uint32_t>(i % kCols))) << "element " << i;
  }
  EXPECT_LT(proc_bytes("/proc/self/status", "VmHWM"), 8 * kGiB);
}

}  // namespace
}  // namespace pumice::ops
