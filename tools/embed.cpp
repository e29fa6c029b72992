// pumice embed: texts to vectors.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/ascii.hpp"
#include "base/path.hpp"
#include "models/embedding.hpp"
#include "models/vocabulary_loader.hpp"
#include "text/utf8.hpp"
#include "tools/command.hpp"
#include "tools/flags.hpp"
#include "tools/interrupt.hpp"
#include "tools/model_options.hpp"
#include "tools/terminal.hpp"

namespace pumice::tools {
namespace {

constexpr size_t kTextsAtOnce = 256;  // then their vectors are printed

struct EmbedOptions {
  ModelOptions model;
  std::vector<std::string> prompts;
  std::string file;
  std::string tokens;
  CLI::Option* tokens_option = nullptr;
  std::string pooling;
  bool no_normalize = false;
  bool json = false;
  bool invariant = false;
};

/// A text, and where it came from: "text 2", "texts.txt, line 2".
struct Text {
  std::string place;
  std::string text;
};

std::vector<Text> lines_of(std::string_view text, const std::string& source) {
  std::vector<Text> lines;
  while (!text.empty()) {
    std::string_view line = take_part(text, '\n');
    if (line.ends_with('\r')) line.remove_suffix(1);
    lines.push_back({fmt::format("{}, line {}", source, lines.size() + 1), std::string(line)});
  }
  return lines;
}

Result<std::vector<Text>> texts_of(const EmbedOptions& options) {
  std::vector<Text> texts;
  for (const std::string& prompt : options.prompts) {
    texts.push_back({fmt::format("text {}", texts.size() + 1), prompt});
  }
  if (!texts.empty()) return texts;
  PUMICE_TRY(const std::string all, read_prompt(nullptr, options.file));
  const std::string source = options.file.empty() ? "standard input" : options.file;
  if (!all.empty()) return lines_of(all, source);
  return make_error(ErrorCode::kInvalidArgument,
                    "{} is empty: give texts, one per line, or one with -p TEXT", source);
}

Status check_text(const Text& text) {
  if (text.text.empty()) {
    return make_error(ErrorCode::kInvalidArgument,
                      "{} is empty: an empty text has no embedding; leave it out", text.place);
  }
  for (size_t at = 0; at < text.text.size();) {
    const Utf8Step step = utf8_step(std::string_view(text.text).substr(at));
    if (step.kind != Utf8Kind::kComplete) {
      return make_error(ErrorCode::kInvalidArgument,
                        "{}: byte {} is not UTF-8, which embedding models are trained on; convert "
                        "it (iconv -t UTF-8)",
                        text.place, at + 1);
    }
    at += step.length;
  }
  return {};
}

/// What the model reads, and where each came from.
struct Inputs {
  std::vector<std::string> places;
  std::vector<std::vector<TokenId>> tokens;
};

Result<Inputs> inputs_of(const EmbedOptions& options, const GgufFile& file) {
  Inputs inputs;
  if (options.tokens_option->count() > 0) {
    PUMICE_TRY(inputs.tokens.emplace_back(), parse_numbers("--tokens", options.tokens));
    inputs.places.emplace_back("--tokens");
    return inputs;
  }
  PUMICE_TRY(const std::vector<Text> texts, texts_of(options));
  PUMICE_TRY(const Tokenizer tokenizer, load_tokenizer(file));
  for (const Text& text : texts) {
    PUMICE_TRY_STATUS(check_text(text));
    PUMICE_TRY(inputs.tokens.emplace_back(), tokenizer.encode(text.text, {.parse_special = true}));
    inputs.places.push_back(text.place);
  }
  return inputs;
}

/// The longest, in tokens. Errors: one that has none, or more than the model takes.
Result<uint32_t> longest_of(const Inputs& inputs, const Program& program, uint32_t context) {
  const uint32_t most = longest_text(program, context);
  size_t longest = 0;
  for (size_t i = 0; i < inputs.tokens.size(); ++i) {
    const size_t n = inputs.tokens[i].size();
    if (n == 0) {
      return make_error(ErrorCode::kInvalidArgument, "{} has no tokens; leave it out",
                        inputs.places[i]);
    }
    longest = std::max(longest, n);
    if (n <= most) continue;
    const bool can_be_longer = longest_text(program, static_cast<uint32_t>(n)) == n;
    return make_error(ErrorCode::kDoesNotFit,
                      "{}: {} tokens, {} more than the {} that {}; shorten it, or embed it in "
                      "parts{}",
                      inputs.places[i], n, n - most, most,
                      context == 0 ? "the model was trained for" : "there is room for",
                      can_be_longer ? fmt::format(" (-c {} goes beyond it anyway)", n) : "");
  }
  return static_cast<uint32_t>(longest);
}

std::string numbers(std::span<const float> vector, std::string_view separator) {
  return fmt::format("{}", fmt::join(vector, separator));
}

std::string vector_text(std::span<const float> values, size_t width) {
  std::string text;
  for (; !values.empty(); values = values.subspan(width)) {
    text += numbers(values.first(width), " ") + "\n";
  }
  return text;
}

std::string vector_json(std::span<const float> values, size_t width, Pooling pooling, size_t index,
                        size_t n_tokens, bool normalised) {
  std::vector<std::string> vectors;
  for (; !values.empty(); values = values.subspan(width)) {
    vectors.push_back(fmt::format("[{}]", numbers(values.first(width), ",")));
  }
  const std::string all = fmt::format("{}", fmt::join(vectors, ","));
  return fmt::format(
      "{{\"index\":{},\"tokens\":{},\"pooling\":\"{}\",\"normalized\":{},\"embedding\":{}}}\n",
      index, n_tokens, pooling_name(pooling), normalised,
      pooling == Pooling::kNone ? fmt::format("[{}]", all) : all);
}

Status embed(EmbedOptions options) {
  const Logger logger = stderr_logger(options.model.verbose);
  if (options.model.device.list) return print_devices(logger);
  PUMICE_TRY_STATUS(options.model.resolve());
  PUMICE_TRY_STATUS(options.model.validate());
  PUMICE_TRY(const GgufFile file, GgufFile::open(from_utf8(options.model.model)));
  std::optional<Pooling> wanted;
  if (!options.pooling.empty()) {
    PUMICE_TRY(wanted, parse_pooling(options.pooling));
  }
  PUMICE_TRY(Program program, build_embedding_program(file, wanted));
  if (program.relevant_label) {
    return make_error(ErrorCode::kInvalidArgument,
                      "the model ranks texts and gives no embeddings; pumice serve answers "
                      "/v1/rerank with it");
  }
  PUMICE_TRY(const std::shared_ptr<const ModelPlan> plan,
             ModelPlan::of_program(file, std::move(program)));
  const Pooling pooling = *plan->program().pooling;
  PUMICE_TRY(const Inputs inputs, inputs_of(options, file));
  PUMICE_TRY(const uint32_t longest,
             longest_of(inputs, plan->program(), options.model.context_tokens));
  size_t n_tokens = 0;
  for (const auto& tokens : inputs.tokens) n_tokens += tokens.size();
  PUMICE_TRY(const host::OpenedModel opened, open_model(options.model, file, logger, {}, plan));
  // No more room than these texts need.
  const EmbedderOptions embedder_options{
      .kv_type = options.model.kv_type(),
      .math = options.model.math_kind(),
      .text_tokens = longest,
      .step_tokens = static_cast<uint32_t>(std::min<size_t>(options.model.token_budget, n_tokens)),
      .invariant = options.invariant};
  std::unique_ptr<Embedder> embedder;
  {
    ProgressBar bar("compiling kernels");
    PUMICE_TRY(embedder, opened.make_embedder(embedder_options, [&](size_t done, size_t total) {
      bar.update(done, total);
    }));
  }
  const InterruptGuard interrupt;
  ProgressBar bar("embedding");
  const std::span<const std::vector<TokenId>> all = inputs.tokens;
  for (size_t first = 0; first < all.size(); first += kTextsAtOnce) {
    const auto texts = all.subspan(first, std::min(kTextsAtOnce, all.size() - first));
    PUMICE_TRY(std::vector<std::vector<float>> vectors, embedder->embed(texts, [&](size_t done) {
      bar.update(first + done, all.size());
      return !InterruptGuard::interrupted();
    }));
    std::string text;
    for (size_t i = 0; i < vectors.size(); ++i) {
      if (!options.no_normalize) normalise(vectors[i], embedder->width());
      text += options.json ? vector_json(vectors[i], embedder->width(), pooling, first + i,
                                         texts[i].size(), !options.no_normalize)
                           : vector_text(vectors[i], embedder->width());
    }
    PUMICE_TRY_STATUS(print_output(text));
  }
  return {};
}

}  // namespace

Command add_embed(CLI::App& app) {
  auto options = std::make_shared<EmbedOptions>();
  CLI::App* command = app.add_subcommand("embed", "Turn texts into vectors, with a model for that");
  options->model.add_to(*command, "auto", "f32");
  command->remove_option(command->get_option("--profile"));
  add_number(*command, "-b,--batch-size", options->model.token_budget, kKvBlockTokens, 1u << 16,
             "Maximum tokens computed in one step, of whole texts")
      ->envname("PUMICE_BATCH_SIZE");
  CLI::Option* prompt =
      command->add_option("-p,--prompt", options->prompts, "A text; may be given several times");
  prompt->allow_extra_args(false);
  CLI::Option* file =
      command
          ->add_option("-f,--file", options->file,
                       "Read texts from a file, one per line (without -p and -f: standard input)")
          ->excludes(prompt);
  options->tokens_option =
      command->add_option("--tokens", options->tokens, "Token ids of one text, as 1,2,3")
          ->excludes(prompt)
          ->excludes(file);
  command
      ->add_option(
          "--pooling", options->pooling,
          "How the vectors of a text's tokens are pooled: mean, cls (the first), last, or none "
          "(all of them); default: what the file says")
      ->check(CLI::IsMember({"none", "mean", "cls", "last"}));
  command->add_flag("--no-normalize", options->no_normalize,
                    "Keep vectors as the model gives them instead of scaling them to length 1");
  command->add_flag("--json", options->json,
                    "Print one JSON object per text, on a line: embedding, tokens, pooling");
  add_invariant(*command, options->invariant);
  command->footer("Example: pumice embed -m bge-small.gguf -p \"Once upon a time\" --json");
  return {command, [options] { return embed(*options); }};
}

}  // namespace pumice::tools
