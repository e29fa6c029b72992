// A model that outlives the device it is on: how it is loaded there again, and its words.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "answers/chat_prompt.hpp"
#include "base/result.hpp"
#include "constraints/constraint_cache.hpp"
#include "constraints/constraint_compiler.hpp"
#include "format/gguf.hpp"
#include "host/device_owner.hpp"
#include "host/opened_model.hpp"
#include "host/recovery.hpp"
#include "text/conversation.hpp"
#include "text/tokenizer.hpp"

namespace pumice::host {

/// Where a model's file has its template, if it has one.
constexpr std::string_view kChatTemplateKey = "tokenizer.chat_template";

/// A ChatPrompt that is made when it is first asked for, as that tries what the template does. Any
/// thread.
class LateChatPrompt {
 public:
  /// `source`: the template, empty if there is none. `answers`: how answers are written, by name;
  /// empty: as the template shows.
  LateChatPrompt(std::string source, std::shared_ptr<const Tokenizer> tokenizer,
                 std::string architecture, std::string answers);
  /// Errors: kInvalidArgument: there is no template; those of ChatPrompt::create.
  const Result<ChatPrompt>& get() const;

 private:
  const std::string source_;
  const std::shared_ptr<const Tokenizer> tokenizer_;
  const std::string architecture_;
  const std::string answers_;
  mutable std::once_flag once_;
  mutable std::optional<Result<ChatPrompt>> prompt_;
};

/// How a model's file turns text into tokens, and messages into prompts.
struct ModelTexts {
  std::shared_ptr<const Tokenizer> tokenizer;
  /// Or why messages cannot be prompts: the template is not understood.
  std::shared_ptr<const Result<ChatFormat>> format;
  std::shared_ptr<const LateChatPrompt> prompt = {};
  std::shared_ptr<ConstraintCompiler> constraints = {};  ///< of the tokenizer
  std::shared_ptr<ConstraintCache> constraint_cache = {};

  /// `chat_template`: instead of the file's own. `answers`: LateChatPrompt's. Errors:
  /// load_tokenizer's.
  static Result<ModelTexts> read(const GgufFile& file,
                                 const std::optional<std::string>& chat_template = {},
                                 const std::string& answers = {});
};

/// Any thread.
class ModelOwner {
 public:
  /// `source`: what `request` opens, which is opened again only once the device was lost, with its
  /// adapters, which become the request's. `plan`:
  /// the source's, if it has been made. Errors: DeviceOwner::load's.
  static Result<std::shared_ptr<ModelOwner>> load(std::shared_ptr<DeviceOwner> device,
                                                  ModelRequest request, const ModelSource& source,
                                                  ModelTexts texts,
                                                  const ModelWeights::Progress& loading = {},
                                                  std::shared_ptr<const ModelPlan> plan = {});

  DeviceOwner& device() const { return *device_; }
  const ModelTexts& texts() const { return texts_; }
  const ModelRequest& request() const { return request_; }
  /// As it is, perhaps on a device that was lost; without one after a recovery that failed.
  OpenedModel opened() const { return recovery_->opened(); }
  /// On the device as it is now, which was perhaps lost or replaced since: loaded again there then.
  /// Errors: DeviceOwner::load's.
  Result<OpenedModel> current();
  /// Recovery::recover of one engine.
  Status recover(Engine& engine);

 private:
  ModelOwner(std::shared_ptr<DeviceOwner> device, ModelRequest request, ModelTexts texts)
      : device_(std::move(device)), request_(std::move(request)), texts_(std::move(texts)) {}

  const std::shared_ptr<DeviceOwner> device_;
  const ModelRequest request_;
  const ModelTexts texts_;
  std::shared_ptr<Recovery> recovery_;
};

}  // namespace pumice::host
