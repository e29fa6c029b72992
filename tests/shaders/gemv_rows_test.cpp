// A row's bits are those that it has alone, however many rows are multiplied with it: what verified
// drafts rest on.
#include <gtest/gtest.h>

#include <cstring>
#include <optional>
#include <string>

#include "shaders/common/linear_cases.hpp"
#include "shaders/gemv/gemv_cases.hpp"
#include "shaders/spirv.hpp"
#include "tests/gpu_fixture.hpp"

namespace pumice::ops {
namespace {

constexpr uint32_t kRowOutputs = 70;  // the last group is not whole
constexpr uint32_t kRowInputs = 2816;

/// Each row of x with a matrix, rows [first, first + n) at once.
class Products {
 public:
  Products(OpBed& bed, const WeightType& type, GemvKernel kernel)
      : bed_(bed),
        weights_(type, kRowOutputs, kRowInputs, 1),
        gemv_(Gemv::plan(bed.pipelines(), type, kernel)) {
    const WeightSource source = weights_.source();
    uploaded_ = *upload_weights(bed, {&source, 1}, 1 << 24);
    x_ = *bed.input(OpBed::normal_floats(size_t{Gemv::kMaxRows} * kRowInputs, 7));
    y_ = *bed.output(uint64_t{Gemv::kMaxRows} * kRowOutputs * 4);
    scratch_ = *bed.output(
        std::max<uint64_t>(gemv_->scratch_bytes(uploaded_->matrix, Gemv::kMaxRows), 16));
    if (gemv_->x_form() == XForm::kFloats) return;
    quantize_x_ = *QuantizeX::plan(bed.pipelines(), gemv_->x_form());
    planes_ = *bed.output(x_form_bytes(gemv_->x_form(), Gemv::kMaxRows, kRowInputs));
  }

  const Gemv& gemv() const { return *gemv_; }

  std::vector<std::byte> of(uint32_t first, uint32_t n) const {
    vk::Recorder recorder(bed_.device());
    const vk::BufferRange x = x_.from(uint64_t{first} * kRowInputs * 4);
    if (quantize_x_) {
      quantize_x_->record(
          recorder, {.x = x, .x_stride = kRowInputs, .rows = n, .k = kRowInputs, .y = planes_});
    }
    gemv_->record(recorder, {.weights = uploaded_->matrix,
                             .x = quantize_x_ ? planes_ : x,
                             .x_stride = kRowInputs,
                             .y = y_,
                             .y_stride = kRowOutputs,
                             .rows = n,
                             .scratch = scratch_});
    EXPECT_TRUE(vk::run(*bed_.device(), *recorder.finish()).ok());
    return *vk::download(bed_.device(), y_.subrange(0, uint64_t{n} * kRowOutputs * 4));
  }

 private:
  OpBed& bed_;
  RandomWeights weights_;
  Result<Gemv> gemv_;
  std::shared_ptr<UploadedWeights> uploaded_;
  vk::BufferRange x_, y_, scratch_, planes_;
  std::optional<QuantizeX> quantize_x_;  // to planes_
};

TEST(GemvRows, HaveTheBitsTheyHaveAloneWithWeightsOfEveryType) {
  PUMICE_REQUIRE_DEVICE(device);
  size_t n_compared = 0;
  for (const WeightType* type : linear_types()) {
    for (const GemvKernel kernel : {GemvKernel::kPortable, GemvKernel::kSubgroup,
                                    GemvKernel::kBroadcast, GemvKernel::kPlanes}) {
      const vk::DevicePlan& plan = device->plan();
      if (!gemv_runs(plan, kernel, *type)) continue;
      vk::PipelineLibrary pipelines(device, "", spirv_hash());
      OpBed bed(device, pipelines);
      const Products products(bed, *type, kernel);
      ASSERT_TRUE(pipelines.compile().ok());
      EXPECT_EQ(products.gemv().alike_rows(), Gemv::kMaxRows);
      std::vector<std::byte> alone;
      for (uint32_t row = 0; row < Gemv::kMaxRows; ++row) {
        const std::vector<std::byte> y = products.of(row, 1);
        alone.insert(alone.end(), y.begin(), y.end());
      }
      for (const uint32_t n : {2u, 3u, 5u, 8u}) {
        const std::vector<std::byte> together = products.of(0, n);
        EXPECT_EQ(std::memcmp(together.data(), alone.data(), together.size()), 0)
            << type->name << ' ' << gemv_kernel_name(kernel) << ", " << n << " rows";
        ++n_compared;
      }
    }
  }
  EXPECT_GT(n_compared, 40u);
}

}  // namespace
}  // namespace pumice::ops
