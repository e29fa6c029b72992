#include <algorithm>
#include <bit>
#include <cmath>

#include "format/resident_layout.hpp"
#include "shaders/common/linear_cases.hpp"
#include "shaders/embedding/embedding.hpp"
#include "shaders/op_case.hpp"

namespace pumice::ops {
namespace {

struct Shape {
  const WeightType* type;
  uint32_t n_tokens;
  uint32_t n;
  uint32_t rows;
  uint32_t part_rows;  ///< the table is split after every so many rows, a multiple of kRowGroup
  float scale = 1;
};

/// Random file blocks of any type whose values are finite.
std::vector<std::byte> random_blocks(const WeightType& type, size_t n_elements, uint32_t seed) {
  std::mt19937 engine(seed);
  std::vector<std::byte> blocks(type.file_bytes(n_elements));
  std::vector<float> values(type.block_elements);
  for (size_t at = 0; at < blocks.size(); at += type.block_bytes) {
    do {
      for (size_t i = 0; i < type.block_bytes; ++i) blocks[at + i] = std::byte(engine() >> 24);
      dequantize(type, &blocks[at], type.block_elements, values.data());
    } while (!std::ranges::all_of(values, [](float value) { return std::isfinite(value); }));
  }
  return blocks;
}

Result<PreparedOp> prepare(OpBed& bed, const Shape& shape) {
  const WeightType& type = *shape.type;
  const auto blocks = random_blocks(type, size_t{shape.n_tokens} * shape.n, shape.n_tokens);
  WeightMatrix table{.type = &type, .n_rows = shape.n_tokens, .n_cols = shape.n};
  PUMICE_TRY(table.grid, upload_grid(bed, type));
  // From last to first, so that no part is followed in memory by the one it is followed by in rows.
  const uint32_t n_parts = (shape.n_tokens + shape.part_rows - 1) / shape.part_rows;
  table.parts.resize(n_parts);
  for (uint32_t part = n_parts; part-- > 0;) {
    const uint32_t first = part * shape.part_rows;
    const uint32_t n_rows = std::min(shape.part_rows, shape.n_tokens - first);
    PUMICE_TRY(const vk::BufferRange range,
               bed.input(resident_bytes(type, n_rows, shape.n), [&](std::span<std::byte> target) {
                 repack(type, blocks.data(), shape.n_tokens, shape.n, first / kRowGroup,
                        n_row_groups(n_rows), target.data());
               }));
    table.parts[part] = {.range = range, .first_row = first, .n_rows = n_rows};
  }

  // First, last, random and impossible ids; every third is read through `sampled`.
  std::mt19937 engine(7);
  std::vector<uint32_t> tokens(shape.rows);
  std::vector<uint32_t> sampled(shape.rows);
  Expectation y{.name = "y"};
  std::vector<float> row_values(shape.n);
  for (uint32_t row = 0; row < shape.rows; ++row) {
    const auto random = static_cast<uint32_t>(engine() % shape.n_tokens);
    const uint32_t choices[] = {0, shape.n_tokens - 1, shape.n_tokens, 0x7FFFFFFFu, random};
    const uint32_t token = choices[row % std::size(choices)];
    const uint32_t read = std::min(token, shape.n_tokens - 1);
    sampled[shape.rows - 1 - row] = token;
    tokens[row] = row % 3 == 2 ? Embedding::kFromSampled | (shape.rows - 1 - row) : token;
    dequantize(type, &blocks[read * type.file_bytes(shape.n)], shape.n, row_values.data());
    for (const float value : row_values) {
      if (shape.scale == 1) {
        y.words.push_back(std::bit_cast<uint32_t>(value));
      } else {  // one rounding; what is subnormal may be flushed
        y.reference.push_back(double{value} * shape.scale);
        y.bound.push_back(0x1p-24 * std::abs(y.reference.back()) + 0x1p-126);
      }
    }
  }

  Embedding::Args args{.rows = shape.rows, .scale = shape.scale};
  PUMICE_TRY(args.tokens, bed.input(tokens));
  PUMICE_TRY(args.sampled, bed.input(sampled));
  PUMICE_TRY(args.y, bed.output(uint64_t{shape.rows} * shape.n * 4));
  PUMICE_TRY(const Embedding op, Embedding::plan(bed.pipelines(), type));
  y.output = args.y;
  return PreparedOp{.record =
                        [=](vk::Recorder& recorder) {
                          Embedding::Args call = args;
                          call.table = &table;
                          op.record(recorder, call);
                        },
                    .expected = {std::move(y)}};
}

}  // namespace

std::vector<OpCase> embedding_cases() {
  std::vector<OpCase> cases;
  for (const WeightType& type : weight_types()) {
    if (!type.has_codec()) continue;
    const uint32_t block = type.block_elements;
    for (const Shape& shape :
         {Shape{&type, 1, block, 5, 32}, Shape{&type, 131, 3 * block, 29, 256},
          Shape{&type, 97, 7 * std::max(block, 37u) / block * block, 13, 64},
          Shape{&type, 67, 2 * std::max(block, 36u) / block * block, 7, 32, 0.8134f}}) {
      cases.push_back({.op = "embedding",
                       .name = fmt::format("{} tokens={} n={} rows={} part={}", type.name,
                                           shape.n_tokens, shape.n, shape.rows, shape.part_rows) +
                               (shape.scale == 1 ? "" : fmt::format(" scale={}", shape.scale)),
                       .prepare = [shape](OpBed& bed) { return prepare(bed, shape); }});
    }
  }
  return cases;
}

}  // namespace pumice::ops
