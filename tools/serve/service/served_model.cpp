#include "tools/serve/service/served_model.hpp"

#include <algorithm>
#include <chrono>

namespace pumice::serve {
namespace {

/// What ChatFormat does without a template: one text after the other, answers on the same line.
constexpr std::string_view kPlainTemplate =
    "{%- set ns = namespace(text='') -%}{%- for m in messages -%}"
    "{%- if ns.text and not ns.text[-1:].isspace() and m.role != 'assistant' -%}"
    "{%- set ns.text = ns.text + '\\n' -%}{%- endif -%}"
    "{%- set ns.text = ns.text + (m.content or '') -%}{%- endfor -%}{{ ns.text }}";

}  // namespace

ServedModel ServedModel::read(const GgufFile& file, const host::ModelTexts& texts) {
  ServedModel model;
  const auto architecture = file.get_or<std::string_view>("general.architecture", "");
  if (architecture.ok()) model.architecture = std::string(*architecture);
  model.file_bytes = file.size_bytes();
  model.created = std::chrono::duration_cast<std::chrono::seconds>(
                      std::chrono::system_clock::now().time_since_epoch())
                      .count();
  model.tokenizer = texts.tokenizer;
  const auto source = file.get_or<std::string_view>(host::kChatTemplateKey, "");
  model.has_template = source.ok() && !source->empty();
  model.chat = std::make_shared<const Result<ChatPrompt>>(
      ChatPrompt::create(model.has_template ? *source : kPlainTemplate,
                         model.tokenizer->vocabulary(), model.architecture));
  model.constraints = texts.constraint_cache;
  return model;
}

bool ServedModel::is_called(std::string_view name) const {
  return name.empty() || name == id ||
         std::any_of(names.begin(), names.end(),
                     [&](const auto& its) { return its == "*" || its == name; });
}

}  // namespace pumice::serve
