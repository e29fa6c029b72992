#include "shaders/embedding/embedding.hpp"

#include "format/resident_layout.hpp"
#include "shaders/embedding/embedding.h"
#include "shaders/spirv.hpp"

namespace pumice::ops {

Result<Embedding> Embedding::plan(vk::PipelineLibrary& pipelines, const WeightType& type) {
  PUMICE_TRY(const vk::ShaderModule module, find_spirv("embedding", type));
  const EmbeddingSpec spec;
  Embedding op;
  op.columns_per_workgroup_ = kWeightBlockCols * spec.workgroup_size;
  PUMICE_TRY(op.pipeline_, pipelines.declare({.module = module,
                                              .constants = vk::constants_of(spec),
                                              .push_bytes = sizeof(EmbeddingPush)}));
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
  vk::Cost cost{.bytes = args.rows * (weight_bytes + uint64_t{table.n_cols} * 4),
                .flops = args.scale == 1 ? 0 : uint64_t{args.rows} * table.n_cols};
  bool first = true;
  for (const WeightMatrixPart& part : table.parts) {
    push.table = part.range.address();
    push.first_row = part.first_row;
    push.n_rows = part.n_rows;
    // The parts' dispatches write disjoint rows of y, so no barrier may come between them: the
    // first declares the accesses (and the cost) of all. Tables are not written while in use.
    if (first) {
      recorder.dispatch(*pipeline_, push, {workgroups, args.rows},
                        {vk::reads(args.tokens), vk::reads(args.sampled), vk::reads(part.range),
                         vk::writes(args.y)},
                        cost);
    } else {
      recorder.dispatch(*pipeline_, push, {workgroups, args.rows}, {}, {});
    }
    first = false;
  }
}

}  // namespace pumice::ops
