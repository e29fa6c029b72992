// pumice synth: models with random weights, for benchmarks and tests.
#include "base/path.hpp"
#include "models/synthetic.hpp"
#include "models/synthetic_adapter.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <memory>

#include "tools/command.hpp"
#include "tools/interrupt.hpp"
#include "tools/terminal.hpp"

namespace pumice::tools {
namespace {

struct SynthOptions {
  std::string preset;
  std::string type = "q4_k";
  bool pure = false;
  uint64_t seed = 1;
  uint32_t n_layers = 0;
  uint32_t context_tokens = 0;
  bool predicts = false;
  std::string adapter_of;  ///< file of the base
  uint32_t rank = 16;
  std::string output;
  bool force = false;
  bool list = false;
};

/// "147 tensors (112 Q4_K, 34 F32, 1 Q6_K)"
std::string types_of(const SyntheticModel& model) {
  std::map<std::string_view, size_t> counts;
  for (const SyntheticTensor& tensor : model.tensors()) ++counts[tensor.type->name];
  std::vector<std::pair<std::string_view, size_t>> sorted(counts.begin(), counts.end());
  std::ranges::stable_sort(sorted,
                           [](const auto& a, const auto& b) { return a.second > b.second; });
  std::string text;
  for (const auto& [type, count] : sorted) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", count, type);
  }
  return fmt::format("{} tensors ({})", model.tensors().size(), text);
}

std::string parameters_of(const SyntheticModel& model) {
  const auto n = static_cast<double>(model.n_parameters());
  return n >= 1e9 ? fmt::format("{:.2f}B", n / 1e9) : fmt::format("{:.1f}M", n / 1e6);
}

Status print_presets() {
  print_text("{:<15}{:>7}{:>7}{:>10}{:>7}{:>8}{:>9}{:>9}{:>9}{:>10}  {}\n", "preset", "layers",
             "width", "heads/kv", "ffn", "vocab", "params", "q4_k MB", "f16 MB", "context",
             "stands for");
  for (const SyntheticShape& shape : synthetic_presets()) {
    PUMICE_TRY(const SyntheticModel small, SyntheticModel::create(shape, {}));
    PUMICE_TRY(const SyntheticModel large,
               SyntheticModel::create(shape, {.type = &weight_type("F16")}));
    print_text("{:<15}{:>7}{:>7}{:>10}{:>7}{:>8}{:>9}{:>9.1f}{:>9.1f}{:>10}  {}\n", shape.name,
               shape.n_layers, shape.n_embd, fmt::format("{}/{}", shape.n_heads, shape.n_kv_heads),
               shape.n_ff, shape.n_vocab, parameters_of(small),
               static_cast<double>(small.data_bytes()) / 1e6,
               static_cast<double>(large.data_bytes()) / 1e6, shape.context_length,
               shape.stands_for);
  }
  return {};
}

/// An adapter's file is small.
Status write_adapter(const SynthOptions& options) {
  PUMICE_TRY(const ModelSource base, ModelSource::open(from_utf8(options.adapter_of)));
  PUMICE_TRY_STATUS(write_synthetic_adapter(
      base, {.rank = options.rank, .seed = options.seed}, from_utf8(options.output),
      options.force ? OutputFile::Existing::kReplace : OutputFile::Existing::kRefuse));
  print_message("{}: an adapter of rank {}\n", options.output, options.rank);
  return {};
}

/// Whether a file may be written there.
Status check_output(const SynthOptions& options) {
  std::error_code error;
  const std::filesystem::file_status status =
      std::filesystem::status(from_utf8(options.output), error);
  if (!std::filesystem::exists(status)) return {};
  if (!is_regular_file(status)) {
    return make_error(ErrorCode::kBadFile, "{}: not a regular file", options.output);
  }
  if (options.force) return {};
  return make_error(ErrorCode::kInvalidArgument, "{}: exists already; --force replaces it",
                    options.output);
}

Status synth(const SynthOptions& options) {
  if (options.list) return print_presets();
  if (options.preset.empty() && options.adapter_of.empty()) {
    return make_error(ErrorCode::kInvalidArgument,
                      "no preset: give one with --preset NAME (--list shows them)");
  }
  if (options.output.empty()) {
    return make_error(ErrorCode::kInvalidArgument, "no output: give a file with -o FILE");
  }
  if (!options.adapter_of.empty()) {
    PUMICE_TRY_STATUS(check_output(options));
    return write_adapter(options);
  }
  PUMICE_TRY(SyntheticShape shape, find_synthetic_preset(options.preset));
  PUMICE_TRY(const WeightType* const type, parse_weight_type(options.type));
  if (options.n_layers != 0) shape.n_layers = options.n_layers;
  shape.predicts = options.predicts;
  if (options.context_tokens != 0) shape.context_length = options.context_tokens;
  PUMICE_TRY(
      const SyntheticModel model,
      SyntheticModel::create(shape, {.type = type, .pure = options.pure, .seed = options.seed}));
  PUMICE_TRY_STATUS(check_output(options));
  const InterruptGuard interrupt;  // an interrupted run removes what it wrote
  ProgressBar bar("writing");
  const auto start = std::chrono::steady_clock::now();
  const auto progress = [&](uint64_t done, uint64_t total) -> Status {
    bar.update(done, total);
    if (!InterruptGuard::interrupted()) return {};
    return make_error(ErrorCode::kCancelled, "interrupted");
  };
  PUMICE_TRY_STATUS(write_synthetic_model(
      model, from_utf8(options.output), progress,
      options.force ? OutputFile::Existing::kReplace : OutputFile::Existing::kRefuse));
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  const double mega_bytes = static_cast<double>(model.data_bytes()) / 1e6;
  print_message("{}: {} parameters, {}, {:.0f} MB in {:.1f} s ({:.0f} MB/s)\n", options.output,
                parameters_of(model), types_of(model), mega_bytes, elapsed.count(),
                mega_bytes / elapsed.count());
  return {};
}

}  // namespace

