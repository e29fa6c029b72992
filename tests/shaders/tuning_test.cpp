// The rows that are built in, and those that a device's own file puts before them.
#include "shaders/common/tuning.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <set>

#include "shaders/flash_attention/flash_attention.hpp"
#include "shaders/gemm/gemm_variants.hpp"
#include "shaders/layer_norm/layer_norm.hpp"
#include "shaders/spirv.hpp"
#include "shaders/tuning_overlay.hpp"
#include "tests/shaders/recorded_device.hpp"
#include "tests/temporary_folder.hpp"
#include "tests/vk/snapshots.hpp"

namespace pumice::ops {
namespace {

TEST(Tuning, TablesHaveDifferentNamesAndRows) {
  std::set<std::string> names;
  for (const vk::TuningTable& table : tuning_tables()) {
    EXPECT_TRUE(names.insert(table.name).second) << table.name;
    EXPECT_FALSE(table.rows.empty()) << table.name;
  }
  EXPECT_GT(names.size(), 10u);
}

TEST(Tuning, EveryRowSaysWhereItIsFrom) {
  for (const vk::TuningTable& table : tuning_tables()) {
    for (const vk::TuningRow& row : table.rows) EXPECT_NE(row.provenance, "") << row.origin;
  }
}

TEST(Tuning, TypesOfWeightsAreCheckedByName) {
  EXPECT_TRUE(vk::parse_tuning_rows("f", "gemm_matrix2 if rows=few use tile_rows=64 tile_cols=64",
                                    tuning_tables())
                  .ok());
  EXPECT_TRUE(vk::parse_tuning_rows("f", "gemv uniform if type=q4_k", tuning_tables()).ok());
  EXPECT_FALSE(vk::parse_tuning_rows("f", "gemv uniform if type=q4k", tuning_tables()).ok());
}

/// Rows of such text before those of the build.
class Preferred {
 public:
  explicit Preferred(const std::string& text, const std::string& name = "nvidia_rtx_4090")
      : library_(test::open_without_driver({name, test::snapshot(name)}, logger()), "",
                 spirv_hash()) {
    auto rows = vk::parse_tuning_rows("mine.tune", text, tuning_tables());
    PUMICE_CHECK(rows.ok(), rows.error().message);
    library_.prefer(*std::move(rows));
  }

  vk::PipelineLibrary& library() { return library_; }
  const std::string& log() const { return log_; }
  uint32_t layer_norm_lanes() {
    PUMICE_CHECK(LayerNorm::plan(library_).ok(), "no layer_norm");
    return library_.declared().back()->constants()[0].second;
  }

 private:
  Logger logger() {
    return Logger([this](LogLevel, std::string_view line) { log_ += std::string(line) + "\n"; },
                  LogLevel::kInfo);
  }
  std::string log_;
  vk::PipelineLibrary library_;
};

TEST(Tuning, WhatIsPreferredComesBeforeTheRowsOfTheBuild) {
  EXPECT_EQ(Preferred("").layer_norm_lanes(), 128u);
  EXPECT_EQ(Preferred("layer_norm use workgroup_size=32").layer_norm_lanes(), 32u);
  EXPECT_EQ(Preferred("layer_norm if class=cpu use workgroup_size=32").layer_norm_lanes(), 128u);
}

TEST(Tuning, IsOfATypeOfWeightsWhereARowSaysSo) {
  Preferred preferred(
      "gemm shared if type=q4_k math=f32 use workgroup_size=64 tile_rows=8 lane_cols=4\n");
  const auto tile_of = [&](const char* type) {
    return gemm_variants(preferred.library(), Math::kF32, XRoute::kPortable, &weight_type(type))
        .front()
        .tiles.front()
        .rows;
  };
  EXPECT_EQ(tile_of("Q4_K"), 8u);
  EXPECT_EQ(tile_of("Q6_K"), 16u);
}

TEST(Tuning, NoRowMakesProductsLessPreciseThanIsAskedFor) {
  Preferred preferred(
      "gemm i8 use workgroup_size=128 tile_rows=16 lane_cols=1\n"
      "gemm matrix\n"
      "attention matrix\n");
  const auto variants = [&](Math math) {
    std::set<Math> maths;
    for (const auto& variant : gemm_variants(preferred.library(), math, XRoute::kPortable)) {
      maths.insert(variant.math);
    }
    return maths;
  };
  EXPECT_EQ(variants(Math::kF32), std::set{Math::kF32});
  EXPECT_EQ(variants(Math::kF16), std::set{Math::kF16});
  EXPECT_EQ(variants(Math::kI8), std::set{Math::kI8});
  EXPECT_FALSE(variants(Math::kAuto).contains(Math::kI8));
  EXPECT_FALSE(FlashAttention::takes_matrices(
      preferred.library(), {.n_heads = 8, .n_kv_heads = 8, .head_dim = 64, .kv_type = KvType::kF16},
      Math::kF32));
  EXPECT_EQ(FlashAttention::tuned(preferred.library()).path, FlashAttention::Path::kPortable);
}

TEST(Tuning, ARowThatTheDeviceCannotRunIsPassedOverAndTheLogSaysWhy) {
  Preferred preferred("attention broadcast use tile_rows=4\n");
  const auto row = [&](const vk::TuningRow& one) -> std::string {
    return one.choice == "broadcast" ? "it has no such subgroups" : "";
  };
  const vk::TuningRow* chosen =
      choose_row(preferred.library(), "attention", vk::TuningFacts().set("math", "f32"), row);
  ASSERT_NE(chosen, nullptr);
  EXPECT_EQ(chosen->choice, "portable");
  EXPECT_EQ(preferred.log(), "mine.tune:1 is not used: it has no such subgroups\n");
}

class TuningOverlay : public ::testing::Test {
 protected:
  std::vector<vk::TuningRow> load() {
    log_.clear();
    const Logger logger(
        [this](LogLevel, std::string_view line) { log_ += std::string(line) + "\n"; },
        LogLevel::kWarning);
    return load_tuning_overlay(folder_.path(), device_, logger);
  }
  void write(const std::string& text) {
    std::ofstream(tuning_overlay_file(folder_.path(), device_)) << text;
  }

