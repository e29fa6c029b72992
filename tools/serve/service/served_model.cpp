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

ModelCard ModelCard::read(const GgufFile& file) {
  ModelCard card{.file_bytes = file.size_bytes()};
  const auto architecture = file.get_or<std::string_view>("general.architecture", "");
  if (architecture.ok()) card.architecture = std::string(*architecture);
  card.created = std::chrono::duration_cast<std::chrono::seconds>(
                     std::chrono::system_clock::now().time_since_epoch())
                     .count();
  return card;
}

ServedModel ServedModel::read(const ModelCard& card, const GgufFile& file,
                              const host::ModelTexts& texts, const ChatWays& ways) {
  ServedModel model{card};
  model.tokenizer = texts.tokenizer;
  const auto own = file.get_or<std::string_view>(host::kChatTemplateKey, "");
  const std::string_view source = ways.chat_template ? *ways.chat_template : own.ok() ? *own : "";
  model.has_template = !source.empty();
  model.chat = std::make_shared<const Result<ChatPrompt>>(
      ChatPrompt::create(model.has_template ? source : kPlainTemplate,
                         model.tokenizer->vocabulary(), model.architecture, ways.answers));
  model.constraints = texts.constraint_cache;
  const auto form = file.get_or<std::string_view>(RankingPrompt::kTemplateKey, "");
  if (form.ok()) model.ranking = RankingPrompt(std::string(*form));
  return model;
}

ServedModel ServedModel::with_adapter(size_t index) const {
  ServedModel model = *this;
  model.id = adapters[index];
  model.names.clear();
  model.adapters.clear();
  model.adapter = static_cast<uint32_t>(index) + 1;
  return model;
}

bool ModelCard::has_name(std::string_view name) const {
  const auto among = [&](const std::vector<std::string>& all) {
    return std::find(all.begin(), all.end(), name) != all.end();
  };
  return name == id || among(names) || among(adapters);
}

bool ModelCard::is_called(std::string_view name) const {
  return name.empty() || has_name(name) || has_name("*");
}

}  // namespace pumice::serve
