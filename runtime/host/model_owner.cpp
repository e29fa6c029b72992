#include "host/model_owner.hpp"

#include <utility>

#include "models/vocabulary_loader.hpp"

namespace pumice::host {
namespace {

/// Nothing: the file has none.
Result<std::optional<std::string>> template_of(const GgufFile& file) {
  if (file.find(kChatTemplateKey) == nullptr) return std::optional<std::string>();
  PUMICE_TRY(const std::string_view source, file.get<std::string_view>(kChatTemplateKey));
  return std::optional<std::string>(source);
}

Result<ChatFormat> format_of(const Result<std::optional<std::string>>& source,
                             const Vocabulary& vocabulary) {
  if (!source.ok()) return source.error();
  return *source ? ChatFormat::create(**source, vocabulary) : ChatFormat();
}

}  // namespace

LateChatPrompt::LateChatPrompt(std::string source, std::shared_ptr<const Tokenizer> tokenizer,
                               std::string architecture, std::string answers)
    : source_(std::move(source)),
      tokenizer_(std::move(tokenizer)),
      architecture_(std::move(architecture)),
      answers_(std::move(answers)) {}

const Result<ChatPrompt>& LateChatPrompt::get() const {
  std::call_once(once_, [&] {
    if (source_.empty()) {
      prompt_ = make_error(ErrorCode::kInvalidArgument,
                           "the model has no chat template, so it knows neither tools nor roles");
    } else {
      prompt_ = ChatPrompt::create(source_, tokenizer_->vocabulary(), architecture_, answers_);
    }
  });
  return *prompt_;
}

Result<ModelTexts> ModelTexts::read(const GgufFile& file,
                                    const std::optional<std::string>& chat_template,
                                    const std::string& answers) {
  PUMICE_TRY(Tokenizer tokenizer, load_tokenizer(file));
  ModelTexts texts{.tokenizer = std::make_shared<const Tokenizer>(std::move(tokenizer))};
  const Result<std::optional<std::string>> source =
      chat_template ? Result<std::optional<std::string>>(chat_template) : template_of(file);
  texts.format =
      std::make_shared<const Result<ChatFormat>>(format_of(source, texts.tokenizer->vocabulary()));
  const auto architecture = file.get_or<std::string_view>("general.architecture", "");
  texts.prompt = std::make_shared<const LateChatPrompt>(
      source.ok() ? source->value_or("") : "", texts.tokenizer,
      std::string(architecture.ok() ? *architecture : ""), answers);
  texts.constraints = std::make_shared<ConstraintCompiler>(texts.tokenizer);
  texts.constraint_cache = std::make_shared<ConstraintCache>(texts.constraints);
  return texts;
}

Result<std::shared_ptr<ModelOwner>> ModelOwner::load(std::shared_ptr<DeviceOwner> device,
                                                     ModelRequest request,
                                                     const ModelSource& source, ModelTexts texts,
                                                     const ModelWeights::Progress& loading,
                                                     std::shared_ptr<const ModelPlan> plan) {
  request.adapters.assign(source.adapters().begin(), source.adapters().end());
  PUMICE_TRY(OpenedModel opened, device->load(request, source, loading, std::move(plan)));
  // An engine that is made again says itself whether it fits: it may do with less KV memory by now.
  request.engine_may_differ = true;
  const std::shared_ptr<ModelOwner> owner(
      new ModelOwner(std::move(device), std::move(request), std::move(texts)));
  owner->recovery_ = std::make_shared<Recovery>(
      std::move(opened),
      [device = owner->device_, request = owner->request_] { return device->load(request); });
  owner->device_->add(owner->recovery_);
  return owner;
}

Result<OpenedModel> ModelOwner::current() {
  OpenedModel opened = recovery_->opened();
  const bool is_current =
      opened.device != nullptr && !opened.device->is_lost() && opened.device == device_->device();
  if (is_current) return opened;
  opened = {};  // which would keep it
  PUMICE_TRY_STATUS(recovery_->replace());
  return recovery_->opened();
}

Status ModelOwner::recover(Engine& engine) {
  Engine* const lost = &engine;
  return recovery_->recover({&lost, 1});
}

}  // namespace pumice::host
