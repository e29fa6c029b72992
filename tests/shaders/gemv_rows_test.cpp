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
  Products(OpBed& bed, const WeightType& type, GemvKernel kernel,
           std::optional<uint32_t> finish_rows = {}, uint32_t outputs = kRowOutputs)
      : bed_(bed),
        weights_(type, outputs, kRowInputs, 1),
        gemv_(Gemv::plan(bed.pipelines(), type, kernel, finish_rows)) {
    const WeightSource source = weights_.source();
    uploaded_ = *upload_weights(bed, {&source, 1}, 1 << 24);
    x_ = *bed.input(OpBed::normal_floats(size_t{Gemv::kMaxRows} * kRowInputs, 7));
    y_ = *bed.output(uint64_t{Gemv::kMaxRows} * outputs * 4);
    scratch_ = *bed.output(
        std::max<uint64_t>(gemv_->scratch_bytes(uploaded_->matrix, Gemv::kMaxRows), 16));
    if (gemv_->x_form() == XForm::kFloats) return;
    quantize_x_ = *QuantizeX::plan(bed.pipelines(), gemv_->x_form());
    planes_ = *bed.output(x_form_bytes(gemv_->x_form(), Gemv::kMaxRows, kRowInputs));
  }

  const Gemv& gemv() const { return *gemv_; }

  std::vector<std::byte> of(uint32_t first, uint32_t n, const LinearFinish& finish = {}) const {
    vk::Recorder recorder(bed_.device());
    LinearArgs args{.weights = uploaded_->matrix,
                    .x = x_.from(uint64_t{first} * kRowInputs * 4),
                    .x_stride = kRowInputs,
                    .y = y_,
                    .rows = n,
                    .scratch = scratch_,
                    .finish = finish};
    args.y_stride = args.n_outputs();
    const vk::BufferRange y = y_.subrange(0, uint64_t{n} * args.y_stride * 4);
    if (finish.added) recorder.fill(y, 0);
    if (finish.scaled) {
      const uint64_t row_bytes = LinearFinish::n_squares(kRowInputs) * 4;
      args.finish.scaled->squares = finish.scaled->squares.from(first * row_bytes);
    }
    if (quantize_x_) {
      quantize_x_->record(
          recorder,
          {.x = args.x, .x_stride = kRowInputs, .rows = n, .k = kRowInputs, .y = planes_});
      args.x = planes_;
    }
    gemv_->record(recorder, args);
    EXPECT_TRUE(vk::run(*bed_.device(), *recorder.finish()).ok());
    std::vector<std::byte> all = *vk::download(bed_.device(), y);
    if (!finish.added) return all;
    // By rows: y, and its squares.
    const uint64_t squares_bytes = LinearFinish::n_squares(args.y_stride) * 4;
    const std::vector<std::byte> squares =
        *vk::download(bed_.device(), finish.added->squares.subrange(0, n * squares_bytes));
    std::vector<std::byte> both;
    for (uint32_t row = 0; row < n; ++row) {
      const auto add = [&](const std::vector<std::byte>& from, uint64_t bytes) {
        const auto begin = from.begin() + static_cast<ptrdiff_t>(row * bytes);
        both.insert(both.end(), begin, begin + static_cast<ptrdiff_t>(bytes));
      };
      add(all, uint64_t{args.y_stride} * 4);
      add(squares, squares_bytes);
    }
    return both;
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

TEST(GemvRows, HaveThemWhateverIsDoneBesides) {
  PUMICE_REQUIRE_DEVICE(device);
  constexpr uint32_t kOutputs = 64;
  for (const char* type : {"F16", "Q8_0", "Q4_K", "MXFP4"}) {
    for (const GemvKernel kernel :
         {GemvKernel::kPortable, GemvKernel::kSubgroup, GemvKernel::kBroadcast}) {
      const vk::DevicePlan& plan = device->plan();
      if (!gemv_runs(plan, kernel, weight_type(type))) continue;
      // As in the cases: no row finishes with eight columns a lane.
      if (kernel == GemvKernel::kBroadcast && plan.subgroup_size < 8) continue;
      vk::PipelineLibrary pipelines(device, "", spirv_hash());
      OpBed bed(device, pipelines);
      const Products products(bed, weight_type(type), kernel, Gemv::kMaxRows, kOutputs);
      ASSERT_TRUE(pipelines.compile().ok());
      const uint32_t n_squares = LinearFinish::n_squares(kRowInputs);
      const auto floats = [&](size_t n) { return *bed.input(OpBed::uniform_floats(n, 9)); };
      std::vector<float> x_squares(size_t{Gemv::kMaxRows} * n_squares);
      for (size_t i = 0; i < x_squares.size(); ++i) x_squares[i] = 20 + static_cast<float>(i % 37);
      LinearFinish gated{.scaled = LinearFinish::Scaled{*bed.input(x_squares), 1e-5f},
                         .gated = ActivationKind::kSilu};
      LinearFinish added{.added = LinearFinish::Added{
                             floats(kOutputs), *bed.output(Gemv::kMaxRows * kOutputs * 4),
                             *bed.output(Gemv::kMaxRows * LinearFinish::n_squares(kOutputs) * 4)}};
      for (const LinearFinish& finish : {gated, added}) {
        std::vector<std::byte> alone;
        for (uint32_t row = 0; row < Gemv::kMaxRows; ++row) {
          const std::vector<std::byte> y = products.of(row, 1, finish);
          alone.insert(alone.end(), y.begin(), y.end());
        }
        for (const uint32_t n : {2u, 3u, 5u, 8u}) {
          const std::vector<std::byte> together = products.of(0, n, finish);
          ASSERT_LE(together.size(), alone.size());
          EXPECT_EQ(std::memcmp(together.data(), alone.data(), together.size()), 0)
              << type << ' ' << gemv_kernel_name(kernel) << (finish.added ? " added, " : " gated, ")
              << n << " rows";
        }
      }
    }
  }
}

TEST(GemvRows, AreAlikeUpToThoseThatAreFinished) {
  PUMICE_REQUIRE_DEVICE(device);
  vk::PipelineLibrary pipelines(device, "", spirv_hash());
  const auto alike = [&](GemvKernel kernel, uint32_t finish_rows) {
    return Gemv::plan(pipelines, weight_type("F16"), kernel, finish_rows)->alike_rows();
  };
  EXPECT_EQ(alike(GemvKernel::kPortable, 0), Gemv::kMaxRows);
  EXPECT_EQ(alike(GemvKernel::kPortable, 4), 4u);
  EXPECT_EQ(alike(GemvKernel::kPortable, 8), Gemv::kMaxRows);
}

}  // namespace
}  // namespace pumice::ops
