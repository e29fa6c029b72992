// From messages to a prompt and the form of its answer, for every wire that has messages.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "answers/chat_prompt.hpp"
#include "tools/serve/service/answer_writer.hpp"
#include "tools/serve/service/served_model.hpp"
#include "tools/serve/wires/constraint.hpp"
#include "tools/serve/wires/fields.hpp"
#include "tools/serve/wires/wires.hpp"

namespace pumice::serve {

/// What was said, and what may be called.
struct ChatInput {
  PromptInput prompt;  ///< its tools are set by `set_prompt`
  std::shared_ptr<const Tools> tools = std::make_shared<const Tools>();
  ConstraintWish wish = {};
};

/// OpenAI's: messages, tools, tool_choice, parallel_tool_calls, response_format and what is for the
/// template. What is wrong is the fields' error.
ChatInput read_openai_chat(Fields& fields, WireRequest& request);

/// A message of OpenAI's. `path`: what to call it in errors.
std::optional<Message> read_openai_message(const Json& json, const std::string& path,
                                           Fields& errors);
/// Content as text: a string, null, or parts of which each has text. Any of `types` is one.
std::optional<std::string> read_text_content(const Json* content, const std::string& path,
                                             std::initializer_list<std::string_view> types,
                                             Fields& errors);

/// The field "tools" of a wire that has tools of several types: those of `type`, or of none, are
/// taken, as `function_of` says in OpenAI's words. The others are left out, with a warning: nobody
/// here could run them.
void read_tools_of_type(Fields& fields, std::string_view type,
                        const std::function<Json(const Json&)>& function_of,
                        const WireContext& context, ChatInput& chat);

/// "auto", "none", "required", {"type": "function", …} or {"type": "allowed_tools", …}, as OpenAI
/// has it, where the name of a function stands within "function" or beside the type.
void read_tool_choice(const Json* choice, Fields& errors, ChatInput& chat, WireRequest& request);
/// A tool has to be called: one of `names`, or any if there are none. Errors: tools that are not
/// offered.
void need_call(std::vector<std::string> names, Fields& errors, ChatInput& chat);

/// Renders and encodes the prompt, and says how the answer is to be read. Errors: what the template
/// or the normaliser refuses, naming `field`.
std::optional<ApiError> set_prompt(ChatInput chat, const ServedModel& model, std::string_view field,
                                   WireRequest& request);

}  // namespace pumice::serve
