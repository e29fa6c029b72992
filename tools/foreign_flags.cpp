#include "tools/foreign_flags.hpp"

#include <algorithm>

namespace pumice::tools {
namespace {

using enum ForeignFlag::Takes;
using enum ForeignFlag::Use;

constexpr std::string_view kOnDevice = "all layers run on the device";
constexpr std::string_view kThreads =
    "the device does the work; Mesa's CPU driver reads LP_NUM_THREADS";
constexpr std::string_view kOneDevice = "a model runs on one device (--device)";
constexpr std::string_view kCopied = "weights are copied to the device either way";
constexpr std::string_view kPlacement =
    "weights that do not fit on the device stay in host memory automatically";
constexpr std::string_view kBatches = "requests share the device's steps anyway";
constexpr std::string_view kOneRequest = "this command runs one request at a time";
constexpr std::string_view kLogs = "logs are written to stderr, and only with -v";
constexpr std::string_view kPlain = "text is printed as it comes";
constexpr std::string_view kRates = "rates are printed to stderr anyway";
constexpr std::string_view kNoDraft =
    "run and chat have --spec, -md and --draft-max; the text is the same without";
constexpr std::string_view kFileSaysRope = "rope scaling is what the model file says";
constexpr std::string_view kNoSuchSampler =
    "there is no such sampler; there are --temp --top-k --top-p --min-p and the three penalties";
constexpr std::string_view kNoControlVectors = "control vectors are not supported";
constexpr std::string_view kNoImages = "images and sound are not supported";
constexpr std::string_view kTemplates = "chat templates are always rendered as Jinja";
constexpr std::string_view kNoScores = "there is no such test; perplexity and --kl-base are there";

constexpr ForeignFlag kForeignFlags[] = {
    // The same by another name.
    {"--temperature", kValue, kAlias, "--temp"},
    {"--n-predict --num-predict --max-tokens", kValue, kAlias, "--predict --n-gen"},
    {"--num-ctx --n-ctx", kValue, kAlias, "--ctx-size"},
    {"--prompt-file", kValue, kAlias, "--file"},
    {"--system", kValue, kAlias, "--system-prompt"},
    {"--chat-template-file", kValue, kAlias, "--chat-template"},
    {"-mg --main-gpu", kValue, kAlias, "--device"},
    {"-r --reverse-prompt", kValue, kAlias, "--stop"},
    {"-a --alias", kValue, kIgnored, "models are called by their file or hub name"},
    {"--context-shift", kNothing, kAlias, "--overflow shift"},
    {"--no-context-shift", kNothing, kAlias, "--overflow stop"},
    {"--no-cache-prompt", kNothing, kAlias, "--no-prefix-cache"},
    {"--hidethinking", kNothing, kAlias, "--hide-reasoning"},
    {"--repeat_penalty", kValue, kAlias, "--repeat-penalty"},
    {"--top_k", kValue, kAlias, "--top-k"},
    {"--top_p", kValue, kAlias, "--top-p"},
    {"--min_p", kValue, kAlias, "--min-p"},
    // Where the work is done.
    {"-ngl --gpu-layers --n-gpu-layers", kValue, kIgnored, kOnDevice},
    {"-nkvo --no-kv-offload --kv-offload", kSwitch, kIgnored,
     "keys and values are always on the device"},
    {"-nopo --no-op-offload --op-offload", kSwitch, kIgnored, kOnDevice},
    {"-fa --flash-attn", kSwitch, kIgnored, "the attention kernel is chosen for the device"},
    {"-sm --split-mode", kValue, kIgnored, kOneDevice},
    {"-ts --tensor-split", kValue, kIgnored, kOneDevice},
    {"-t --threads -tb --threads-batch -td --threads-draft", kValue, kIgnored, kThreads},
    {"-C --cpu-mask -Cr --cpu-range --cpu-strict --poll --poll-batch --prio --prio-batch --numa",
     kValue, kIgnored, kThreads},
    {"--mlock", kNothing, kIgnored, kCopied},
    {"--mmap --no-mmap -mmp -dio --direct-io --no-direct-io", kSwitch, kIgnored, kCopied},
    {"-ncmoe --n-cpu-moe -ot --override-tensor", kValue, kIgnored, kPlacement},
    {"-cmoe --cpu-moe --no-repack -nr", kNothing, kIgnored, kPlacement},
    {"-fit --fit", kSwitch, kIgnored, kPlacement, "run chat bench embed perplexity logits"},
    {"--rpc", kValue, kRefused, "other machines cannot take part"},
    // How it is cut.
    {"-np --parallel", kValue, kIgnored, kOneRequest},
    {"-cb --cont-batching -nocb --no-cont-batching -kvu --kv-unified", kNothing, kIgnored,
     kBatches},
    {"--warmup --no-warmup", kNothing, kIgnored, "tests are warmed up before they are timed",
     "bench"},
    {"--warmup --no-warmup", kNothing, kIgnored,
     "kernels are compiled before the first token anyway"},
    {"--swa-full", kNothing, kIgnored, "the cache keeps what later requests can use"},
    {"--prompt-cache-all", kNothing, kIgnored, "the cache keeps answers as well as prompts"},
    {"--prompt-cache-ro", kNothing, kRefused, "the file is always brought up to date"},
    {"--keepalive", kValue, kIgnored, "the model leaves memory when the program ends"},
    {"-md --model-draft --draft --draft-n --draft-max --draft-min --draft-p-min -ngld "
     "--gpu-layers-draft -cd --ctx-size-draft -devd --device-draft",
     kValue, kIgnored, kNoDraft},
    // What is printed.
    {"--color -co", kSwitch, kIgnored, kPlain},
    {"--simple-io --nowordwrap", kNothing, kIgnored, kPlain},
    {"--no-display-prompt", kNothing, kIgnored, "the prompt is not printed again"},
    {"--display-prompt", kNothing, kIgnored, "the prompt is not printed again"},
    {"--verbose-prompt", kNothing, kIgnored, "pumice tokenize shows a prompt's tokens"},
    {"--log-disable --log-prefix --log-timestamps --log-verbose", kNothing, kIgnored, kLogs},
    {"--log-colors", kSwitch, kIgnored, kLogs},
    {"--log-file -lv --verbosity --log-verbosity", kValue, kIgnored, kLogs},
    {"--perf --no-perf --show-timings --no-show-timings", kNothing, kIgnored, kRates},
    {"--progress", kNothing, kIgnored, "progress is shown on a terminal anyway"},
    {"-sp --special", kNothing, kRefused, "special tokens are not printed"},
    {"--format", kValue, kRefused, "-j {} asks for JSON, -j SCHEMA for JSON of a schema"},
    // Conversations.
    {"-cnv --conversation -i --interactive -if --interactive-first", kNothing, kIgnored,
     "chat always converses", "chat"},
    {"-cnv --conversation -i --interactive -if --interactive-first", kNothing, kRefused,
     "pumice chat converses; run --repl continues a prompt a line", "run"},
    {"-no-cnv --no-conversation", kNothing, kIgnored, "run continues the prompt as it stands",
     "run"},
    {"-no-cnv --no-conversation", kNothing, kRefused, "pumice run continues a prompt as it stands",
     "chat"},
    {"-st --single-turn", kNothing, kIgnored, "run answers once", "run"},
    {"-st --single-turn", kNothing, kRefused, "for one answer: echo \"…\" | pumice chat -m FILE",
     "chat"},
    {"--jinja", kNothing, kIgnored, kTemplates},
    {"--no-jinja", kNothing, kRefused, kTemplates},
    {"--chat-template", kValue, kRefused, "pumice chat has that", "run"},
    {"--chat-template-kwargs", kValue, kRefused, "templates get no arguments"},
    {"--reasoning-format", kValue, kIgnored, "reasoning is shown apart; --hide-reasoning hides it"},
    {"--reasoning-budget",
     kValue,
     kRefused,
     "reasoning is as long as the model makes it",
     {},
     "-1"},
    {"--think",
     kSwitch,
     kRefused,
     "whether a model reasons is up to it and to the prompt",
     {},
     "on true"},
    {"--in-prefix --in-suffix", kValue, kRefused, "chat templates say what stands around messages"},
    {"--in-prefix-bos", kNothing, kRefused, "chat templates say what stands around messages"},
    // What would change the text.
    {"--mirostat", kValue, kRefused, kNoSuchSampler, {}, "0"},
    {"--mirostat-lr --mirostat-ent", kValue, kIgnored, "it only matters with --mirostat"},
    {"--typical --typical-p", kValue, kRefused, kNoSuchSampler, {}, "1 1.0"},
    {"--dry-multiplier", kValue, kRefused, kNoSuchSampler, {}, "0 0.0"},
    {"--dry-base --dry-allowed-length --dry-penalty-last-n --dry-sequence-breaker", kValue,
     kIgnored, "it only matters with --dry-multiplier"},
    {"--xtc-probability", kValue, kRefused, kNoSuchSampler, {}, "0 0.0"},
    {"--xtc-threshold", kValue, kIgnored, "it only matters with --xtc-probability"},
    {"--dynatemp-range", kValue, kRefused, kNoSuchSampler, {}, "0 0.0"},
    {"--dynatemp-exp", kValue, kIgnored, "it only matters with --dynatemp-range"},
    {"--top-nsigma --top-n-sigma", kValue, kRefused, kNoSuchSampler, {}, "-1 -1.0"},
    {"--samplers --sampling-seq --sampler-seq", kValue, kRefused,
     "the order of the samplers is fixed"},
    {"--repeat-last-n", kValue, kRefused, "penalties count all tokens of the context", {}, "-1"},
    {"-l --logit-bias", kValue, kRefused, "the library has it (docs/API.md), the program does not"},
    {"--lora", kValue, kRefused, "run, chat and serve take adapters"},
    {"--lora-scaled", kValue, kRefused, "run, chat and serve have --lora FILE@SCALE"},
    {"--control-vector --control-vector-scaled", kValue, kRefused, kNoControlVectors},
    {"--rope-scaling --rope-scale --rope-freq-base --rope-freq-scale --yarn-orig-ctx "
     "--yarn-ext-factor --yarn-attn-factor --yarn-beta-slow --yarn-beta-fast",
     kValue, kRefused, kFileSaysRope},
    {"--override-kv", kValue, kRefused, "metadata is what the model file says"},
    {"-bf --binary-file", kValue, kRefused, "prompts are text; -f FILE reads one"},
    {"--mmproj --image --audio", kValue, kRefused, kNoImages},
    {"--no-mmproj --mmproj-auto", kNothing, kIgnored, kNoImages},
    {"--no-escape", kNothing, kIgnored, "without -e the prompt is taken as it stands"},
    // Where the model comes from.
    {"-hff --hf-file", kValue, kRefused, "name the file behind the model: -hf user/repo:FILE"},
    {"-hft --hf-token", kValue, kRefused,
     "set HF_TOKEN in the environment, where others cannot see it"},
    {"-mu --model-url", kValue, kRefused,
     "give a model's name with -hf user/repo, or download the file"},
    {"--insecure", kNothing, kRefused, "certificates are always checked"},
    // Of one command each.
    {"-embd --embeddings --embedding",
     kSwitch,
     kRefused,
     "pumice embed computes embeddings",
     {},
     "0"},
    {"--embd-normalize",
     kValue,
     kRefused,
     "vectors have length 1, or with --no-normalize any",
     {},
     "2"},
    {"--embd-output-format", kValue, kRefused,
     "one vector per line; with --json one object per line"},
    {"--ppl-stride", kValue, kRefused, kNoScores, {}, "0"},
    {"--hellaswag --winogrande --multiple-choice --kl-divergence", kNothing, kRefused, kNoScores},
};

constexpr ForeignCommand kForeignCommands[] = {
    {"ls", "list", {}},
    {"models", "list", {}},
    {"remove", "rm", {}},
    {"delete", "rm", {}},
    {"download", "pull", {}},
    {"generate", "run", {}},
    {"complete", "run", {}},
    {"devices", "info", {}},
    {"perf", "bench", {}},
    {"embedding", "embed", {}},
    {"show", {}, "pumice info FILE shows what is in a model"},
    {"server", "serve", {}},
    {"ps", {}, "nothing runs in the background; models leave memory when a command ends"},
    {"stop", {}, "nothing runs in the background; models leave memory when a command ends"},
    {"start", {}, "nothing runs in the background; pumice run or pumice chat loads a model"},
    {"create", {}, "models are GGUF files; nothing is created from them"},
    {"cp", {}, "models are GGUF files; pumice list --json says where those of the cache are"},
    {"push", {}, "models are only downloaded: pumice pull"},
    {"quantize", {}, "Pumice writes no models; llama.cpp's llama-quantize does"},
    {"convert", {}, "Pumice writes no models; llama.cpp's convert_hf_to_gguf.py does"},
    {"login", {}, "set HF_TOKEN in the environment for private and gated models"},
    {"completion", {}, "there is no shell completion; pumice run continues a prompt"},
    {"completions", {}, "there is no shell completion; pumice run continues a prompt"},
};

}  // namespace

std::span<const ForeignFlag> foreign_flags() { return kForeignFlags; }
std::span<const ForeignCommand> foreign_commands() { return kForeignCommands; }

bool is_in_list(std::string_view list, std::string_view word) {
  while (!list.empty()) {
    const size_t end = std::min(list.find(' '), list.size());
    if (list.substr(0, end) == word) return true;
    list.remove_prefix(std::min(end + 1, list.size()));
  }
  return false;
}

}  // namespace pumice::tools
