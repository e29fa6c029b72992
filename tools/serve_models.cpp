#include "tools/serve_models.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <system_error>
#include <utility>

#include "base/path.hpp"
#include "base/printable.hpp"
#include "engine/memory_plan.hpp"
#include "format/gguf_parts.hpp"
#include "models/embedding.hpp"
#include "models/families.hpp"
#include "tools/flag_values.hpp"

namespace pumice::tools {
namespace {

namespace fs = std::filesystem;

/// Of a text without -c, where the model was trained for more.
constexpr uint32_t kLongestEmbedded = 8192;

/// As clients call it, without a better name: the file's, of a model in parts without the part.
std::string served_name(const fs::path& file, const GgufPart& part) {
  std::string name = to_utf8(file.filename());
  const std::string suffix = part_suffix(part);
  if (part.count > 1 && name.ends_with(suffix)) {
    name.resize(name.size() - suffix.size());
    return name;
  }
  return to_utf8(file.stem());
}

bool is_family(std::string_view architecture) {
  const auto families = model_families();
  return std::any_of(families.begin(), families.end(), [&](const ModelFamily& family) {
    return family.architecture == architecture;
  });
}

Result<ServedFile> card_of(const fs::path& path, const GgufFile& file) {
  PUMICE_TRY(const GgufPart part, part_of(file));
  ServedFile served{.path = path, .card = serve::ModelCard::read(file)};
  served.card.id = served_name(path, part);
  return served;
}

/// Of a file that somebody may have put beside models: errors also for what is none that can be
/// served, as far as is known before it is loaded.
Result<ServedFile> read_found(const fs::path& path) {
  PUMICE_TRY(const GgufFile file, GgufFile::open(path));
  PUMICE_TRY(ServedFile served, card_of(path, file));
  const auto type = file.get_or<std::string_view>("general.type", "model");
  if (type.ok() && *type != "model") {
    return make_error(ErrorCode::kBadFile, "it is of type {}", printable(*type, 40));
  }
  if (!is_family(served.card.architecture)) {
    return make_error(ErrorCode::kBadFile, "its architecture \"{}\" is not supported",
                      printable(served.card.architecture, 40));
  }
  return served;
}

/// As its name says, "…-00002-of-00003.gguf": the first part opens the others.
bool is_later_part(const fs::path& path) {
  constexpr std::string_view kFirst = "-00001-of-";
  constexpr size_t kSuffix = kFirst.size() + 5;
  const std::string name = to_utf8(path.stem());
  if (name.size() < kSuffix) return false;
  const std::string_view suffix = std::string_view(name).substr(name.size() - kSuffix);
  return suffix[0] == '-' && suffix.substr(6, 4) == "-of-" && !suffix.starts_with(kFirst) &&
         suffix.find_first_not_of("-of0123456789") == std::string_view::npos;
}

/// Of a folder and the folders in it, sorted.
Result<std::vector<fs::path>> gguf_files_of(const fs::path& folder) {
  constexpr int kDepth = 1;
  std::vector<fs::path> paths;
  std::error_code error;
  fs::recursive_directory_iterator entry(folder, fs::directory_options::skip_permission_denied,
                                         error);
  for (const fs::recursive_directory_iterator end; !error && entry != end; entry.increment(error)) {
    if (entry.depth() >= kDepth) entry.disable_recursion_pending();
    std::error_code unknown;
    if (entry->path().extension() != ".gguf" || !entry->is_regular_file(unknown)) continue;
    paths.push_back(entry->path());
  }
  if (error) {
    return make_error(ErrorCode::kBadFile, "--models-dir {}: {}", to_utf8(folder), error.message());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

bool has_id(const std::vector<ServedFile>& files, std::string_view id) {
  return std::any_of(files.begin(), files.end(),
                     [&](const ServedFile& file) { return file.card.id == id; });
}

Status add_folder(const std::string& folder, std::vector<ServedFile>& files, const Logger& logger) {
  PUMICE_TRY(const std::vector<fs::path> paths, gguf_files_of(from_utf8(folder)));
  for (const fs::path& path : paths) {
    std::error_code unknown;
    const bool is_known = std::any_of(files.begin(), files.end(), [&](const ServedFile& file) {
      return fs::equivalent(file.path, path, unknown);
    });
    if (is_known || is_later_part(path)) continue;
    Result<ServedFile> served = read_found(path);
    std::string reason = served.ok() ? "" : served.error().message;
    if (reason.empty() && has_id(files, served->card.id)) {
      reason = fmt::format("there is another model called {}", served->card.id);
    }
    if (reason.empty()) {
      files.push_back(std::move(served).value());
    } else {
      logger.warning("{} is not served: {}", to_utf8(path), reason);
    }
  }
  return {};
}

/// NAME is the first model's, NAME=ID that of another. A model's first own name replaces its file's.
Status name_models(const std::vector<std::string>& aliases, std::vector<ServedFile>& files) {
  std::vector<std::string> ids;
  for (const ServedFile& file : files) ids.push_back(file.card.id);
  std::vector<bool> is_named(files.size());
  for (const std::string& alias : aliases) {
    size_t model = 0;
    std::string name = alias;
    // A name may have a sign too, so it separates only where a model follows.
    const size_t sign = alias.rfind('=');
    if (sign != std::string::npos) {
      const auto it = std::find(ids.begin(), ids.end(), alias.substr(sign + 1));
      if (it == ids.end() && files.size() > 1) {
        return make_error(ErrorCode::kInvalidArgument,
                          "--model-alias {}: there is no model {} (they are called as their files "
                          "are, without .gguf)",
                          alias, alias.substr(sign + 1));
      }
      if (it != ids.end()) {
        model = static_cast<size_t>(it - ids.begin());
        name = alias.substr(0, sign);
      }
    }
    serve::ModelCard& card = files[model].card;
    card.names.push_back(name);
    if (name == "*" || is_named[model]) continue;
    is_named[model] = true;
    card.names.push_back(std::exchange(card.id, name));
  }
  return {};
}

Status name_adapters(const AdapterOptions& adapters, serve::ModelCard& card) {
  for (std::string& name : adapters.names()) {
    if (card.has_name(name)) {
      return make_error(ErrorCode::kInvalidArgument,
                        "--lora {}: the model or another adapter has that name", name);
    }
    card.adapters.push_back(std::move(name));
  }
  return {};
}

/// Null: the model writes text.
Result<std::shared_ptr<const ModelPlan>> embedding_plan(const GgufFile& file,
                                                        const std::string& pooling) {
  std::optional<Pooling> wanted;
  if (!pooling.empty()) {
    PUMICE_TRY(wanted, parse_pooling(pooling));
  }
  Result<Program> program = build_embedding_program(file, wanted);
  // What is wrong with the file the other way says too.
  if (!program.ok() && !wanted) return std::shared_ptr<const ModelPlan>();
  if (!program.ok()) return program.error();
  if (*program->pooling == Pooling::kNone) {
    return make_error(ErrorCode::kInvalidArgument,
                      "the file does not say how a text's vectors become one: give --pooling mean, "
                      "cls or last, as the model was trained");
  }
  return ModelPlan::of_program(file, std::move(program).value());
}

Status read_reserved(const std::vector<std::string>& given, EngineOptions& engine) {
  for (const std::string& one : given) {
    const size_t sign = one.find('=');
    bool is_known = false;
    for (size_t i = 0; i < kServiceClasses && sign != std::string::npos; ++i) {
      if (service_class_name(static_cast<ServiceClass>(i)) != one.substr(0, sign)) continue;
      PUMICE_TRY(const std::vector<uint32_t> numbers,
                 parse_numbers("--reserve-decode", one.substr(sign + 1)));
      is_known = numbers.size() == 1;
      if (is_known) engine.reserved_decode_tokens.at(i) = numbers[0];
    }
    if (is_known) continue;
    return make_error(ErrorCode::kInvalidArgument,
                      "--reserve-decode {}: must be interactive=N, normal=N or batch=N", one);
  }
  return {};
}

Error goes_with_one_model(std::string_view flag) {
  return make_error(ErrorCode::kInvalidArgument,
                    "{} goes with one model, and this server has several", flag);
}

}  // namespace

Status ServedModelOptions::validate() {
  if (!files.empty()) model.model = files.front();
  // A folder is enough.
  if (!model.model.empty() || !model.hub.name.empty() || folder.empty()) {
    PUMICE_TRY_STATUS(model.validate());
  }
  PUMICE_TRY_STATUS(serving.validate());
  EngineOptions engine;
  PUMICE_TRY_STATUS(read_reserved(reserved, engine));
  return generation.validate();
}

Result<std::vector<ServedFile>> find_served(ServedModelOptions& options, const Logger& logger) {
  std::vector<ServedFile> files;
  if (!options.model.hub.name.empty()) {
    PUMICE_TRY_STATUS(options.model.resolve());
    options.files = {options.model.model};
  }
  for (const std::string& path : options.files) {
    PUMICE_TRY(const GgufFile file, GgufFile::open(from_utf8(path)));
    PUMICE_TRY(ServedFile served, card_of(from_utf8(path), file));
    if (has_id(files, served.card.id)) {
      return make_error(ErrorCode::kInvalidArgument,
                        "-m {}: there is another model called {}; rename one of the files", path,
                        served.card.id);
    }
    files.push_back(std::move(served));
  }
  if (!options.folder.empty()) {
    PUMICE_TRY_STATUS(add_folder(options.folder, files, logger));
    if (files.empty()) {
      return make_error(ErrorCode::kBadFile, "--models-dir {}: no model was found there",
                        options.folder);
    }
  }
  PUMICE_TRY_STATUS(name_models(options.aliases, files));
  if (files.size() == 1) {
    PUMICE_TRY_STATUS(name_adapters(options.adapters, files.front().card));
    return files;
  }
  if (!options.adapters.given.empty()) return goes_with_one_model("--lora");
  if (!options.texts.template_file.empty()) return goes_with_one_model("--chat-template");
  if (!options.texts.format.empty()) return goes_with_one_model("--tool-format");
  if (!options.serving.draft_model.empty()) return goes_with_one_model("--model-draft");
  if (!options.serving.prompt_cache.empty()) return goes_with_one_model("--prompt-cache");
  return files;
}

Status ServedModelOpener::open_device() {
  PUMICE_TRY(device_, open_device_owner(options_.model, logger_));
  bool says_grant = false;
  PUMICE_TRY_STATUS(device_->with_device(
      [&](vk::Device& device) { says_grant = device.plan().has_memory_budget; }));
  if (options_.yields_memory && !says_grant) {
    return make_error(ErrorCode::kInvalidArgument,
                      "--yield-memory: {} does not say how much memory it grants "
                      "(VK_EXT_memory_budget); leave the flag out",
                      device_->snapshot().name);
  }
  if (!has_several()) return {};
  const auto n = std::min<uint64_t>(files_.size(), options_.most_models);
  return device_->with_device(
      [&](vk::Device& device) { share_bytes_ = device_memory(device).free_bytes / n; });
}

Result<serve::OpenedParts> ServedModelOpener::open(size_t index, bool alone) {
  const ServedFile& served = files_[index];
  ModelOptions model_options = options_.model;
  model_options.model = to_utf8(served.path);
  const DeviceShare share{.device = device_, .most_bytes = share_bytes_, .alone = alone};
  PUMICE_TRY(const GgufFile file, GgufFile::open(served.path));
  serve::ChatWays ways{.answers = options_.texts.format};
  PUMICE_TRY(ways.chat_template, options_.texts.read_template());
  PUMICE_TRY(const host::ModelTexts texts,
             host::ModelTexts::read(file, ways.chat_template, ways.answers));
  serve::OpenedParts parts{.model = serve::ServedModel::read(served.card, file, texts, ways)};
  serve::ServedModel& model = parts.model;
  if (options_.texts.is_used() && !model.chat->ok()) {
    const Error& error = model.chat->error();
    const std::string& of = options_.texts.template_file;
    return make_error(error.code, "{}: {}", of.empty() ? to_utf8(served.path) : of, error.message);
  }
  model.device = device_->snapshot().name;
  PUMICE_TRY(const std::shared_ptr<const ModelPlan> plan, embedding_plan(file, options_.pooling));
  PUMICE_TRY(const ModelSource source, options_.adapters.apply_to(file));
  if (plan != nullptr) {
    if (!source.adapters().empty()) {
      return make_error(ErrorCode::kInvalidArgument,
                        "--lora: a model that embeds or ranks takes none");
    }
    PUMICE_TRY(parts.embedder, open_embedder_of(model_options, file, texts, plan, share));
    model.window_tokens = parts.embedder->text_tokens();
    model.trained_tokens = plan->program().context_length;
    model.vector_width = parts.embedder->width();
    model.relevant_label = plan->program().relevant_label;
    return parts;
  }
  SamplingOptions generation = options_.generation;
  PUMICE_TRY_STATUS(generation.complete(texts));
  PUMICE_TRY(parts.host, open_writer(model_options, source, texts, share));
  model.window_tokens = parts.host->window_tokens();
  model.trained_tokens = parts.host->model().opened().model->program.context_length;
  model.sampling = generation.sampler;
  model.draws_seeds = !generation.has_seed();
  for (uint32_t i = 0; i < model.adapters.size(); ++i) {
    parts.adapters.push_back(model.with_adapter(i));
  }
  return parts;
}

Result<std::unique_ptr<host::Host>> ServedModelOpener::open_writer(const ModelOptions& model,
                                                                   const ModelSource& source,
                                                                   const host::ModelTexts& texts,
                                                                   const DeviceShare& share) const {
  EngineOptions engine{.kv_type = model.kv_type(),
                       .math = model.math_kind(),
                       .n_sequences = options_.parallel,
                       .token_budget = model.token_budget,
                       .chunk_tokens = model.chunk_tokens,
                       .aging_s = options_.aging_s,
                       .yields_memory = options_.yields_memory};
  PUMICE_TRY_STATUS(read_reserved(options_.reserved, engine));
  options_.serving.apply_to(engine);
  // A prompt or an answer that loses its beginning unseen is nothing for clients.
  engine.overflow = OverflowPolicy::kStop;
  return open_host(model, source, texts, logger_,
                   {.engine = engine,
                    .prompts = Prompts::kSeveral,
                    .share = share,
                    .draft_model = options_.serving.draft_model,
                    .predicts = options_.serving.predicts()});
}

Result<std::unique_ptr<host::LastingEmbedder>> ServedModelOpener::open_embedder_of(
    const ModelOptions& model, const GgufFile& file, const host::ModelTexts& texts,
    std::shared_ptr<const ModelPlan> plan, const DeviceShare& share) const {
  // As pumice embed does, unless told otherwise.
  const KvTypes kv_type = options_.has_kv_type ? model.kv_type() : KvTypes(KvType::kF32);
  return open_embedder(model, file, texts, logger_, std::move(plan),
                       {.kv_type = kv_type,
                        .math = model.math_kind(),
                        .step_tokens = model.token_budget,
                        .invariant = options_.serving.invariant},
                       kLongestEmbedded, share);
}

}  // namespace pumice::tools
