// Compiles every pipeline the engine may declare and prints what the driver's compiler says of
// each.
//
//   pipeline_statistics [TYPE]     one JSON object a line: pipeline, and the driver's statistics by
//                                  name; with a weight type ("Q4_K") only that one's, and not the
//                                  check that no module was forgotten
//   pipeline_statistics --hot      only of those whose hot loops are counted; also what a HotKernel
//                                  says of each, by its members' names, and "listing"
//
// Nothing is allocated or submitted, so it runs on drivers without hardware
// (tests/matrix/platforms.sh). Exit 1 when a pipeline does not compile, or when a module that the
// device can run is declared by no op here; the reason goes to stderr.
#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <set>

#include "shaders/common/matrix_shape.hpp"
#include "shaders/flash_attention/flash_attention.hpp"
#include "shaders/flash_attention/subgroup_tuning.hpp"
#include "shaders/linear/linear.hpp"
#include "shaders/peak/peak.hpp"
#include "shaders/quantize_x/quantize_x.hpp"
#include "shaders/rope/rope.hpp"
#include "shaders/rope_kv/rope_kv.hpp"
#include "shaders/spirv.hpp"
#include "tests/compile_gate/hot_kernels.hpp"
#include "tests/compile_gate/listing.hpp"
#include "tests/shaders/plan_ops.hpp"
#include "vk/device.hpp"