Command add_synth(CLI::App& app) {
  auto options = std::make_shared<SynthOptions>();
  CLI::App* command =
      app.add_subcommand("synth", "Write a model of a real shape with random weights");
  command->add_flag("--list", options->list, "List the presets and exit");
  CLI::Option* const preset =
      command->add_option("--preset", options->preset, "Shape: llama-1b, llama-8b, … (see --list)");
  command
      ->add_option("--lora", options->adapter_of,
                   "Instead of a model write a random LoRA adapter (F16) of this model file, for "
                   "run, chat and serve --lora")
      ->type_name("FILE")
      ->excludes(preset);
  command->add_option("--rank", options->rank, "Rank of the adapter")
      ->capture_default_str()
      ->check(CLI::Range(1u, AdapterSource::kMostRank))
      ->needs("--lora");
  command->add_option("--type", options->type, "Weight type of the matrices: f16, q8_0, q4_k, …")
      ->capture_default_str();
  command->add_flag("--pure", options->pure,
                    "Also the output matrix, which is Q6_K for smaller types otherwise");
  command->add_option("-s,--seed", options->seed, "The same seed gives the same file")
      ->capture_default_str();
  command->add_option("--layers", options->n_layers, "Layers instead of the preset's")
      ->check(CLI::Range(1u, 1024u));
  command
      ->add_option("--context", options->context_tokens, "Context length instead of the preset's")
      ->check(CLI::Range(1u, 1u << 24));
  command->add_flag("--mtp", options->predicts,
                    "With a block that predicts the token after the next, for --spec mtp");
  command->add_option("-o,--output", options->output, "The GGUF file to write");
  command->add_flag("--force", options->force, "Replace the file if it exists");
  command->footer("Example: pumice synth --preset llama-1b --type q4_k -o llama-1b.gguf");
  return {command, [options] { return synth(*options); }};
}

}  // namespace pumice::tools
