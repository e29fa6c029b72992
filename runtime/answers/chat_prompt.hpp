// From what was said, with tools, to a prompt: what templates differ in is evened out here.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "answers/answer_constraint.hpp"
#include "answers/answer_format.hpp"
#include "answers/tools.hpp"
#include "base/result.hpp"
#include "text/chat_template.hpp"
#include "text/content_mask.hpp"
#include "text/conversation.hpp"
#include "text/tokenizer.hpp"

namespace pumice {

using Message = ChatMessage;

/// What a template makes of what conversations hold, found by rendering some.
struct TemplateTraits {
  bool system = false;       ///< a system message first
  bool late_system = false;  ///< and later
  bool tools = false;
  bool calls = false;
  bool string_arguments = false;  ///< of calls, where it cannot do with an object
  bool no_content = false;        ///< beside calls, where an empty one hides them
  bool results = false;           ///< messages of role "tool"
  bool reasoning = false;         ///< of the last answer, which a tool's result follows

  static TemplateTraits probe(const ChatTemplate& chat_template);
};

/// Derives how a template writes calls, by rendering two of them with two arguments each and
/// comparing; then reads them back. Nothing: it does not write them so that they can be read.
std::optional<AnswerFormat> derive_answer_format(const ChatTemplate& chat_template,
                                                 const TemplateTraits& traits);

struct PromptInput {
  std::vector<Message> messages = {};
  const Tools* tools = nullptr;  ///< none are offered
  /// The template's own ("enable_thinking"): an object.
  nlohmann::ordered_json variables = nlohmann::ordered_json::object();
};

/// Copyable; any number of threads may use it.
class ChatPrompt {
 public:
  /// `architecture`: the model's; `format`: of answers, by name; empty: by the template. Errors:
  /// those of ChatTemplate::parse; kInvalidArgument for an unknown format.
  static Result<ChatPrompt> create(std::string_view source, const Vocabulary& vocabulary,
                                   std::string_view architecture, std::string_view format = {});

  /// How answers are to be read.
  const AnswerFormat& answers() const { return answers_; }
  const TemplateTraits& traits() const { return traits_; }
  /// Whether a rendered prompt ends where reasoning began (AnswerOptions).
  bool begins_reasoning(std::string_view prompt) const;
  /// What the answer to a rendered prompt is held to stands in: whether the model may reason first, which templates show
  /// and which they or the input's variables ("enable_thinking") switch off. Its format is answers(); no tools.
  AnswerFrame frame(std::string_view prompt, const PromptInput& input) const;

  /// Up to where the assistant's answer begins or, where the last message is the assistant's,
  /// goes on. Leading messages of the system and of developers become one; what a template cannot
  /// render is said otherwise: a later one as the user's, marked; tools, calls and results as text.
  /// Errors (kInvalidArgument): an unknown role, a result of no call, arguments that are no object;
  /// those of ChatTemplate::render and ContentMask::hide.
  Result<RenderedPrompt> render(const PromptInput& input, const Tokenizer& tokenizer) const;

 private:
  Result<std::vector<Message>> normalised(const PromptInput& input) const;
  Result<nlohmann::ordered_json> context_of(const std::vector<Message>& messages,
                                            const PromptInput& input, ContentMask& mask) const;

  std::optional<ChatTemplate> template_;
  std::set<std::string, std::less<>> named_tags_;
  std::string bos_;
  std::string eos_;
  TemplateTraits traits_;
  AnswerFormat answers_;
  bool reasons_ = false;  // the template knows of reasoning
};

}  // namespace pumice