namespace pumice {
namespace {

struct Heads {
  uint32_t n_heads, n_kv_heads, head_dim;
  uint32_t window = 0;
  float soft_cap = 0;
};
// Llama 3 8B and 1B, Phi-3 mini, StableLM and Phi-2, Gemma 2B, Gemma 2 9B and 27B (local layers).
constexpr Heads kHeads[] = {{32, 8, 128},
                            {32, 8, 64},
                            {32, 32, 96},
                            {32, 32, 80},
                            {8, 1, 256},
                            {16, 8, 256, 4096, 50.0f},
                            {32, 16, 128, 4096, 50.0f}};

Result<std::shared_ptr<vk::Device>> open_device() {
  PUMICE_TRY(vk::Instance created, vk::Instance::create());
  auto instance = std::make_shared<vk::Instance>(std::move(created));
  PUMICE_TRY(std::vector<vk::DeviceSnapshot> snapshots, instance->snapshots());
  if (snapshots.empty()) return make_error(ErrorCode::kNoDevice, "the driver shows no device");
  PUMICE_TRY(vk::DevicePlan plan, vk::plan_device(snapshots[0]));
  plan.compile_only = true;
  return vk::Device::create(instance, 0, snapshots[0], std::move(plan), {});
}

Status declare_all(vk::PipelineLibrary& pipelines, std::string_view only_type) {
  std::vector<const WeightType*> types;
  for (const WeightType& type : weight_types()) {
    const bool wanted = only_type.empty() || type.name == only_type;
    if (type.has_codec() && wanted) types.push_back(&type);
  }
  if (types.empty()) {
    return make_error(ErrorCode::kInvalidArgument, "no weight type is named {}", only_type);
  }
  for (const WeightType* type : types) {
    // Also those that are only taken where a self-test rejects the first.
    for (const ops::GemvKernel kernel :
         ops::gemv_kernels(pipelines, *type, ops::XRoute::kPortable)) {
      PUMICE_TRY_STATUS(ops::Gemv::plan(pipelines, *type, kernel));
    }
  }
  PUMICE_TRY_STATUS(ops::Linear::plan(pipelines, types));
  for (const ops::Math math : {ops::Math::kF32, ops::Math::kF16, ops::Math::kI8}) {
    const Result<ops::Linear> linear = ops::Linear::plan(pipelines, types, math);
    if (!linear.ok() && linear.error().code != ErrorCode::kInvalidArgument) return linear.error();
  }
  for (const auto form : {ops::XForm::kInt8, ops::XForm::kHalves, ops::XForm::kPlanes}) {
    PUMICE_TRY_STATUS(ops::QuantizeX::plan(pipelines, form));
  }
  PUMICE_TRY_STATUS(test::plan_small_ops(pipelines, types));
  for (const auto kind : {ops::PeakMemory::Kind::kRead, ops::PeakMemory::Kind::kCopy}) {
    PUMICE_TRY_STATUS(ops::PeakMemory::plan(pipelines, kind));
  }
  for (const auto kind : ops::PeakArithmetic::kKinds) {
    if (!ops::PeakArithmetic::supported(pipelines.device()->plan(), kind)) continue;
    PUMICE_TRY_STATUS(ops::PeakArithmetic::plan(pipelines, kind));
  }
  for (const auto type : ops::PeakMatrix::kTypes) {
    for (const vk::MatrixShape& shape : ops::PeakMatrix::shapes(pipelines.device()->plan(), type)) {
      PUMICE_TRY_STATUS(ops::PeakMatrix::plan(pipelines, type, shape));
    }
  }
  PUMICE_TRY_STATUS(ops::PeakTouch::plan(pipelines));
  for (const Heads& heads : kHeads) {
    for (const KvType kv_type : {KvType::kF16, KvType::kF32}) {
      ops::RopeKv::Shape rope{.n_heads = heads.n_heads,
                              .n_kv_heads = heads.n_kv_heads,
                              .head_dim = heads.head_dim,
                              .rope_dims = heads.head_dim,
                              .kv_type = kv_type};
      PUMICE_TRY_STATUS(ops::RopeKv::plan(pipelines, rope));
      PUMICE_TRY_STATUS(
          ops::Rope::plan(pipelines, {.head_dim = heads.head_dim, .rope_dims = heads.head_dim}));
      rope.biases = rope.head_norms = true;
      PUMICE_TRY_STATUS(ops::RopeKv::plan(pipelines, rope));
      const ops::FlashAttention::Shape attention{.n_heads = heads.n_heads,
                                                 .n_kv_heads = heads.n_kv_heads,
                                                 .head_dim = heads.head_dim,
                                                 .kv_type = kv_type,
                                                 .window = heads.window,
                                                 .soft_cap = heads.soft_cap};
      for (const ops::Math math : {ops::Math::kF16, ops::Math::kF32}) {
        PUMICE_TRY_STATUS(ops::FlashAttention::plan(pipelines, attention, math));
      }
    }
  }
  // DeepSeek V2 Lite: its latents, and what they stand for.
  for (const auto& [kv_type, math] :
       {std::pair(KvType::kF16, ops::Math::kF16), std::pair(KvType::kF32, ops::Math::kF32)}) {
    const ops::FlashAttention::Shape latents{
        .n_heads = 16, .n_kv_heads = 1, .head_dim = 576, .kv_type = kv_type, .latent_dim = 512};
    const ops::FlashAttention::Shape expanded{
        .n_heads = 16, .n_kv_heads = 16, .head_dim = 192, .kv_type = kv_type, .v_dim = 128};
    for (const ops::FlashAttention::Shape& shape : {latents, expanded}) {
      PUMICE_TRY_STATUS(ops::FlashAttention::plan(pipelines, shape, math));
    }
  }
  return {};
}

bool only_for_cpu_drivers(std::string_view module) {
  const bool of_gemm = module.starts_with("gemm.") || module.starts_with("expert_gemm.");
  return module.ends_with(".broadcast") || (of_gemm && module.ends_with(".uniform"));
}

/// A device may have cooperative matrices and none of the shapes that a module multiplies.
bool lacks_matrix_shapes(const vk::DevicePlan& plan, std::string_view module) {
  if (module.ends_with(".matrix2")) return plan.flexible_matrix_shapes.empty();
  const bool of_rows = module == "flash_attention.matrix_rows";  // for subgroups of more than 16
  if (of_rows && plan.matrix_subgroup_size <= 16) return true;
  if (of_rows || module.ends_with(".matrix")) return !ops::half_matrix_obstacle(plan).empty();
  return std::any_of(std::begin(ops::PeakMatrix::kTypes), std::end(ops::PeakMatrix::kTypes),
                     [&](auto type) {
                       return module == ops::PeakMatrix::module_name(type) &&
                              ops::PeakMatrix::shapes(plan, type).empty();
                     });
}

/// Every module that could run is declared, but for those that are for CPU drivers only.
Status check_complete(const vk::PipelineLibrary& pipelines) {
  std::set<std::string_view> declared;
  for (const vk::Pipeline* pipeline : pipelines.declared())
    declared.insert(pipeline->module_name());
  for (const vk::ShaderModule& module : spirv_modules()) {
    if (only_for_cpu_drivers(module.name) || declared.contains(module.name)) continue;
    const vk::DevicePlan& plan = pipelines.device()->plan();
    if (lacks_matrix_shapes(plan, module.name)) continue;
    // Subgroups may be of no size that the kernel is made for, and then nothing adds its sums.
    // No row takes planes where packed dot products are emulated.
    const bool of_planes = module.name.ends_with(".planes") && module.name != "quantize_x.planes";
    if (of_planes && (!plan.integer_dot.packed_signed_accelerated ||
                      !ops::gemv_kernel_supported(plan, ops::GemvKernel::kPlanes))) {
      continue;
    }
    const bool of_subgroups = module.name == "gemv_reduce" || (module.name.starts_with("gemv.") &&
                                                               module.name.ends_with(".subgroup"));
    if (of_subgroups && !ops::gemv_kernel_supported(plan, ops::GemvKernel::kSubgroup)) {
      continue;
    }
    const auto no_matrices = [] {
      return Result<ops::FlashAttention::Tuning>(
          make_error(ErrorCode::kInvalidArgument, "not asked for"));
    };
    if (module.name == "flash_attention.subgroup" &&
        !ops::row_attention_tuning(pipelines, {.head_dim = 128}, no_matrices)) {
      continue;
    }
    if (pipelines.obstacle(module).empty()) {
      return make_error(ErrorCode::kInternal,
                        "no op declares the module {} here: add it to pipeline_statistics.cpp",
                        module.name);
    }
  }
  return {};
}

/// Text that may have bytes which are none.
std::string json_text(std::string_view text) {
  std::string json = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte >= 0x7F) {
      json += fmt::format("\\u{:04x}", byte);
    } else {
      if (c == '"' || c == '\\') json += '\\';
      json += c;
    }
  }
  return json + '"';
}

