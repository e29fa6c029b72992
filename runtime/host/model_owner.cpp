#include "host/model_owner.hpp"

#include <utility>

#include "models/vocabulary_loader.hpp"

namespace pumice::host {
namespace {

Result<ChatFormat> format_of(const GgufFile& file, const Vocabulary& vocabulary,
                             const std::optional<std::string>& chat_template) {
  if (chat_template) return ChatFormat::create(*chat_template, vocabulary);
  if (file.find(kChatTemplateKey) == nullptr) return ChatFormat();
  PUMICE_TRY(const std::string_view source, file.get<std::string_view>(kChatTemplateKey));
  return ChatFormat::create(source, vocabulary);
}

}  // namespace

Result<ModelTexts> ModelTexts::read(const GgufFile& file,
                                    const std::optional<std::string>& chat_template) {
  PUMICE_TRY(Tokenizer tokenizer, load_tokenizer(file));
  ModelTexts texts{.tokenizer = std::make_shared<const Tokenizer>(std::move(tokenizer))};
  texts.format = std::make_shared<const Result<ChatFormat>>(
      format_of(file, texts.tokenizer->vocabulary(), chat_template));
  texts.constraints = std::make_shared<ConstraintCompiler>(texts.tokenizer);
  return texts;
}

Result<std::shared_ptr<ModelOwner>> ModelOwner::load(std::shared_ptr<DeviceOwner> device,
                                                     ModelRequest request,
                                                     const ModelSource& source, ModelTexts texts,
                                                     const ModelWeights::Progress& loading,
                                                     std::shared_ptr<const ModelPlan> plan) {
  PUMICE_TRY(OpenedModel opened, device->load(request, source, loading, std::move(plan)));
  const std::shared_ptr<ModelOwner> owner(
      new ModelOwner(std::move(device), std::move(request), std::move(texts)));
  owner->recovery_ = std::make_shared<Recovery>(
      std::move(opened),
      [device = owner->device_, request = owner->request_] { return device->load(request); });
  owner->device_->add(owner->recovery_, owner->request_);
  return owner;
}

Result<OpenedModel> ModelOwner::current() {
  OpenedModel opened = recovery_->opened();
  const bool is_current =
      opened.device != nullptr && !opened.device->is_lost() && opened.device == device_->device();
  if (is_current) return opened;
  opened = {};  // which would keep it
  PUMICE_TRY_STATUS(recovery_->replace([this] { return device_->load(request_); }, {}));
  return recovery_->opened();
}

Status ModelOwner::recover(Engine& engine) {
  Engine* const lost = &engine;
  return recovery_->recover({&lost, 1});
}

}  // namespace pumice::host
