// What every op chooses on every recorded device, against the table choices.txt. What is chosen is
// seen in the pipelines that are declared: module, constants, subgroups.
//
// Modules that some builds lack, for want of a GLSL extension, are struck out here, so that the table
// is the same for every build; what would be chosen of them is asked of the functions that choose.
//
// A choice that is meant to change: copy the table that this test writes over choices.txt, and let
// the difference be read.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>

#include "format/resident_layout.hpp"
#include "models/latent_expansion.hpp"
#include "shaders/expert_gemm/expert_gemm.hpp"
#include "shaders/experts/experts.hpp"
#include "shaders/flash_attention/flash_attention.hpp"
#include "shaders/flash_attention/matrix_tuning.hpp"
#include "shaders/gated_activation/gated_activation.hpp"
#include "shaders/gemm/gemm_variants.hpp"
#include "shaders/gemv/gemv.hpp"
#include "shaders/head_linear/head_linear.hpp"
#include "shaders/layer_norm/layer_norm.hpp"
#include "shaders/linear/linear.hpp"
#include "shaders/recurrence/recurrence.hpp"
#include "shaders/rms_norm/rms_norm.hpp"
#include "shaders/rope_kv/rope_kv.hpp"
#include "shaders/sampling/sampling.hpp"
#include "shaders/spirv.hpp"
#include "tests/paths.hpp"
#include "tests/shaders/recorded_device.hpp"

