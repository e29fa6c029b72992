// pumice perplexity: how well a model predicts a text, and how far its predictions are from another
// model's.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "base/path.hpp"
#include "bench/base_distributions.hpp"
#include "bench/perplexity.hpp"
#include "bench/statistics.hpp"
#include "models/vocabulary_loader.hpp"
#include "tools/command.hpp"
#include "tools/interrupt.hpp"
#include "tools/model_options.hpp"
#include "tools/terminal.hpp"

namespace pumice::tools {
namespace {

using bench::TextWindows;

constexpr uint32_t kDefaultWindow = 512;

struct PerplexityOptions {
  ModelOptions model;
  std::string file;
  uint32_t max_windows = 0;  // 0: all
  std::string base;
  bool json = false;
};

/// What is kept of each row.
struct Scores {
  std::vector<double> nll;
  std::vector<bench::RowDivergence> divergences;  // with a base only
};

/// Of the text in options.file.
Result<TextWindows> windows_of(const PerplexityOptions& options, const Tokenizer& tokenizer,
                               uint32_t window_tokens) {
  PUMICE_TRY(std::string text, read_prompt(nullptr, options.file));
  const std::string source = options.file.empty() ? "standard input" : options.file;
  if (text.empty()) {
    return make_error(ErrorCode::kInvalidArgument,
                      "{} is empty: there is nothing to score; give a text with -f FILE", source);
  }
  if (text.ends_with('\n')) text.pop_back();  // as llama.cpp reads files
  TextWindows windows{.window_tokens = window_tokens};
  PUMICE_TRY(windows.tokens, tokenizer.encode(text));
  if (windows.count() == 0) {
    return make_error(ErrorCode::kInvalidArgument,
                      "{}: the text has {} tokens, less than one window of {}; give a longer one "
                      "or a smaller -c",
                      source, windows.tokens.size(), window_tokens);
  }
  return windows;
}

/// Of the base where there is one, else of the text.
Result<TextWindows> choose_windows(const PerplexityOptions& options, const Tokenizer& tokenizer,
                                   uint32_t trained_tokens,
                                   const std::optional<bench::BaseReader>& base) {
  uint32_t window_tokens = options.model.context_tokens;
  if (base) {
    if (window_tokens != 0 && window_tokens != base->windows().window_tokens) {
      return make_error(ErrorCode::kInvalidArgument, "-c {}: {} was made with -c {}", window_tokens,
                        options.base, base->windows().window_tokens);
    }
    window_tokens = base->windows().window_tokens;
  } else if (window_tokens == 0) {
    window_tokens = std::min(kDefaultWindow, trained_tokens);
  }
  if (window_tokens < TextWindows::kLeastWindow) {
    return make_error(ErrorCode::kInvalidArgument, "-c {}: windows have at least {} tokens",
                      window_tokens, TextWindows::kLeastWindow);
  }
  TextWindows windows;
  if (base && options.file.empty()) {
    windows = base->windows();
  } else {
    PUMICE_TRY(windows, windows_of(options, tokenizer, window_tokens));
    const size_t n_tokens = base ? base->windows().tokens.size() : 0;
    if (base && (windows.tokens.size() < n_tokens ||
                 !std::equal(base->windows().tokens.begin(), base->windows().tokens.end(),
                             windows.tokens.begin()))) {
      return make_error(ErrorCode::kInvalidArgument,
                        "{}: its tokens are not those that {} was made from (leave out -f to use "
                        "those)",
                        options.file, options.base);
    }
    if (base) windows.tokens.resize(n_tokens);
  }
  const Vocabulary& vocabulary = tokenizer.vocabulary();
  if (vocabulary.add_bos()) windows.bos = vocabulary.bos();
  if (options.max_windows != 0 && options.max_windows < windows.count()) {
    windows.tokens.resize(size_t{options.max_windows} * window_tokens);
  }
  return windows;
}

template <typename Project>
std::vector<double> column(const std::vector<bench::RowDivergence>& rows, const Project& project) {
  std::vector<double> values;
  values.reserve(rows.size());
  for (const bench::RowDivergence& row : rows) values.push_back(project(row));
  return values;
}

struct Divergence {
  bench::Mean kl;
  std::vector<double> sorted_kl;
  bench::Perplexity base;
  bench::Mean delta_p;
  double delta_p_rms = 0;
  bench::Mean same_top;
};

Divergence summarize(const std::vector<bench::RowDivergence>& rows) {
  Divergence all;
  all.sorted_kl = column(rows, [](const auto& row) { return row.kl; });
  all.kl = bench::mean_of(all.sorted_kl);
  std::ranges::sort(all.sorted_kl);
  all.base = bench::perplexity_of(column(rows, [](const auto& row) { return row.base_nll; }));
  all.delta_p = bench::mean_of(column(rows, [](const auto& row) { return row.delta_p; }));
  all.delta_p_rms = std::sqrt(bench::mean_of(column(rows, [](const auto& row) {
                                return row.delta_p * row.delta_p;
                              })).value);
  all.same_top =
      bench::mean_of(column(rows, [](const auto& row) { return row.same_top ? 1.0 : 0.0; }));
  return all;
}

Status print_result(const PerplexityOptions& options, const TextWindows& windows,
                    const Scores& scores) {
  const bench::Perplexity perplexity = bench::perplexity_of(scores.nll);
  std::optional<Divergence> divergence;
  if (!scores.divergences.empty()) divergence = summarize(scores.divergences);
  if (options.json) {
    nlohmann::json json = {{"model", options.model.model_name()},  {"perplexity", perplexity.value},
                           {"perplexity_error", perplexity.error}, {"nll", perplexity.nll},
                           {"tokens", scores.nll.size()},          {"windows", windows.count()},
                           {"n_ctx", windows.window_tokens}};
    if (divergence) {
      const auto at = [&](double q) { return bench::quantile(divergence->sorted_kl, q); };
      json["kl_divergence"] = {{"mean", divergence->kl.value},
                               {"error", divergence->kl.error},
                               {"median", at(0.5)},
                               {"p90", at(0.9)},
                               {"p99", at(0.99)},
                               {"p99.9", at(0.999)},
                               {"max", divergence->sorted_kl.back()}};
      json["base_perplexity"] = divergence->base.value;
      json["same_top"] = divergence->same_top.value;
      json["delta_p"] = {{"mean", divergence->delta_p.value}, {"rms", divergence->delta_p_rms}};
    }
    return print_output(json.dump(2) + "\n");
  }
  std::string text = fmt::format("perplexity {:.4f} ± {:.4f} over {} tokens ({} windows of {})\n",
                                 perplexity.value, perplexity.error, scores.nll.size(),
                                 windows.count(), windows.window_tokens);
  if (divergence) {
    const auto at = [&](double q) { return bench::quantile(divergence->sorted_kl, q); };
    text += fmt::format(
        "base's perplexity {:.4f}, ratio {:.4f}\n"
        "KL divergence {:.6f} ± {:.6f}, median {:.6f}, 90 % {:.6f}, 99 % {:.6f}, largest {:.6f}\n"
        "same likeliest token {:.2f} ± {:.2f} %\n"
        "change of the right token's probability {:+.3f} % in the mean, {:.3f} % rms\n",
        divergence->base.value, perplexity.value / divergence->base.value, divergence->kl.value,
        divergence->kl.error, at(0.5), at(0.9), at(0.99), divergence->sorted_kl.back(),
        100 * divergence->same_top.value, 100 * divergence->same_top.error,
        100 * divergence->delta_p.value, 100 * divergence->delta_p_rms);
  }
  return print_output(text);
}

Status perplexity(PerplexityOptions options) {
  const Logger logger = stderr_logger(options.model.verbose);
  if (options.model.device.list) return print_devices(logger);
  PUMICE_TRY_STATUS(options.model.validate());
  PUMICE_TRY_STATUS(options.model.resolve());
  PUMICE_TRY(const GgufFile file, GgufFile::open(from_utf8(options.model.model)));
  PUMICE_TRY(const Tokenizer tokenizer, load_tokenizer(file));
  std::error_code ignored;
  const bool has_base =
      !options.base.empty() && std::filesystem::exists(from_utf8(options.base), ignored);
  std::optional<bench::BaseReader> reader;
  if (has_base) {
    PUMICE_TRY(reader, bench::BaseReader::open(from_utf8(options.base)));
  }
  PUMICE_TRY(const std::shared_ptr<const ModelPlan> plan, ModelPlan::of_source(file));
  const Program& program = plan->program();
  PUMICE_TRY(const TextWindows windows,
             choose_windows(options, tokenizer, program.context_length, reader));
  if (reader && reader->n_vocab() != program.n_vocab) {
    return make_error(ErrorCode::kBadFile, "{}: made with {} tokens, the model has {}",
                      options.base, reader->n_vocab(), program.n_vocab);
  }
  if (windows.window_tokens > program.context_length) {
    logger.warning("windows of {} tokens: the model was made for {}", windows.window_tokens,
                   program.context_length);
  }
  PUMICE_TRY(const host::OpenedModel opened, open_model(options.model, file, logger, {}, plan));
  PUMICE_TRY(
      const std::unique_ptr<Engine> engine,
      make_engine(opened, window_options(windows, {.kv_type = options.model.kv_type(),
                                                   .math = options.model.math_kind(),
                                                   .token_budget = options.model.token_budget,
                                                   .chunk_tokens = options.model.chunk_tokens,
                                                   .profile = options.model.profile})));
  const InterruptGuard interrupt;  // before a file exists: an interrupted run removes it
  std::optional<bench::BaseWriter> writer;
  if (!options.base.empty() && !reader) {
    PUMICE_TRY(writer,
               bench::BaseWriter::create(from_utf8(options.base), windows, program.n_vocab));
  }
  Scores scores{.nll = std::vector<double>(windows.n_rows())};
  if (reader) scores.divergences.resize(windows.n_rows());
  const auto score = [&](size_t row, std::span<const float> logits) -> Status {
    const double nll = -bench::LogSoftmax(logits).of(logits[windows.target(row)]);
    if (!std::isfinite(nll)) {
      return make_error(ErrorCode::kInternal, "the model's logits at row {} are NaN or infinite",
                        row);
    }
    scores.nll[row] = nll;
    if (writer) PUMICE_TRY_STATUS(writer->write(row, logits));
    if (reader) {
      PUMICE_TRY(scores.divergences[row], reader->compare(row, logits));
    }
    return {};
  };
  ProgressBar bar("scoring");
  const auto start = std::chrono::steady_clock::now();
  const auto progress = [&](size_t n_rows) {
    bar.update(n_rows, windows.n_rows());
    return !InterruptGuard::interrupted();
  };
  PUMICE_TRY_STATUS(for_each_row(*engine, windows, score, progress));
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  if (writer) {
    PUMICE_TRY_STATUS(writer->finish());
    print_message("{}: written, to compare other models' predictions with by --kl-base\n",
                  options.base);
  }
  print_message("{} tokens in {:.1f} s, {:.1f} tok/s\n",
                windows.count() * size_t{windows.window_tokens}, seconds.count(),
                windows.count() * static_cast<double>(windows.window_tokens) / seconds.count());
  if (options.model.profile) print_message(std::string_view(engine->profiler().table()));
  return print_result(options, windows, scores);
}

}  // namespace

Command add_perplexity(CLI::App& app) {
  auto options = std::make_shared<PerplexityOptions>();
  CLI::App* command = app.add_subcommand(
      "perplexity", "How well a model predicts a text, and how far apart two models are");
  options->model.add_to(*command, "f32", "f32");
  options->model.add_batch_sizes(*command);
  command->get_option("--ctx-size")
      ->description("Tokens of a window, the second half of which is scored (default: 512)")
      ->check(CLI::Range(1u, 1u << 24));
  command->add_option("-f,--file", options->file, "The text (default: standard input)");
  command->add_option("--chunks", options->max_windows, "Score no more windows than this")
      ->check(CLI::Range(1u, 1u << 30));
  command->add_option(
      "--kl-base", options->base,
      "Compare with the predictions in this file, of a better model; where it does not exist, "
      "write them. llama.cpp's --kl-divergence-base makes the same file");
  command->add_flag("--json", options->json, "Print the result as JSON");
  command->footer(
      "Windows, scored positions and so the numbers are those of llama.cpp's perplexity tool.\n"
      "Examples:\n"
      "  pumice perplexity -m model-q4.gguf -f wiki.test.raw\n"
      "  pumice perplexity -m model-f16.gguf -f wiki.test.raw --kl-base f16.kld   # writes it\n"
      "  pumice perplexity -m model-q4.gguf --kl-base f16.kld                     # compares");
  return {command, [options] { return perplexity(*options); }};
}

}  // namespace pumice::tools