/// The beginning of a line: the closing brace is still to come.
std::string statistics_line(const vk::Pipeline& pipeline,
                            const std::vector<vk::PipelineStatistic>& statistics) {
  std::string name = pipeline.label();
  if (name != pipeline.module_name()) name += fmt::format(" {}", pipeline.module_name());
  for (const auto& [id, value] : pipeline.constants()) name += fmt::format(" {}={}", id, value);
  std::string line = fmt::format("{{\"pipeline\": {}", json_text(name));
  for (const vk::PipelineStatistic& statistic : statistics) {
    line += fmt::format(", {}: {}", json_text(statistic.name), statistic.value);
  }
  return line;
}

Status print_statistics(std::string_view only_type) {
  PUMICE_TRY(const std::shared_ptr<vk::Device> device, open_device());
  vk::PipelineLibrary pipelines(device, "", spirv_hash());
  pipelines.capture_statistics();
  PUMICE_TRY_STATUS(declare_all(pipelines, only_type));
  if (only_type.empty()) PUMICE_TRY_STATUS(check_complete(pipelines));
  PUMICE_TRY_STATUS(pipelines.compile());
  for (const vk::Pipeline* pipeline : pipelines.declared()) {
    PUMICE_TRY(const auto statistics, pipelines.statistics(*pipeline));
    fmt::print("{}}}\n", statistics_line(*pipeline, statistics));
  }
  return {};
}

Status print_hot_kernels() {
  PUMICE_TRY(const std::shared_ptr<vk::Device> device, open_device());
  vk::PipelineLibrary pipelines(device, "", spirv_hash());
  PUMICE_TRY(const auto kernels, test::declare_hot_kernels(pipelines));
  for (const test::HotKernel& hot : kernels) {
    PUMICE_TRY(const test::Listing listing, test::compile_listing(*device, *hot.pipeline));
    fmt::print(
        "{}, \"kernel\": {}, \"type\": {}, \"rows\": {}, \"head_dim\": {}, \"unit\": {}, "
        "\"units\": {}, \"innermost\": {}, \"products\": {}, \"phases\": {}, \"trips\": {}, "
        "\"listing\": {}}}\n",
        statistics_line(*hot.pipeline, listing.statistics), json_text(hot.kernel),
        json_text(hot.type), hot.rows, hot.head_dim, json_text(hot.unit), hot.units, hot.innermost,
        hot.products, hot.phases, hot.trips, json_text(listing.text));
  }
  return {};
}

}  // namespace
}  // namespace pumice

int main(int argc, char** argv) {
  const std::string_view what = argc > 1 ? argv[1] : "";
  const pumice::Status status =
      what == "--hot" ? pumice::print_hot_kernels() : pumice::print_statistics(what);
  if (status.ok()) return 0;
  fmt::print(stderr, "pipeline_statistics: {}\n", status.error().message);
  return 1;
}
