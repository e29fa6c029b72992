// The embedding op over blocks whose dequantised values another implementation gave.
#include "shaders/embedding/embedding.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <numeric>

#include "format/resident_layout.hpp"
#include "shaders/common/linear_cases.hpp"
#include "shaders/op_case.hpp"
#include "shaders/spirv.hpp"
#include "tests/gpu_fixture.hpp"
#include "tests/shared_data.hpp"

namespace pumice {
namespace {

constexpr uint32_t kColumns = 256;

std::vector<char> read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// Every row of the blocks, embedded: y must hold `expected`.
Result<ops::PreparedOp> embed_all(ops::OpBed& bed, const WeightType& type,
                                  const std::vector<char>& blocks,
                                  const std::vector<char>& expected) {
  ops::Expectation y{.name = std::string(type.name)};
  for (size_t i = 0; i < expected.size() / 4; ++i) {
    float value = 0;
    std::memcpy(&value, &expected[4 * i], 4);
    // Below this MXFP4's scale may be subnormal, which devices may flush.
    if (value != 0 && std::abs(value) < 0x1p-123f) continue;
    y.elements.push_back(i);
    y.words.push_back(std::bit_cast<uint32_t>(value));
  }
  const auto n_rows = static_cast<uint32_t>(expected.size() / 4 / kColumns);
  std::vector<uint32_t> tokens(n_rows);
  std::iota(tokens.begin(), tokens.end(), 0);

  WeightMatrix table{.type = &type, .n_rows = n_rows, .n_cols = kColumns};
  PUMICE_TRY(const vk::BufferRange resident,
             bed.input(resident_bytes(type, n_rows, kColumns), [&](std::span<std::byte> target) {
               repack(type, reinterpret_cast<const std::byte*>(blocks.data()), n_rows, kColumns, 0,
                      n_row_groups(n_rows), target.data());
             }));
  PUMICE_TRY(table.grid, ops::upload_grid(bed, type));
  table.parts = {{.range = resident, .first_row = 0, .n_rows = n_rows}};
  ops::Embedding::Args args{.rows = n_rows};
  PUMICE_TRY(args.tokens, bed.input(tokens));
  PUMICE_TRY(args.y, bed.output(expected.size()));
  PUMICE_TRY(const ops::Embedding op, ops::Embedding::plan(bed.pipelines(), type));
  y.output = args.y;
  return ops::PreparedOp{.record =
                             [=](vk::Recorder& recorder) {
                               ops::Embedding::Args call = args;
                               call.table = &table;
                               op.record(recorder, call);
                             },
                         .expected = {std::move(y)}};
}

TEST(Embedding, DequantisesEveryTypeBitForBitAsTheReference) {
  PUMICE_REQUIRE_DEVICE(device);
  PUMICE_REQUIRE_SHARED(folder, "reference/quants");
  vk::PipelineLibrary pipelines(device, "", spirv_hash());
  size_t compared = 0;
  for (const WeightType& type : weight_types()) {
    if (!type.has_codec()) continue;
    for (const std::string prefix : {"", "fuzz-"}) {
      const std::string name = prefix + std::string(type.name);
      const auto blocks = read_file(folder / (name + ".blocks.bin"));
      const auto expected = read_file(folder / (name + ".f32.bin"));
      if (blocks.empty() || expected.empty()) continue;
      SCOPED_TRACE(name);
      ops::OpBed bed(device, pipelines);
      const Result<ops::PreparedOp> op = embed_all(bed, type, blocks, expected);
      ASSERT_TRUE(op.ok()) << op.error().message;
      ASSERT_TRUE(pipelines.compile().ok());
      const Status same = ops::run_and_check(bed, *op);
      EXPECT_TRUE(same.ok()) << same.error().message;
      ++compared;
    }
  }
  EXPECT_GE(compared, 7u) << "no reference data was found";
}

}  // namespace
}  // namespace pumice
