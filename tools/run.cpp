// pumice run: continue a prompt, streaming text to stdout.
#include <fmt/format.h>

#include <cctype>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <random>

#include "models/vocabulary_loader.hpp"
#include "text/detokenizer.hpp"
#include "tools/command.hpp"
#include "tools/session.hpp"
#include "tools/terminal.hpp"

namespace pumice::tools {
namespace {

using Clock = std::chrono::steady_clock;

struct RunOptions {
  ModelOptions model;
  std::string prompt;
  std::string file;
  CLI::Option* prompt_option = nullptr;
  uint32_t n_predict = 128;
  int64_t seed = -1;
  SamplerOptions sampling{.temperature = 0.8f, .top_k = 40, .top_p = 0.95f, .min_p = 0.05f};
  bool ignore_eos = false;
  bool json = false;
};

struct Timings {
  size_t prompt_tokens = 0;
  size_t new_tokens = 0;
  double ttft_ms = 0;    ///< request to first token
  double decode_ms = 0;  ///< first token to last

  double prefill_rate() const {
    return ttft_ms > 0 ? 1e3 * static_cast<double>(prompt_tokens) / ttft_ms : 0;
  }
  /// The first token belongs to the prefill.
  double decode_rate() const {
    return new_tokens > 1 && decode_ms > 0 ? 1e3 * static_cast<double>(new_tokens - 1) / decode_ms
                                           : 0;
  }
};

struct Generation {
  std::string text;
  std::vector<TokenId> tokens;
  Timings timings;
  bool interrupted = false;
};

double milliseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

/// Steps the engine until the request ends; `emit` gets text as it becomes complete and says
/// whether anyone still listens.
Result<Generation> generate(Engine& engine, GenerationRequest request, const Tokenizer& tokenizer,
                            bool ignore_eos, const std::function<bool(std::string_view)>& emit) {
  Generation generation;
  generation.timings.prompt_tokens = request.prompt.size();
  Detokenizer detokenizer(tokenizer);
  const InterruptGuard interrupt;
  ProgressBar bar("reading the prompt");
  const auto start = Clock::now();
  PUMICE_TRY(const RequestId id, engine.submit(std::move(request)));
  bool listening = true;
  const auto add_text = [&](const std::string& text) {
    generation.text += text;
    if (!text.empty()) listening = emit(text);
  };
  while (!engine.idle() && listening) {
    if (InterruptGuard::interrupted()) {
      generation.interrupted = true;
      break;
    }
    PUMICE_TRY(const std::vector<StepEvent> events, engine.step());
    PUMICE_CHECK(!events.empty(), "the engine is not idle and did nothing");
    for (const StepEvent& event : events) {
      if (!event.token) {
        bar.update(event.computed_tokens, generation.timings.prompt_tokens);
        continue;
      }
      if (generation.timings.ttft_ms == 0) generation.timings.ttft_ms = milliseconds_since(start);
      if (!ignore_eos && tokenizer.vocabulary().ends_generation(*event.token)) {
        listening = false;
        break;
      }
      generation.timings.decode_ms = milliseconds_since(start) - generation.timings.ttft_ms;
      generation.tokens.push_back(*event.token);
      add_text(detokenizer.feed(*event.token));
    }
  }
  engine.cancel(id);
  add_text(detokenizer.flush());
  generation.timings.new_tokens = generation.tokens.size();
  return generation;
}

nlohmann::json to_json(const Generation& generation, const Engine& engine, const DevicePlan& plan,
                       uint64_t seed) {
  const Timings& t = generation.timings;
  return {{"text", generation.text},
          {"tokens", generation.tokens},
          {"seed", seed},
          {"timings",
           {{"prompt_n", t.prompt_tokens},
            {"prompt_ms", t.ttft_ms},
            {"prompt_per_second", t.prefill_rate()},
            {"ttft_ms", t.ttft_ms},
            {"predicted_n", t.new_tokens},
            {"predicted_ms", t.decode_ms},
            {"predicted_per_second", t.decode_rate()}}},
          {"variants", engine.variants()},
          {"limit", format_plan_options(plan.limits)}};
}

void print_rates(const Timings& t) {
  fmt::print(
      stderr,
      "\nprompt {} tokens, TTFT {:.1f} ms, prefill {:.1f} tok/s, decode {} tokens {:.1f} tok/s\n",
      t.prompt_tokens, t.ttft_ms, t.prefill_rate(), t.new_tokens, t.decode_rate());
}

Status run(RunOptions options) {
  if (options.model.device.list) return print_devices(stderr_logger(options.model.verbose));
  PUMICE_TRY_STATUS(options.model.validate());
  const Logger logger = stderr_logger(options.model.verbose);
  PUMICE_TRY(
      const std::string text,
      read_prompt(options.prompt_option->count() > 0 ? &options.prompt : nullptr, options.file));
  PUMICE_TRY(const GgufFile file, GgufFile::open(options.model.model));
  PUMICE_TRY(const Tokenizer tokenizer, load_tokenizer(file));
  PUMICE_TRY_STATUS(options.sampling.validate(tokenizer.vocabulary().size()));
  PUMICE_TRY(std::vector<TokenId> prompt, tokenizer.encode(text, {.parse_special = true}));
  if (prompt.empty()) return make_error(ErrorCode::kInvalidArgument, "the prompt has no tokens");
  logger.info("prompt: {} bytes, {} tokens", text.size(), prompt.size());

  const uint64_t seed =
      options.seed >= 0 ? static_cast<uint64_t>(options.seed) : std::random_device{}();
  options.sampling.seed = seed;
  EngineOptions engine_options{.kv_type = options.model.kv_type(),
                               .math = options.model.math_kind(),
                               .token_budget = options.model.token_budget,
                               .chunk_tokens = options.model.chunk_tokens,
                               .greedy_only = is_plain_greedy(options.sampling),
                               .profile = options.model.profile};
  PUMICE_TRY(const Session session, Session::open(options.model, file, logger));
  PUMICE_TRY(engine_options.context_tokens,
             context_for(options.model, session.model->config(), prompt.size(), options.n_predict));
  PUMICE_TRY(const std::unique_ptr<Engine> engine, session.make_engine(engine_options, logger));

  const auto stream = [&](std::string_view piece) {
    if (options.json) return true;
    return std::fwrite(piece.data(), 1, piece.size(), stdout) == piece.size() &&
           std::fflush(stdout) == 0;
  };
  PUMICE_TRY(const Generation generation, generate(*engine,
                                                   {.prompt = std::move(prompt),
                                                    .max_new_tokens = options.n_predict,
                                                    .sampling = options.sampling},
                                                   tokenizer, options.ignore_eos, stream));
  if (options.json) {
    using Json = nlohmann::json;
    const Json json = to_json(generation, *engine, session.device->plan(), seed);
    fmt::print("{}\n", json.dump(-1, ' ', false, Json::error_handler_t::replace));
  }
  print_rates(generation.timings);
  if (options.model.profile) fmt::print(stderr, "{}", engine->profiler().table());
  if (generation.interrupted) return make_error(ErrorCode::kCancelled, "interrupted");
  return {};
}

}  // namespace

Command add_run(CLI::App& app) {
  auto options = std::make_shared<RunOptions>();
  CLI::App* command = app.add_subcommand("run", "Continue a prompt");
  options->model.add_to(*command, "auto", "f16");
  options->prompt_option =
      command->add_option("-p,--prompt", options->prompt, "The prompt (or -f, or standard input)");
  command->add_option("-f,--file", options->file, "Read the prompt from a file")
      ->excludes(options->prompt_option);
  command->add_option("-n,--predict", options->n_predict, "Most tokens to generate")
      ->envname("PUMICE_PREDICT")
      ->capture_default_str()
      ->check(CLI::Range(1u, 1u << 24));
  command
      ->add_option("-s,--seed", options->seed,
                   "Seed; the same seed gives the same text (-1: random)")
      ->envname("PUMICE_SEED")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{-1}, int64_t{1} << 62));
  SamplerOptions& sampling = options->sampling;
  const auto sampler = [&](const std::string& name, auto& value, const char* help) {
    std::string variable = "PUMICE_";  // --top-k is PUMICE_TOP_K
    for (const char c : name.substr(2)) {
      variable += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    }
    command->add_option(name, value, help)
        ->envname(variable)
        ->capture_default_str()
        ->group("Sampling");
  };
  sampler("--temp", sampling.temperature, "Temperature; 0 always takes the likeliest token");
  sampler("--top-k", sampling.top_k, "Keep the k likeliest tokens (0: all)");
  sampler("--top-p", sampling.top_p, "Keep the likeliest tokens up to this mass (1: all)");
  sampler("--min-p", sampling.min_p,
          "Drop tokens less likely than this times the likeliest (0: none)");
  sampler("--repeat-penalty", sampling.repeat_penalty,
          "Divide the logits of tokens seen before (1: off)");
  sampler("--frequency-penalty", sampling.frequency_penalty,
          "Subtract this for each earlier occurrence");
  sampler("--presence-penalty", sampling.presence_penalty,
          "Subtract this from tokens already generated");
  command->add_flag("--ignore-eos", options->ignore_eos, "Go on after the end-of-text token")
      ->group("Sampling");
  command->add_flag(
      "--json", options->json,
      "Print one JSON object (text, tokens, timings, variants, limit) instead of streaming");
  command->footer(
      "Examples:\n"
      "  pumice run -m model.gguf -p \"Once upon a time\" -n 100\n"
      "  pumice run -m model.gguf -f story.txt --temp 0 --json\n"
      "  echo \"The little dog\" | pumice run -m model.gguf");
  return {command, [options] { return run(*options); }};
}

}  // namespace pumice::tools
