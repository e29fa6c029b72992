#include "tests/compile_gate/hot_kernels.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <optional>
#include <utility>

#include "shaders/common/linear_args.hpp"
#include "shaders/common/tuning.hpp"
#include "shaders/flash_attention/attention_reduce.h"
#include "shaders/flash_attention/flash_attention.hpp"
#include "shaders/flash_attention/flash_attention_matrix.h"
#include "shaders/flash_attention/matrix_tuning.hpp"
#include "shaders/gemm/gemm_matrix.h"
#include "shaders/gemv/gemv.h"
#include "shaders/gemv/gemv.hpp"
#include "shaders/gemv/gemv_subgroup.h"
#include "shaders/linear/linear.hpp"
#include "shaders/sampling/sampling.hpp"

namespace pumice::test {
namespace {

constexpr std::string_view kGemvTypes[] = {"Q4_K", "Q6_K", "Q8_0", "F16", "MXFP4"};
constexpr std::string_view kGemmTypes[] = {"Q4_K", "F16"};
// Llama 3 8B and 1B.
constexpr ops::FlashAttention::Shape kAttention[] = {
    {.n_heads = 32, .n_kv_heads = 8, .head_dim = 128, .kv_type = KvType::kF16},
    {.n_heads = 32, .n_kv_heads = 8, .head_dim = 64, .kv_type = KvType::kF16},
    {.n_heads = 32, .n_kv_heads = 8, .head_dim = 128, .kv_type = KvType::kQ8_0}};
constexpr uint32_t kVocabulary = 128256;
// Each lane of attention in fp32 has a key: of so many lanes a turn's instructions are a key's.
constexpr uint32_t kKeyLanes = 32;

/// The constants of a pipeline; those that it does not have are as the struct declares them.
template <typename Spec>
Spec spec_of(const vk::Pipeline& pipeline) {
  auto members = std::bit_cast<std::array<uint32_t, std::size(Spec::kEntries)>>(Spec{});
  for (const auto& [id, value] : pipeline.constants()) {
    for (size_t i = 0; i < members.size(); ++i) {
      if (Spec::kEntries[i].id == id) members[i] = value;
    }
  }
  return std::bit_cast<Spec>(members);
}

std::optional<HotKernel> hot_gemv(const WeightType& type, const vk::Pipeline& pipeline) {
  HotKernel hot{.pipeline = &pipeline,
                .kernel = "gemv",
                .type = std::string(type.name),
                .unit = "weight",
                .units = type.layout.tile_cols};
  const bool in_planes = pipeline.module_name() == ops::linear_module_name("gemv", type, "planes");
  if (in_planes) hot.kernel = "gemv_planes";
  if (in_planes || pipeline.module_name() == ops::linear_module_name("gemv", type, "subgroup")) {
    hot.rows = spec_of<GemvSubgroupSpec>(pipeline).tile_rows;
    return hot;
  }
  if (pipeline.module_name() != ops::linear_module_name("gemv", type, "uniform")) return {};
  const auto spec = spec_of<GemvSpec>(pipeline);
  hot.rows = spec.tile_rows;
  // gemv.comp goes through the blocks of large tiles in a loop of their own.
  const uint32_t tile_steps = type.layout.tile_cols / kWeightBlockCols / spec.unroll;
  if (tile_steps > 2) {
    hot.trips = tile_steps;
  } else {
    hot.units = spec.unroll * kWeightBlockCols;
  }
  hot.units *= spec.lane_cols;
  return hot;
}

std::optional<HotKernel> hot_gemm(const WeightType& type, const vk::Pipeline& pipeline) {
  if (pipeline.module_name() != ops::linear_module_name("gemm", type, "matrix")) return {};
  const auto spec = spec_of<GemmMatrixSpec>(pipeline);
  return HotKernel{.pipeline = &pipeline,
                   .kernel = "gemm_matrix",
                   .type = std::string(type.name),
                   .rows = spec.tile_rows,
                   .unit = "mma",
                   .products = spec.part_rows * spec.part_cols * spec.tile_k};
}

HotKernel hot_attention(const ops::FlashAttention::Shape& shape, std::string_view kernel,
                        const vk::Pipeline& pipeline) {
  HotKernel hot{.pipeline = &pipeline,
                .kernel = kernel,
                .type = shape.kv_type.name(),
                .head_dim = shape.head_dim,
                .phases = 2};                                          // q · Kᵀ, weights · V
  if (pipeline.module_name().starts_with("flash_attention.matrix")) {  // both have these constants
    const auto spec = spec_of<FlashAttentionSpec>(pipeline);
    const auto more = spec_of<FlashAttentionMatrixSpec>(pipeline);
    const uint32_t subgroups = spec.workgroup_size / more.subgroup_size;
    hot.rows = spec.tile_rows;
    hot.unit = "mma";
    // Of a subgroup.
    hot.products = spec.tile_rows * more.key_tile * spec.head_dim / subgroups;
    return hot;
  }
  const auto spec = spec_of<FlashAttentionSpec>(pipeline);
  hot.rows = spec.tile_rows;
  hot.unit = "key";
  hot.units = kKeyLanes;
  // A lane has a key, then as large a share of the sums. Its slice of a row's weights is a quarter,
  // unless the subgroup has them.
  hot.products = spec.tile_rows * spec.head_dim;
  hot.trips = spec.workgroup_size / 4;
  return hot;
}

void add_if(std::vector<HotKernel>& hot, std::optional<HotKernel> kernel) {
  if (kernel) hot.push_back(std::move(*kernel));
}

}  // namespace

Result<std::vector<HotKernel>> declare_hot_kernels(vk::PipelineLibrary& pipelines) {
  std::vector<HotKernel> hot;
  for (const std::string_view name : kGemvTypes) {
    const WeightType& type = weight_type(name);
    PUMICE_TRY_STATUS(ops::Gemv::plan(pipelines, type, ops::XRoute::kPortable));
    // The row behind it, if it holds here.
    const auto kernels = ops::gemv_kernels(pipelines, type, ops::XRoute::kPortable);
    if (std::ranges::find(kernels, ops::GemvKernel::kPlanes) != kernels.end()) {
      PUMICE_TRY_STATUS(ops::Gemv::plan(pipelines, type, ops::GemvKernel::kPlanes));
    }
  }
  for (const std::string_view name : kGemmTypes) {
    const WeightType* type = &weight_type(name);
    PUMICE_TRY_STATUS(ops::Linear::plan(pipelines, {&type, 1}));
  }
  const ops::Sampling::Tuning sampling = ops::Sampling::tuned(pipelines, kVocabulary);
  PUMICE_TRY_STATUS(ops::Sampling::plan(pipelines, ops::Sampling::Variant::kGreedy, sampling));
  // Of two stages, the one that reads the vocabulary.
  const std::string_view greedy =
      sampling.n_slices > 1 ? "sampling.greedy.slice" : "sampling.greedy";
  for (const vk::Pipeline* pipeline : pipelines.declared()) {
    for (const std::string_view name : kGemvTypes) {
      add_if(hot, hot_gemv(weight_type(name), *pipeline));
    }
    for (const std::string_view name : kGemmTypes) {
      add_if(hot, hot_gemm(weight_type(name), *pipeline));
    }
    if (pipeline->label() == greedy) {
      hot.push_back({.pipeline = pipeline,
                     .kernel = "sampling.greedy",
                     .type = "f32",
                     .rows = 1,
                     .unit = "key",
                     .units = 4 * sampling.flight,
                     .innermost = true});
    }
  }
  for (const ops::FlashAttention::Shape& shape : kAttention) {
    PUMICE_TRY(const auto op, ops::FlashAttention::plan(pipelines, shape, ops::Math::kAuto));
    const auto [tile, row, reduce] = op.pipelines();
    hot.push_back(hot_attention(shape, "flash_attention.prefill", *tile));
    hot.push_back(hot_attention(shape, "flash_attention.decode", *row));
    // The row behind it, if it holds here.
    const auto rows = ops::tuning_rows(pipelines, "attention_row");
    const auto matrix = std::ranges::find(rows, "matrix", &vk::TuningRow::choice);
    if (matrix != rows.end() && op.tile_math() == ops::Math::kF16) {
      PUMICE_TRY(const auto tiles, ops::matrix_attention_tuning(pipelines, shape));
      auto single = tiles;
      single.key_tile = std::min(single.key_tile, (*matrix)->number("key_tile"));
      PUMICE_TRY(const auto raced, ops::FlashAttention::plan(pipelines, shape, tiles, single));
      hot.push_back(hot_attention(shape, "flash_attention.decode_matrix", *raced.pipelines()[1]));
    }
    if (shape.kv_type.quantised()) continue;  // the same pipeline again
    hot.push_back({.pipeline = reduce,
                   .kernel = "attention_reduce",
                   .type = "f32",
                   .rows = 1,
                   .head_dim = shape.head_dim,
                   .unit = "key",
                   .units = spec_of<AttentionReduceSpec>(*reduce).flight,
                   .innermost = true});
  }
  return hot;
}

}  // namespace pumice::test
