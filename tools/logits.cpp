// pumice logits: the logits of every position of a prompt, as raw floats.

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/output_file.hpp"
#include "base/path.hpp"
#include "models/vocabulary_loader.hpp"
#include "tools/command.hpp"
#include "tools/flag_values.hpp"
#include "tools/interrupt.hpp"
#include "tools/model_options.hpp"
#include "tools/terminal.hpp"

namespace pumice::tools {
namespace {

constexpr uint32_t kScoredRows = 128;  // of a step

struct LogitsOptions {
  ModelOptions model;
  std::string prompt;
  std::string file;
  std::string tokens;
  CLI::Option* tokens_option = nullptr;
  std::string output;
  std::string reference;
  double max_nmse = 0;
  CLI::Option* max_nmse_option = nullptr;
  bool invariant = false;
  bool score = false;
  CLI::Option* prompt_option = nullptr;
};

Result<std::vector<TokenId>> tokens_of(const LogitsOptions& options, const GgufFile& file) {
  if (options.tokens_option->count() > 0) return parse_numbers("--tokens", options.tokens);
  PUMICE_TRY(const std::string text,
             read_prompt_to_continue(options.prompt_option->count() > 0 ? &options.prompt : nullptr,
                                     options.file));
  PUMICE_TRY(const Tokenizer tokenizer, load_tokenizer(file));
  return tokenizer.encode(text, {.parse_special = true});
}

/// Compares rows with a file of float32 [positions][vocabulary] as they come.
class Comparison {
 public:
  static Result<std::unique_ptr<Comparison>> open(const std::string& path, uint64_t n_rows,
                                                  uint64_t n_vocab) {
    auto comparison = std::make_unique<Comparison>();
    comparison->path_ = path;
    std::error_code error;
    const uint64_t n_bytes = std::filesystem::file_size(from_utf8(path), error);
    if (error) return make_error(ErrorCode::kBadFile, "{}: {}", path, error.message());
    if (n_bytes != n_rows * n_vocab * sizeof(float)) {
      return make_error(ErrorCode::kBadFile, "{}: {} bytes, expected float32 of {} x {} logits",
                        path, n_bytes, n_rows, n_vocab);
    }
    comparison->stream_.open(from_utf8(path), std::ios::binary);
    return comparison;
  }
  void add(std::span<const float> values) {
    expected_.resize(values.size());
    stream_.read(reinterpret_cast<char*>(expected_.data()),
                 static_cast<std::streamsize>(values.size_bytes()));
    for (size_t i = 0; i < values.size(); ++i) {
      const double difference = static_cast<double>(values[i]) - expected_[i];
      error_ += difference * difference;
      power_ += static_cast<double>(expected_[i]) * expected_[i];
    }
    const auto likeliest = [](std::span<const float> row) {
      return std::distance(row.begin(), std::ranges::max_element(row));
    };
    ++n_rows_;
    if (likeliest(values) == likeliest(expected_)) ++n_same_;
  }
  /// Prints the verdict to stdout. `max_nmse`: beyond it is kSelfTestFailed.
  Status finish(const double* max_nmse) const {
    if (!stream_) return make_error(ErrorCode::kBadFile, "{}: cannot be read", path_);
    const double nmse = error_ / power_;
    print_text("NMSE {:.3g} over {} positions, the likeliest token is the same at {}\n", nmse,
               n_rows_, n_same_);
    if (max_nmse != nullptr && !(nmse <= *max_nmse)) {  // NaN is beyond too
      return make_error(ErrorCode::kSelfTestFailed, "{}: NMSE {:.3g} exceeds {:.3g}", path_, nmse,
                        *max_nmse);
    }
    return {};
  }

