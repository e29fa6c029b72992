#include "shaders/embedding/embedding.hpp"

#include <cstdint>
#include <initializer_list>

#include "format/resident_layout.hpp"
#include "shaders/common/row_shares.hpp"
#include "shaders/embedding/embedding.h"
#include "shaders/spirv.hpp"

namespace pumice::ops {

Result<Embedding> Embedding::plan(vk::PipelineLibrary& pipelines, const WeightType& type) {
  PUMICE_TRY(const vk::ShaderModule module, find_spirv("embedding", type));
  const EmbeddingSpec spec;
  Embedding op;
  op.columns_per_workgroup_ = kWeightBlockCols * spec.workgroup_size;
  PUMICE_TRY(op.pipeline_, declare_kernel<EmbeddingPush>(pipelines, module, spec));
  return op;
}

void Embedding::record(vk::Recorder& recorder, const Args& args) const {
  const WeightMatrix& table = *args.table;
  const uint32_t workgroups = (table.n_cols + columns_per_workgroup_ - 1) / columns_per_workgroup_;
  EmbeddingPush push;
  push.tokens = args.tokens.address();
  push.sampled = args.sampled.empty() ? 0 : args.sampled.address();
  push.y = args.y.address();
  push.grid = table.grid.address();
  push.n = table.n_cols;
  push.n_col_tiles = static_cast<uint32_t>(n_col_tiles(*table.type, table.n_cols));
  push.last_token = table.n_rows - 1;
  push.scale = args.scale;
  const uint64_t weight_bytes = row_group_bytes(*table.type, table.n_cols) / kRowGroup;
  const std::initializer_list<vk::Access> none;
  const std::initializer_list<vk::Access> all = {vk::reads(args.tokens), vk::reads(args.sampled),
                                                 vk::reads(table.parts[0].range),
                                                 vk::writes(args.y)};
  for (const WeightMatrixPart& part : table.parts) {
    push.table = part.range.address();
    push.first_row = part.first_row;
    push.n_rows = part.n_rows;
    // The parts' dispatches write disjoint rows of y, so no barrier may come between them: the
    // first declares the accesses of all. Tables are not written while in use. Which part tokens
    // are in nobody knows here: each is taken to have its share.
    dispatch_rows(
        recorder, *pipeline_, push, args.rows, &part == &table.parts[0] ? all : none,
        [&](uint64_t rows) {
          const uint64_t elements = rows * table.n_cols;
          return vk::Cost{
              .bytes = (rows * weight_bytes + elements * 4) * part.n_rows / table.n_rows,
              .flops = args.scale == 1 ? 0 : elements * part.n_rows / table.n_rows};
        },
        [&](EmbeddingPush& moved, uint64_t first, uint32_t rows) {
          moved.tokens += first * 4;
          moved.y += first * table.n_cols * 4;
          return vk::Grid{workgroups, rows};
        });
  }
}

}  // namespace pumice::ops