  test::TemporaryFolder folder_;
  vk::DeviceSnapshot device_ = test::snapshot("nvidia_rtx_4090");
  std::string log_;
};

TEST_F(TuningOverlay, IsReadFromTheCacheDirectory) {
  EXPECT_TRUE(load().empty());
  EXPECT_EQ(log_, "") << "none is no matter for a warning";
  write("# measured\nlayer_norm use workgroup_size=32\n");
  const auto rows = load();
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].provenance, "measured");
  EXPECT_EQ(log_, "");
}

TEST_F(TuningOverlay, IsOfOneDeviceAndDriver) {
  write("layer_norm use workgroup_size=32\n");
  ++device_.driver_version;
  EXPECT_TRUE(load().empty());
  EXPECT_TRUE(tuning_overlay_file("", device_).empty());
}

TEST_F(TuningOverlay, ThatIsMalformedIsIgnoredWithItsLineNamed) {
  write("layer_norm use workgroup_size=32\nlayer_norm use workgroup_size=31\n");
  EXPECT_TRUE(load().empty());
  EXPECT_NE(log_.find(".tune:2: workgroup_size is one of 32, 64, 128, not \"31\"; all rows of the "
                      "file are ignored"),
            std::string::npos)
      << log_;
}

TEST_F(TuningOverlay, TakesMeasuredRowsInFrontAndKeepsAllElse) {
  const auto save = [&](std::vector<MeasuredRow> rows) {
    return save_tuning_overlay(folder_.path() / "new", device_, rows);
  };
  const auto text = [&] {
    std::ifstream file(tuning_overlay_file(folder_.path() / "new", device_));
    return std::string(std::istreambuf_iterator(file), {});
  };
  const std::string gemv = "gemv_uniform if type=q4_k use workgroup_size=64 unroll=";
  ASSERT_TRUE(save({{gemv + "1", "first"}, {"layer_norm use workgroup_size=64", "norm"}}).ok());
  EXPECT_EQ(text(),
            "# tuned first\n" + gemv + "1\n# tuned norm\nlayer_norm use workgroup_size=64\n");
  std::ofstream(tuning_overlay_file(folder_.path() / "new", device_), std::ios::app)
      << "# by hand\n" + gemv + "4\n";
  ASSERT_TRUE(save({{gemv + "2", "second"}}).ok());
  EXPECT_EQ(text(), "# tuned second\n" + gemv +
                        "2\n# tuned norm\nlayer_norm use workgroup_size=64\n# by hand\n" + gemv +
                        "4\n");
  const Status wrong = save({{gemv + "3", "no such number"}});
  ASSERT_FALSE(wrong.ok());
  EXPECT_NE(text().find("second"), std::string::npos) << "what was there stays";
}

TEST_F(TuningOverlay, ThatIsNoFileOrHugeIsIgnored) {
  std::filesystem::create_directory(tuning_overlay_file(folder_.path(), device_));
  EXPECT_TRUE(load().empty());
  EXPECT_NE(log_.find("cannot be read"), std::string::npos) << log_;
  std::filesystem::remove(tuning_overlay_file(folder_.path(), device_));
  write(std::string(2 << 20, '#'));
  EXPECT_TRUE(load().empty());
  EXPECT_NE(log_.find("cannot be read"), std::string::npos) << log_;
}

}  // namespace
}  // namespace pumice::ops
