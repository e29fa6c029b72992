#include <fmt/format.h>

#include <limits>

#include "base/float16.hpp"
#include "format/resident_layout.hpp"
#include "shaders/common/linear_cases.hpp"
#include "shaders/common/paged_kv_case.hpp"
#include "shaders/latent/latent.hpp"
#include "shaders/op_case.hpp"

namespace pumice::ops {
namespace {

constexpr double kNotWritten = std::numeric_limits<double>::quiet_NaN();

// ---- latent_rows

struct RowsCase {
  uint32_t head_dim;
  KvType type;
  uint32_t context;
  uint32_t first_key;
  uint32_t n_keys;
};

/// The second layer of the second of two sequences.
Result<PreparedOp> prepare_rows(OpBed& bed, const RowsCase& test) {
  const std::vector<uint32_t> contexts = {20, test.context};
  const PagedKvCase paged({.type = test.type,
                           .n_layers = 2,
                           .n_kv_heads = 1,
                           .head_dim = test.head_dim,
                           .has_values = false},
                          contexts);
  std::vector<float> values = OpBed::normal_floats(size_t{test.context} * test.head_dim, 1);
  LatentRows::Args args{.first_key = test.first_key,
                        .n_keys = test.n_keys,
                        .layer_offset_bytes = paged.layout().layer_offset_bytes(1)};
  PUMICE_TRY(args.kv, bed.input(paged.size_bytes(), [&](std::span<std::byte> memory) {
    std::vector<std::byte> image(memory.size(), std::byte{0xFF});
    for (uint32_t i = 0; i < test.context; ++i) {
      paged.store(image, paged.k_row(1, 1, i, 0),
                  std::span(values).subspan(size_t{i} * test.head_dim, test.head_dim));
    }
    std::ranges::copy(image, memory.begin());
  }));
  const std::vector<uint64_t> table = paged.table(args.kv.address());
  PUMICE_TRY(args.block_table, bed.input(std::span(table).subspan(paged.table_stride())));
  PUMICE_TRY(args.y, bed.output(uint64_t{test.n_keys} * test.head_dim * 4));
  PUMICE_TRY(const LatentRows op, LatentRows::plan(bed.pipelines(), test.head_dim, test.type));
  Expectation y{.name = "y", .output = args.y};
  const auto wanted = std::span(values).subspan(size_t{test.first_key} * test.head_dim,
                                                size_t{test.n_keys} * test.head_dim);
  y.reference.assign(wanted.begin(), wanted.end());
  y.bound.assign(wanted.size(), 0);
  return prepared_op(op, args, {std::move(y)});
}

// ---- latent_heads

struct HeadsCase {
  LatentHeads::Shape shape;
  uint32_t n_keys;
  bool fused;  ///< a head's keys and values lie side by side
};

Result<PreparedOp> prepare_heads(OpBed& bed, const HeadsCase& test) {
  const LatentHeads::Shape& shape = test.shape;
  const uint32_t n_own = shape.n_heads * (shape.n_still + shape.v_dim);
  const uint32_t turned_stride = shape.n_turned + 5;
  const uint32_t stride = n_own + 3;
  const auto turned = OpBed::normal_floats(size_t{test.n_keys} * turned_stride, 1);
  const auto own = OpBed::normal_floats(size_t{test.n_keys} * stride, 2);
  const uint32_t key_stride = shape.n_still + (test.fused ? shape.v_dim : 0);
  const uint32_t value_stride = shape.v_dim + (test.fused ? shape.n_still : 0);
  const uint32_t first_value = test.fused ? shape.n_still : shape.n_heads * shape.n_still;
  PUMICE_TRY(const vk::BufferRange own_range, bed.input(own));
  LatentHeads::Args args{.turned_stride = turned_stride,
                         .keys = {own_range, key_stride},
                         .values = {own_range.from(uint64_t{first_value} * 4), value_stride},
                         .stride = stride,
                         .n_keys = test.n_keys};
  PUMICE_TRY(args.turned, bed.input(turned));
  const KvLayout layout = shape.layout();
  const uint32_t n_blocks = (test.n_keys + kKvBlockTokens - 1) / kKvBlockTokens;
  PUMICE_TRY(args.kv, bed.output(n_blocks * layout.block_bytes()));
  PUMICE_TRY(const LatentHeads op, LatentHeads::plan(bed.pipelines(), shape));

  const auto stored = [&](float value) -> double {
    return shape.type == KvType::kF32 ? value : half_to_float(float_to_half(value));
  };
  Expectation kv{.name = "kv", .output = args.kv};
  // Every row of every block: those behind the last key are not written.
  struct Row {
    size_t head_byte;
    bool is_v;
    uint32_t token;
  };
  std::vector<Row> rows;
  for (uint32_t block = 0; block < n_blocks; ++block) {
    for (uint32_t plane = 0; plane < 2 * shape.n_heads; ++plane) {
      const bool is_v = plane >= shape.n_heads;
      const uint32_t head = plane % shape.n_heads;
      const uint32_t k_bytes = kKvBlockTokens * kv_row_bytes(shape.type, layout.head_dim);
      const uint32_t v_bytes = kKvBlockTokens * kv_row_bytes(shape.type, shape.v_dim);
      const size_t head_byte = block * layout.block_bytes() +
                               (is_v ? shape.n_heads * k_bytes + head * v_bytes : head * k_bytes);
      for (uint32_t token = 0; token < kKvBlockTokens; ++token) {
        rows.push_back({head_byte, is_v, token});
        const uint32_t key = block * kKvBlockTokens + token;
        for (uint32_t d = 0; d < (is_v ? shape.v_dim : layout.head_dim); ++d) {
          double value = kNotWritten;
          if (key < test.n_keys && !is_v && d >= shape.n_still) {
            value = stored(turned[size_t{key} * turned_stride + d - shape.n_still]);
          } else if (key < test.n_keys) {
            const uint32_t at = is_v ? first_value + head * value_stride : head * key_stride;
            value = stored(own[size_t{key} * stride + at + d]);
          }
          kv.reference.push_back(value);
        }
      }
    }
  }
  kv.bound.assign(kv.reference.size(), 0);
  kv.decode = [=](std::span<const std::byte> memory) {
    std::vector<double> values;
    for (const Row& row : rows) {
      const auto one = load_kv_row(memory.subspan(row.head_byte), shape.type, row.is_v, row.token,
                                   row.is_v ? layout.v_dim : layout.head_dim);
      values.insert(values.end(), one.begin(), one.end());
    }
    return values;
  };
  return prepared_op(op, args, {std::move(kv)});
}

// ---- head_transpose

struct TransposeCase {
  uint32_t n_heads;
  uint32_t n_rows;
  uint32_t n_cols;  ///< rounded up to what the type's blocks allow
  uint32_t first_head;
  uint32_t n_wanted;
  uint32_t part_groups = 0;  ///< the weights are split after so many row groups; 0: not
  bool every_type = false;   ///< see LinearShape
};

Result<PreparedOp> prepare_transpose(OpBed& bed, const WeightType& type,
                                     const TransposeCase& test) {
  const uint32_t n_cols =
      (test.n_cols + type.block_elements - 1) / type.block_elements * type.block_elements;
  const RandomWeights weights(type, test.n_heads * test.n_rows, n_cols, 1);
  const WeightSource source = weights.source();
  const uint64_t part_bytes = test.part_groups == 0
                                  ? bed.device()->plan().slab_bytes
                                  : test.part_groups * row_group_bytes(type, n_cols);
  PUMICE_TRY(const auto uploaded, upload_weights(bed, std::span(&source, 1), part_bytes));
  PUMICE_TRY(const vk::BufferRange y,
             bed.output(HeadTranspose::bytes(test.n_wanted, test.n_rows, n_cols)));
  PUMICE_TRY(const HeadTranspose op, HeadTranspose::plan(bed.pipelines(), type));

  const WeightType& floats = weight_type("F32");
  const uint32_t y_rows = test.n_wanted * n_cols;
  std::vector<float> transposed(size_t{y_rows} * test.n_rows);
  for (uint32_t row = 0; row < y_rows; ++row) {
    const uint32_t head = test.first_head + row / n_cols;
    for (uint32_t i = 0; i < test.n_rows; ++i) {
      transposed[size_t{row} * test.n_rows + i] =
          weights.values[(size_t{head} * test.n_rows + i) * n_cols + row % n_cols];
    }
  }
  Expectation expected{.name = "y", .output = y};
  // Columns behind a row's last are zeros; a row behind the last is not written.
  std::vector<float> row(test.n_rows);
  const uint32_t padded = (test.n_rows + 31) / 32 * 32;
  for (uint32_t i = 0; i < (y_rows + kRowGroup - 1) / kRowGroup * kRowGroup; ++i) {
    for (uint32_t j = 0; j < padded; ++j) {
      const bool written = i < y_rows;
      expected.reference.push_back(!written          ? kNotWritten
                                   : j < test.n_rows ? transposed[size_t{i} * test.n_rows + j]
                                                     : 0.0);
    }
  }
  expected.bound.assign(expected.reference.size(), 0);
  expected.decode = [=, &floats](std::span<const std::byte> memory) {
    std::vector<double> values;
    std::vector<float> one(padded);
    for (uint32_t i = 0; i < (y_rows + kRowGroup - 1) / kRowGroup * kRowGroup; ++i) {
      unpack_row(floats, memory.data(), padded, i, one.data());
      values.insert(values.end(), one.begin(), one.end());
    }
    return values;
  };
  const uint32_t n_heads = test.n_heads;
  return PreparedOp{
      .record =
          [=, first_head = test.first_head, n_wanted = test.n_wanted](vk::Recorder& recorder) {
            op.record(recorder, {.weights = uploaded->matrix,
                                 .n_heads = n_heads,
                                 .first_head = first_head,
                                 .n_wanted = n_wanted,
                                 .y = y});
          },
      .expected = {std::move(expected)}};
}

}  // namespace

std::vector<OpCase> latent_cases() {
  using enum KvType;
  std::vector<OpCase> cases;
  for (const RowsCase& test : {RowsCase{576, kF16, 70, 0, 70}, RowsCase{40, kF32, 50, 16, 33},
                               RowsCase{96, kBF16, 33, 32, 1}, RowsCase{320, kQ8_0, 61, 32, 29},
                               RowsCase{96, kQ4_0, 40, 0, 17}}) {
    cases.push_back(
        {.op = "latent",
         .name = fmt::format("rows head_dim={} {} keys={}+{} of {}", test.head_dim,
                             kv_type_name(test.type), test.first_key, test.n_keys, test.context),
         .prepare = [test](OpBed& bed) { return prepare_rows(bed, test); }});
  }
  for (const HeadsCase& test :
       {HeadsCase{{3, 16, 8, 24, kF32}, 37, false}, HeadsCase{{2, 128, 64, 128, kF16}, 16, true},
        HeadsCase{{5, 40, 16, 32, kF16}, 1, false}, HeadsCase{{1, 8, 8, 8, kF32}, 50, true}}) {
    const LatentHeads::Shape& s = test.shape;
    cases.push_back({.op = "latent",
                     .name = fmt::format("heads={} keys={}x({}+{}) values={} {}{}", s.n_heads,
                                         test.n_keys, s.n_still, s.n_turned, s.v_dim,
                                         kv_type_name(s.type), test.fused ? " fused" : ""),
                     .prepare = [test](OpBed& bed) { return prepare_heads(bed, test); }});
  }
  for (const WeightType* type : linear_types()) {
    for (const TransposeCase& test :
         {TransposeCase{3, 64, 64, 0, 3, 0, true}, TransposeCase{4, 40, 24, 1, 2},
          TransposeCase{5, 48, 96, 2, 3, 1, true}, TransposeCase{2, 8, 40, 0, 1, 1}}) {
      if (!test.every_type && !takes_all_shapes(*type)) continue;
      cases.push_back(
          {.op = "latent",
           .name = fmt::format("transpose {} {}+{} of {} heads {}x{}{}", type->name,
                               test.first_head, test.n_wanted, test.n_heads, test.n_rows,
                               test.n_cols, test.part_groups > 0 ? " parts" : ""),
           .prepare = [type, test](OpBed& bed) { return prepare_transpose(bed, *type, test); }});
    }
  }
  return cases;
}

}  // namespace pumice::ops