namespace pumice {
namespace {

using ops::Math;

/// "rms_norm.wide 0:512 1:1", what follows the colon a constant's value; "@32" the subgroup size
/// that is required, with "!" full ones.
std::string describe(const vk::Pipeline& pipeline) {
  std::string text(pipeline.module_name());
  for (const auto& [id, value] : pipeline.constants()) text += fmt::format(" {}:{}", id, value);
  if (pipeline.subgroup_size() != 0) text += fmt::format(" @{}", pipeline.subgroup_size());
  if (pipeline.full_subgroups()) text += "!";
  return text;
}

bool may_be_left_out(std::string_view module) {
  return module.ends_with(".matrix") || module.ends_with(".matrix2") || module.ends_with(".i8") ||
         (module.starts_with("gemv.") && module.ends_with(".planes"));
}

vk::PipelineLibrary::ModuleNames left_out_of_some_builds() {
  vk::PipelineLibrary::ModuleNames names;
  for (const vk::ShaderModule& module : spirv_modules()) {
    if (may_be_left_out(module.name)) names.emplace(module.name);
  }
  return names;
}

/// What a plan declares where these modules failed the self-test; "-" where there is no plan.
std::string declared_by(const std::shared_ptr<vk::Device>& device,
                        vk::PipelineLibrary::ModuleNames rejected,
                        const std::function<Status(vk::PipelineLibrary&)>& plan) {
  vk::PipelineLibrary pipelines(device, "", spirv_hash());
  rejected.merge(left_out_of_some_builds());
  pipelines.reject(std::move(rejected));
  if (const Status planned = plan(pipelines); !planned.ok()) return "-";
  std::vector<std::string> texts;
  for (const vk::Pipeline* pipeline : pipelines.declared()) texts.push_back(describe(*pipeline));
  return fmt::format("{}", fmt::join(texts, "; "));
}

/// `text` with the name of the weight type taken out, so that types can be told to be alike.
std::string without_type(std::string text, const WeightType& type) {
  std::string name(type.shaders);
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
  for (size_t at = 0; (at = text.find("." + name, at)) != std::string::npos;) {
    text.replace(at, name.size() + 1, ".*");
  }
  return text;
}

using Plan = std::function<Status(vk::PipelineLibrary&)>;
using Choices = std::map<std::string, std::string>;  // by what is asked

std::vector<const WeightType*> weight_types_with_shaders() {
  std::vector<const WeightType*> types;
  for (const WeightType& type : weight_types()) {
    if (type.has_codec() && type.shaders == type.name) types.push_back(&type);
  }
  return types;
}

/// A choice for each weight type, those alike in one line.
void note_by_type(Choices& choices, const std::string& asked,
                  const std::function<std::string(const WeightType&)>& choose) {
  std::map<std::string, std::vector<std::string_view>> types_of;
  const auto types = weight_types_with_shaders();
  for (const WeightType* type : types) {
    types_of[without_type(choose(*type), *type)].push_back(type->name);
  }
  for (const auto& [text, names] : types_of) {
    const std::string of =
        names.size() == types.size() ? "" : fmt::format(" of {}", fmt::join(names, " "));
    choices[asked + of] = text;
  }
}

void note_linear(Choices& choices, const std::shared_ptr<vk::Device>& device) {
  const vk::DevicePlan& plan = device->plan();
  note_by_type(choices, "gemv", [&](const WeightType& type) {
    return declared_by(device, {}, [&](vk::PipelineLibrary& pipelines) -> Status {
      PUMICE_TRY_STATUS(ops::Gemv::plan(pipelines, type, ops::tuned_x_route(plan)));
      return {};
    });
  });
  for (const Math math : {Math::kAuto, Math::kF32}) {
    note_by_type(choices, fmt::format("gemv kernels {}", math_name(math)),
                 [&](const WeightType& type) {
                   std::string names;
                   for (const ops::GemvKernel kernel :
                        ops::gemv_kernels(plan, type, ops::tuned_x_route(plan), math)) {
                     names += fmt::format(" {}", gemv_kernel_name(kernel));
                   }
                   return names;
                 });
  }
  note_by_type(choices, "linear", [&](const WeightType& type) {
    const std::string all = declared_by(device, {}, [&](vk::PipelineLibrary& pipelines) {
      const WeightType* const types[] = {&type};
      const auto linear = ops::Linear::plan(pipelines, types, Math::kAuto);
      return linear.ok() ? Status() : Status(linear.error());
    });
    return all.substr(0, all.find("; gemv"));
  });
  // What is taken in place of one that the self-test struck out.
  const WeightType& type = weight_type("Q4_K");
  for (const char* variant : {"subgroup", "uniform", "broadcast", "shared"}) {
    const vk::PipelineLibrary::ModuleNames rejected = {fmt::format("gemm.q4_k.{}", variant),
                                                       fmt::format("gemv.q4_k.{}", variant)};
    choices[fmt::format("linear Q4_K without {}", variant)] =
        declared_by(device, rejected, [&](vk::PipelineLibrary& pipelines) {
          const WeightType* const types[] = {&type};
          const auto linear = ops::Linear::plan(pipelines, types, Math::kAuto);
          return linear.ok() ? Status() : Status(linear.error());
        });
  }
}

void note_splits(Choices& choices, const std::shared_ptr<vk::Device>& device) {
  vk::PipelineLibrary pipelines(device, "", spirv_hash());
  pipelines.reject(left_out_of_some_builds());
  for (const char* name : {"Q4_K", "F16"}) {
    const WeightType& type = weight_type(name);
    const auto gemv = ops::Gemv::plan(pipelines, type, ops::tuned_x_route(device->plan()));
    PUMICE_CHECK(gemv.ok(), "no gemv");
    std::string text;
    for (const uint32_t n_rows : {32u, 256u, 512u, 1024u, 2048u, 4096u, 14336u}) {
      for (const uint32_t n_cols : {512u, 2048u, 4096u, 14336u}) {
        WeightMatrix matrix;
        matrix.type = &type;
        matrix.n_rows = n_rows;
        matrix.n_cols = n_cols;
        text += fmt::format(" {}", gemv->splits_of(matrix));
      }
      text += " |";
    }
    choices[fmt::format("gemv splits of {}", name)] = text;
  }
}

/// The variants of gemm, and which of the tiles of the first that can run are for which shape.
void note_variants(Choices& choices, const std::shared_ptr<vk::Device>& device) {
  const vk::DevicePlan& plan = device->plan();
  for (const Math math : {Math::kAuto, Math::kF32, Math::kF16, Math::kI8}) {
    std::string variants;
    std::string tiles;
    for (const ops::GemmVariant& variant : gemm_variants(plan, math, ops::tuned_x_route(plan))) {
      variants += fmt::format("{}{}", variants.empty() ? "" : "; ", variant.name);
      if (!variant.obstacle.empty()) {
        variants += fmt::format(" ({})", variant.obstacle);
        continue;
      }
      for (const ops::GemmTile& tile : variant.tiles) {
        variants += fmt::format(" {}x{}", tile.rows, tile.cols);
        for (const auto& [id, value] : tile.constants) variants += fmt::format(" {}:{}", id, value);
        variants += fmt::format(" in {}", tile.workgroup_size);
      }
      if (variant.subgroup_size != 0) variants += fmt::format(" @{}", variant.subgroup_size);
      if (variant.full_subgroups) variants += "!";
      if (!tiles.empty()) continue;
      tiles = std::string(variant.name);
      for (const uint32_t rows : {9u, 16u, 17u, 33u, 65u, 128u, 512u}) {
        for (const uint32_t n : {64u, 1024u, 4096u, 32000u}) {
          tiles += fmt::format(" {}", choose_gemm_tile(variant.tiles, rows, n));
        }
        tiles += " |";
      }
    }
    choices[fmt::format("gemm variants {}", math_name(math))] = variants;
    choices[fmt::format("gemm tiles {}", math_name(math))] = tiles;
  }
}

void note_experts(Choices& choices, const std::shared_ptr<vk::Device>& device) {
  note_by_type(choices, "expert_linear", [&](const WeightType& type) {
    return declared_by(device, {}, [&](vk::PipelineLibrary& pipelines) -> Status {
      PUMICE_TRY_STATUS(ops::ExpertLinear::plan(pipelines, type, false));
      return {};
    });
  });
  note_by_type(choices, "expert_gemm", [&](const WeightType& type) {
    return declared_by(device, {}, [&](vk::PipelineLibrary& pipelines) -> Status {
      const WeightType* const types[] = {&type};
      PUMICE_TRY_STATUS(
          ops::ExpertGemm::plan(pipelines, types, Math::kAuto, ops::tuned_x_route(device->plan())));
      return {};
    });
  });
}

/// The fewest rows that fulfil `condition`; "-": none that one would ever see.
std::string least_rows(const std::function<bool(uint32_t)>& condition) {
  for (uint32_t rows = 1; rows <= 2048; ++rows) {
    if (condition(rows)) return fmt::format("{}", rows);
  }
  return "-";
}

/// From how many rows on experts' products are tiles, and then of how many rows.
void note_pairs(Choices& choices, vk::PipelineLibrary& pipelines, const WeightType* type) {
  // Of a variant that every build has, with the tiles that those on matrix cores may have.
  const ops::GemmVariant variant{.name = "shared", .tiles = {{.rows = 16}, {.rows = 64}}};
  const auto op = ops::ExpertGemm::plan(pipelines, {&type, 1}, {&variant, 1});
  PUMICE_CHECK(op.ok(), "no products of experts");
  std::string from;
  std::string tiles;
  for (const auto& [n_used, n_experts] :
       {std::pair{1u, 8u}, {2u, 8u}, {4u, 32u}, {6u, 64u}, {8u, 128u}, {8u, 512u}}) {
    from += " " + least_rows([&, n_used = n_used, n_experts = n_experts](uint32_t rows) {
              return op->suits(rows, n_used, n_experts);
            });
    for (const uint32_t rows : {64u, 512u, 4096u}) {
      tiles += fmt::format(" {}",
                           op->tile_rows({.rows = rows, .n_used = n_used, .n_experts = n_experts}));
    }
    tiles += " |";
  }
  choices["expert_gemm from rows"] = from;
  choices["expert_gemm tiles"] = tiles;
}

/// From how many rows on a chunk is attended by keys and values of heads, as DeepSeek V2 Lite's,
/// after so many positions.
void note_expansion(Choices& choices, vk::PipelineLibrary& pipelines) {
  const ExpansionSizes sizes{
      .shape = {.n_heads = 16, .rank = 512, .n_still = 128, .n_turned = 64, .value_dim = 128},
      .n_heads = 16,
      .n_keys = 8192,
      .piece_keys = 1024};
  const auto expansion = LatentExpansion::plan(pipelines, sizes, {}, KvType::kF32, {}, Math::kF32);
  std::string from;
  for (const uint32_t before : {0u, 50u, 200u, 1000u, 5000u}) {
    from += " " + least_rows([&](uint32_t rows) {
              return expansion.ok() && expansion->takes({.n_rows = rows, .first_position = before});
            });
  }
  choices["latents expanded from rows"] = from;
}

void note_crossovers(Choices& choices, const std::shared_ptr<vk::Device>& device) {
  vk::PipelineLibrary pipelines(device, "", spirv_hash());
  const WeightType* const type = &weight_type("Q4_K");
  const auto linear = ops::Linear::plan(pipelines, {&type, 1});
  PUMICE_CHECK(linear.ok(), "no products");
  choices["linear in tiles from rows"] =
      least_rows([&](uint32_t rows) { return linear->uses_gemm(rows); });
  note_pairs(choices, pipelines, type);
  note_expansion(choices, pipelines);
}

void note_small_ops(Choices& choices, const std::shared_ptr<vk::Device>& device) {
  note_by_type(choices, "head_linear", [&](const WeightType& type) {
    return declared_by(device, {}, [&](vk::PipelineLibrary& pipelines) -> Status {
      PUMICE_TRY_STATUS(ops::HeadLinear::plan(pipelines, type, false));
      PUMICE_TRY_STATUS(ops::HeadLinear::plan(pipelines, type, true));
      return {};
    });
  });
  const Plan rms_norm = [](vk::PipelineLibrary& pipelines) -> Status {
    PUMICE_TRY_STATUS(ops::RmsNorm::plan(pipelines));
    return {};
  };
  choices["rms_norm"] = declared_by(device, {}, rms_norm);
  choices["rms_norm without wide"] = declared_by(device, {"rms_norm.wide"}, rms_norm);
  choices["gated_activation"] =
      declared_by(device, {}, [](vk::PipelineLibrary& pipelines) -> Status {
        PUMICE_TRY_STATUS(ops::GatedActivation::plan(pipelines, ActivationKind::kSilu));
        return {};
      });
  choices["layer_norm"] = declared_by(device, {}, [](vk::PipelineLibrary& pipelines) -> Status {
    PUMICE_TRY_STATUS(ops::LayerNorm::plan(pipelines));
    return {};
  });
  for (const uint32_t n_vocab : {512u, 32000u, 128256u, 262144u}) {
    ops::Sampling::Tuning tuning;
    const Plan sampling = [&](vk::PipelineLibrary& pipelines) -> Status {
      tuning = ops::Sampling::tuned(pipelines, n_vocab);
      for (const auto variant : {ops::Sampling::Variant::kGreedy, ops::Sampling::Variant::kFull}) {
        PUMICE_TRY_STATUS(ops::Sampling::plan(pipelines, variant, tuning));
      }
      return {};
    };
    const std::string asked = fmt::format("sampling {}", n_vocab);
    choices[asked] = declared_by(device, {}, sampling);
    choices[asked] += fmt::format("; slices {}", tuning.n_slices);
  }
  for (const uint32_t head_dim : {64u, 80u, 128u}) {
    for (const bool norms : {false, true}) {
      choices[fmt::format("rope_kv {}{}", head_dim, norms ? " norms" : "")] =
          declared_by(device, {}, [&](vk::PipelineLibrary& pipelines) -> Status {
            PUMICE_TRY_STATUS(ops::RopeKv::plan(pipelines, {.n_heads = 8,
                                                            .n_kv_heads = 2,
                                                            .head_dim = head_dim,
                                                            .rope_dims = head_dim,
                                                            .kv_type = KvType::kF16,
                                                            .head_norms = norms}));
            return {};
          });
    }
  }
}

/// Whether products of `math` would be computed on matrix cores, if they take the shape.
bool wants_matrices(const test::RecordedDevice& recorded, const ops::FlashAttention::Shape& shape,
                    Math math) {
  bool misses_them = false;
  const Logger logger(
      [&](LogLevel, std::string_view line) {
        misses_them = misses_them || line.starts_with("attention is computed in fp32");
      },
      LogLevel::kDebug);
  vk::PipelineLibrary pipelines(test::open_without_driver(recorded, logger), "", spirv_hash());
  const auto attention = ops::FlashAttention::plan(pipelines, shape, math);
  PUMICE_CHECK(attention.ok(), "no attention");
  return misses_them || attention->tile_math() == Math::kF16;
}

std::string matrix_tiles(const vk::DevicePlan& plan, const ops::FlashAttention::Shape& shape) {
  const auto tuning = ops::matrix_attention_tuning(plan, shape);
  if (!tuning.ok()) return tuning.error().message;
  const vk::MatrixShape& matrix = tuning->matrix;
  return fmt::format("{}x{} by {}{} in {} of matrices {}x{}x{}", tuning->max_tile_rows,
                     tuning->key_tile, tuning->n_subgroups, tuning->own_rows ? " of their own" : "",
                     tuning->workgroup_size, matrix.m, matrix.n, matrix.k);
}

/// What computes single rows, but with --math f32.
std::string row_kernel(const std::shared_ptr<vk::Device>& device,
                       const ops::FlashAttention::Shape& shape) {
  vk::PipelineLibrary pipelines(device, "", spirv_hash());
  const auto attention = ops::FlashAttention::plan(pipelines, shape, Math::kAuto);
  return attention.ok() ? describe(*attention->pipelines()[1]) : "-";
}

void note_attention_shape(Choices& choices, const std::string& shape_name,
                          const std::shared_ptr<vk::Device>& device,
                          const ops::FlashAttention::Shape& shape) {
  uint32_t tile_tokens = 0;
  const Plan plan = [&](vk::PipelineLibrary& pipelines) -> Status {
    PUMICE_TRY(const auto attention, ops::FlashAttention::plan(pipelines, shape, Math::kF32));
    tile_tokens = attention.tile_tokens();
    return {};
  };
  const std::string asked = fmt::format("attention {}", shape_name);
  choices[asked] = declared_by(device, {}, plan);
  choices[asked] += fmt::format("; tokens {}", tile_tokens);
  choices[asked + " on matrices"] = matrix_tiles(device->plan(), shape);
  choices[asked + " of one token"] = row_kernel(device, shape);
  if (shape.head_dim != 128) return;
  choices[asked + " without broadcast"] = declared_by(device, {"flash_attention.broadcast"}, plan);
}

void note_attention(Choices& choices, const std::shared_ptr<vk::Device>& device) {
  for (const uint32_t head_dim : {8u, 64u, 80u, 96u, 128u, 192u, 256u, 512u}) {
    note_attention_shape(
        choices, fmt::format("{} f16", head_dim), device,
        {.n_heads = 32, .n_kv_heads = 8, .head_dim = head_dim, .kv_type = KvType::kF16});
  }
  note_attention_shape(choices, "64 q8_0", device,
                       {.n_heads = 8, .n_kv_heads = 8, .head_dim = 64, .kv_type = KvType::kQ8_0});
  note_attention_shape(choices, "576 of a latent", device,
                       {.n_heads = 16,
                        .n_kv_heads = 1,
                        .head_dim = 576,
                        .kv_type = KvType::kF32,
                        .latent_dim = 512});
}

void note_math_of_attention(Choices& choices, const test::RecordedDevice& recorded) {
  std::string text;
  for (const Math math : {Math::kAuto, Math::kF32, Math::kF16, Math::kI8}) {
    const ops::FlashAttention::Shape shape{
        .n_heads = 8, .n_kv_heads = 8, .head_dim = 64, .kv_type = KvType::kF16};
    if (wants_matrices(recorded, shape, math)) text += fmt::format(" {}", math_name(math));
  }
  choices["attention on matrices with --math"] = text;
}

void note_recurrence(Choices& choices, const std::shared_ptr<vk::Device>& device) {
  using Decay = ops::Recurrence::Decay;
  const std::pair<const char*, ops::Recurrence::Shape> shapes[] = {
      {"delta 64", {.n_heads = 4, .n_key_heads = 2, .key_dim = 64, .value_dim = 64, .delta = true}},
      {"delta 128",
       {.n_heads = 4, .n_key_heads = 2, .key_dim = 128, .value_dim = 128, .delta = true}},
      {"delta 256",
       {.n_heads = 4, .n_key_heads = 2, .key_dim = 256, .value_dim = 256, .delta = true}},
      {"mamba2 128",
       {.n_heads = 4, .n_key_heads = 1, .key_dim = 128, .value_dim = 64, .has_d = true}},
      {"mamba2 256",
       {.n_heads = 4, .n_key_heads = 1, .key_dim = 256, .value_dim = 64, .has_d = true}},
      {"kimi 64",
       {.n_heads = 4,
        .n_key_heads = 4,
        .key_dim = 64,
        .value_dim = 64,
        .delta = true,
        .decay = Decay::kKey}},
      {"kimi 128",
       {.n_heads = 4,
        .n_key_heads = 4,
        .key_dim = 128,
        .value_dim = 128,
        .delta = true,
        .decay = Decay::kKey}},
      {"mamba",
       {.n_heads = 1,
        .n_key_heads = 1,
        .key_dim = 16,
        .value_dim = 8192,
        .has_d = true,
        .decay = Decay::kState}}};
  for (const auto& [name, shape] : shapes) {
    ops::Recurrence::Tuning tuning;
    const Plan plan = [&, &shape = shape](vk::PipelineLibrary& pipelines) -> Status {
      tuning = ops::Recurrence::tuned(pipelines, shape);
      PUMICE_TRY_STATUS(ops::Recurrence::plan(pipelines, shape, tuning));
      return {};
    };
    const std::string asked = fmt::format("recurrence {}", name);
    choices[asked] = declared_by(device, {}, plan);
    choices[asked] += fmt::format("; pieces {} from {}", tuning.piece_rows, tuning.least_rows);
    choices[asked + " without pieces"] = declared_by(device, {"recurrence.pieces"}, plan);
  }
}

/// The table: what is asked, then each answer and the devices that give it.
std::string table_of(const std::map<std::string, Choices>& by_device) {
  std::map<std::string, std::map<std::string, std::vector<std::string>>> answers;
  for (const auto& [device, choices] : by_device) {
    for (const auto& [asked, choice] : choices) answers[asked][choice].push_back(device);
  }
  std::string table;
  for (const auto& [asked, choices] : answers) {
    const auto most = std::ranges::max_element(
        choices, {}, [](const auto& answer) { return answer.second.size(); });
    table += fmt::format("{}\n", asked);
    for (auto answer = choices.begin(); answer != choices.end(); ++answer) {
      const std::string devices =
          answer == most ? "others" : fmt::format("{}", fmt::join(answer->second, " "));
      table += fmt::format("  {}\n    = {}\n", answer->first, devices);
    }
  }
  return table;
}

std::string file_text(const std::filesystem::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(Choices, AreThoseOfTheTableOnEveryRecordedDevice) {
  std::map<std::string, Choices> by_device;
  for (const test::RecordedDevice& recorded : test::recorded_devices()) {
    const auto device = test::open_without_driver(recorded);
    Choices& choices = by_device[recorded.name];
    note_linear(choices, device);
    note_splits(choices, device);
    note_variants(choices, device);
    note_experts(choices, device);
    note_crossovers(choices, device);
    note_small_ops(choices, device);
    note_attention(choices, device);
    note_math_of_attention(choices, recorded);
    note_recurrence(choices, device);
  }
  const std::string table = table_of(by_device);
  const std::string known = file_text(test::source_path("tests/shaders/choices.txt"));
  if (table == known) return;
  const auto written = std::filesystem::absolute("choices.txt");
  std::ofstream(written) << table;
  const auto [at, in_known] = std::ranges::mismatch(table, known);
  const auto line = 1 + std::count(table.begin(), at, '\n');
  FAIL() << "line " << line << " differs; what is chosen now is in " << written;
}

}  // namespace
}  // namespace pumice