 private:
  std::string path_;
  std::ifstream stream_;
  std::vector<float> expected_;
  double error_ = 0;
  double power_ = 0;
  size_t n_rows_ = 0;
  size_t n_same_ = 0;
};

Status logits(LogitsOptions options) {
  static_assert(std::endian::native == std::endian::little, "the file is little-endian");
  const Logger logger = stderr_logger(options.model.verbose);
  if (options.model.device.list) return print_devices(logger);
  PUMICE_TRY_STATUS(options.model.validate());
  const bool wants_logits = !options.output.empty() || !options.reference.empty();
  if (!wants_logits && !options.score) {
    return make_error(ErrorCode::kInvalidArgument,
                      "no output: give a file with -o FILE, one to --compare with, or --score");
  }
  PUMICE_TRY_STATUS(options.model.resolve());
  PUMICE_TRY_STATUS(
      check_not_an_input(from_utf8(options.output),
                         std::vector{from_utf8(options.model.model), from_utf8(options.file),
                                     from_utf8(options.reference)}));
  PUMICE_TRY(const GgufFile file, GgufFile::open(from_utf8(options.model.model)));
  PUMICE_TRY(std::vector<TokenId> tokens, tokens_of(options, file));
  if (tokens.empty()) return no_tokens();
  const auto n_tokens = static_cast<uint32_t>(tokens.size());
  PUMICE_TRY(const std::shared_ptr<const ModelPlan> plan, ModelPlan::of_source(file));
  PUMICE_TRY(const uint32_t context_tokens,
             context_for(options.model, plan->program(), n_tokens, 0));
  const EngineOptions engine_options{.kv_type = options.model.kv_type(),
                                     .math = options.model.math_kind(),
                                     .context_tokens = context_tokens,
                                     .token_budget = options.model.token_budget,
                                     .chunk_tokens = options.model.chunk_tokens,
                                     .invariant = options.invariant,
                                     .prompt_logits = wants_logits,
                                     .spare_logit_rows = options.score ? kScoredRows : 0,
                                     .greedy_only = !options.score,
                                     .profile = options.model.profile};
  PUMICE_TRY(const host::OpenedModel opened,
             open_model(options.model, file, logger, engine_options, plan));
  PUMICE_TRY(const std::unique_ptr<Engine> engine, make_engine(opened, engine_options));
  const InterruptGuard interrupt;  // before the file exists: an interrupted run removes it
  std::unique_ptr<Comparison> comparison;
  if (!options.reference.empty()) {
    PUMICE_TRY(comparison,
               Comparison::open(options.reference, n_tokens, opened.model->program.n_vocab));
  }
  std::optional<OutputFile> output;
  if (!options.output.empty()) {
    PUMICE_TRY(output, OutputFile::create(from_utf8(options.output)));
  }
  Status written;
  const auto write = [&](uint32_t, std::span<const float> row) {
    if (output && written.ok()) written = output->write(std::as_bytes(row));
    if (comparison) comparison->add(row);
  };
  std::vector<float> scores;
  GenerationRequest request{.prompt = std::move(tokens)};
  if (wants_logits) request.on_logits = write;
  if (options.score) {
    request.on_score = [&scores](uint32_t, TokenId, const TokenLogProbs& log_probs) {
      scores.push_back(log_probs.log_prob);
    };
  }
  PUMICE_TRY(const RequestId id, engine->submit(std::move(request)));
  ProgressBar bar("computing logits");
  while (!engine->idle()) {
    if (InterruptGuard::interrupted()) return make_error(ErrorCode::kCancelled, "interrupted");
    PUMICE_TRY(const std::vector<StepEvent> events, engine->step());
    PUMICE_TRY_STATUS(written);
    for (const StepEvent& event : events) bar.update(event.computed_tokens, n_tokens);
  }
  engine->cancel(id);
  if (output) {
    PUMICE_TRY_STATUS(output->finish());
    print_message("{}: {} positions x {} logits\n", options.output, n_tokens,
                  opened.model->program.n_vocab);
  }
  if (options.model.profile) print_message(std::string_view(engine->profiler().table()));
  if (options.score) {
    PUMICE_TRY_STATUS(print_output(nlohmann::json{{"scores", scores}}.dump() + "\n"));
  }
  if (!comparison) return {};
  return comparison->finish(options.max_nmse_option->count() > 0 ? &options.max_nmse : nullptr);
}

}  // namespace

Command add_logits(CLI::App& app) {
  auto options = std::make_shared<LogitsOptions>();
  CLI::App* command =
      app.add_subcommand("logits", "Write the logits of every position of a prompt");
  options->model.add_to(*command, "f32", "f32");
  options->model.add_batch_sizes(*command);
  CLI::Option* tokens = command->add_option("--tokens", options->tokens, "Token ids, as 1,2,3");
  options->tokens_option = tokens;
  options->prompt_option = command->add_option("-p,--prompt", options->prompt, "The prompt");
  options->prompt_option->excludes(tokens);
  command->add_option("-f,--file", options->file, "Read the prompt from a file")
      ->excludes(tokens)
      ->excludes(options->prompt_option);
  command->add_option("-o,--output", options->output,
                      "Where to write float32 [positions][vocabulary], little-endian");
  CLI::Option* compare =
      command->add_option("--compare", options->reference,
                          "A file like the output's, made elsewhere: print how far the logits are");
  options->max_nmse_option =
      command
          ->add_option("--max-nmse", options->max_nmse,
                       "With --compare: a normalised mean-square error beyond this is exit code 6")
          ->check(number_in(0, kMostNumber))
          ->needs(compare);
  command->add_flag("--score", options->score,
                    "Print the log probability of each token but the first, as JSON (scores)");
  add_invariant(*command, options->invariant);
  command->footer("Example: pumice logits -m model.gguf --tokens 1,403,407 -o out.f32");
  return {command, [options] { return logits(*options); }};
}

}  // namespace pumice::tools
