// What a template does, found by rendering pairs.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "answers/answer_machine.hpp"
#include "answers/chat_prompt.hpp"
#include "base/json.hpp"

namespace pumice {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kText = "pumice-text";
constexpr std::string_view kOther = "pumice-other";
// Names that no template has; none is within another.
constexpr std::string_view kNames[] = {"pumice_alpha", "pumice_beta"};
constexpr std::string_view kKeys[] = {"pumice_red", "pumice_blue"};
constexpr std::string_view kValues[] = {"pumice_up", "pumice_down"};

Json message(std::string_view role, std::string_view content) {
  return {{"role", role}, {"content", content}};
}

Json arguments_of(size_t n) {
  Json arguments = Json::object();
  for (size_t i = 0; i < n; ++i) arguments[std::string(kKeys[i])] = kValues[i];
  return arguments;
}

Json call(std::string_view name, const Json& arguments, bool as_string) {
  return {{"id", "pumice123"},
          {"type", "function"},
          {"function",
           {{"name", name}, {"arguments", as_string ? Json(arguments.dump()) : arguments}}}};
}

Json calling(Json calls, bool without_content) {
  Json calling = message("assistant", "");
  if (without_content) calling["content"] = nullptr;
  calling["tool_calls"] = std::move(calls);
  return calling;
}

Json result() {
  Json result = message("tool", kOther);
  result["tool_call_id"] = "pumice123";
  result["name"] = kNames[0];
  return result;
}

Json probe_tools() {
  Json properties;
  for (const std::string_view key : kKeys) {
    properties[std::string(key)] = {{"type", "string"}, {"description", "a text"}};
  }
  Json tools = Json::array();
  for (const std::string_view name : kNames) {
    const Json parameters = {
        {"type", "object"}, {"properties", properties}, {"required", Json::array()}};
    tools.push_back(
        {{"type", "function"},
         {"function", {{"name", name}, {"description", "a tool"}, {"parameters", parameters}}}});
  }
  return tools;
}

/// Empty where the template refuses.
std::string rendered(const ChatTemplate& chat_template, const Json& messages, bool tools = false,
                     bool prompts = false) {
  Json context = {{"messages", messages},
                  {"add_generation_prompt", prompts},
                  {"bos_token", ""},
                  {"eos_token", ""}};
  if (tools) context["tools"] = probe_tools();
  Result<std::string> text = chat_template.render(context);
  return text.ok() ? *std::move(text) : std::string();
}

bool has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

/// Not as Python prints objects, nor as a string within a string.
bool has_arguments(std::string_view text) {
  const std::string key(kKeys[0]);
  return has(text, key) && !has(text, "'" + key + "'") && !has(text, "\\\"" + key);
}

/// What both end with.
size_t n_common_end(std::string_view a, std::string_view b) {
  size_t n = 0;
  while (n < a.size() && n < b.size() && a[a.size() - 1 - n] == b[b.size() - 1 - n]) ++n;
  return n;
}
size_t n_common_start(std::string_view a, std::string_view b) {
  const auto [end, other] = std::ranges::mismatch(a, b);
  return static_cast<size_t>(end - a.begin());
}

std::string literal(std::string_view text) { return std::string(without_blanks(text)); }

/// What stands before, between and behind the parts that are looked for, in their order.
std::optional<std::vector<std::string_view>> cut(std::string_view text,
                                                 const std::vector<std::string_view>& parts) {
  std::vector<std::string_view> between;
  for (const std::string_view part : parts) {
    const size_t at = text.find(part);
    if (at == std::string_view::npos) return std::nullopt;
    between.push_back(text.substr(0, at));
    text.remove_prefix(at + part.size());
  }
  between.push_back(text);
  return between;
}

/// The last mark of what both end with; all of that if there is none.
std::string_view common_mark(std::string_view a, std::string_view b) {
  const std::string_view common = b.substr(b.size() - n_common_end(a, b));
  const size_t mark = common.find_last_of("<[");
  return common.substr(mark == std::string_view::npos ? 0 : mark);
}

/// `first` is before the first of several, `next` before the others: the opening of each, and of
/// all or of each around that.
void split_opening(std::string_view first, std::string_view next, AnswerFormat& format) {
  format.call_open = literal(common_mark(first, next));
  first = without_blanks(first);
  const std::string section = literal(first.substr(0, first.rfind(format.call_open)));
  if (!section.empty()) format.section_open = {section};
}

/// `text` without `end`, if it ends so.
std::string_view without_end(std::string_view text, std::string_view end) {
  text = without_blanks(text);
  if (text.ends_with(end)) text.remove_suffix(end.size());
  return without_blanks(text);
}

/// An object with the name and the arguments as members, perhaps in an array.
std::optional<AnswerFormat> derive_json(std::string_view text) {
  const size_t name = text.find(kNames[0]);
  const size_t begin = text.rfind('{', name);
  if (begin == std::string_view::npos || name == 0 || text[name - 1] != '"') return std::nullopt;
  std::string_view open = without_blanks(text.substr(0, begin));
  const bool in_list = open.ends_with('[');
  if (in_list) open = without_blanks(open.substr(0, open.size() - 1));
  const size_t last = text.rfind('}');
  std::string_view close = without_blanks(text.substr(last + 1));
  if (close.starts_with(']')) close = without_blanks(close.substr(1));
  AnswerFormat format{.name = "derived", .shape = CallShape::kJson};
  format.members.in_list = in_list;
  for (const char* const member : {"arguments", "parameters"}) {
    if (has(text, json_quoted(member))) format.members.arguments = member;
  }
  format.call_open = std::string(open);
  format.call_close = std::string(close);
  format.bare = open.empty();
  return format;
}

std::optional<AnswerFormat> derive_python(std::string_view text) {
  const size_t name = text.find(kNames[0]);
  const std::string_view rest = text.substr(name + kNames[0].size());
  if (!rest.starts_with("(" + std::string(kKeys[0]) + "=")) return std::nullopt;
  std::string_view open = without_blanks(text.substr(0, name));
  if (open.ends_with('[')) open = without_blanks(open.substr(0, open.size() - 1));
  std::string_view close = without_blanks(text.substr(text.rfind(')') + 1));
  if (close.starts_with(']')) close = without_blanks(close.substr(1));
  AnswerFormat format{.name = "derived", .shape = CallShape::kPython};
  format.call_open = std::string(open);
  format.call_close = std::string(close);
  format.bare = open.empty();
  return format;
}

/// The name, then one object.
std::optional<AnswerFormat> derive_named(std::string_view text) {
  const Json arguments = arguments_of(2);
  std::vector<std::string_view> objects;
  for (std::string_view rest = text; objects.size() < 2;) {
    const size_t begin = rest.find('{');
    if (begin == std::string_view::npos) return std::nullopt;
    ValueReader reader(ValueReader::Root::kObject);
    std::string out;
    size_t end = begin;
    ValueReader::Step step = ValueReader::Step::kMore;
    while (step == ValueReader::Step::kMore && end < rest.size())
      step = reader.feed(rest[end++], out);
    if (step != ValueReader::Step::kDone) return std::nullopt;
    const auto json = read_ordered_json(out, out.size());
    if (!json.ok() || *json != arguments) return std::nullopt;
    objects.push_back(rest.substr(begin, end - begin));
    rest.remove_prefix(end);
  }
  const auto parts = cut(text, {kNames[0], objects[0], kNames[1], objects[1]});
  if (!parts) return std::nullopt;
  AnswerFormat format{.name = "derived", .shape = CallShape::kNamed};
  split_opening((*parts)[0], (*parts)[2], format);
  if (const std::string end = literal((*parts)[1]); !end.empty()) format.name_end = {end};
  format.call_close = std::string(without_end((*parts)[2], format.call_open));
  const std::string_view last = without_blanks((*parts)[4]);
  const std::string section = literal(last.substr(n_common_start(last, format.call_close)));
  if (!section.empty()) format.section_close = {section};
  return format;
}

/// The name, then each argument between tags.
std::optional<AnswerFormat> derive_tagged(std::string_view text) {
  const auto parts = cut(text, {kNames[0], kKeys[0], kValues[0], kKeys[1], kValues[1], kNames[1]});
  if (!parts) return std::nullopt;
  const std::string_view before_key = (*parts)[1];
  const std::string_view between = (*parts)[3];
  AnswerFormat format{.name = "derived", .shape = CallShape::kTagged};
  const size_t n_key_open = common_mark(before_key, between).size();
  format.key_open = literal(before_key.substr(before_key.size() - n_key_open));
  format.name_end = {literal(before_key.substr(0, before_key.size() - n_key_open))};
  if (format.name_end.front().empty()) format.name_end.clear();
  format.value_close = literal(between.substr(0, between.size() - n_key_open));
  format.key_end = {literal((*parts)[2])};
  format.value_lines = (*parts)[2].ends_with('\n') && between.starts_with('\n');
  if (format.value_close.empty() || format.key_end.front().empty() || format.key_open.empty()) {
    return std::nullopt;
  }
  std::string_view next = without_blanks((*parts)[5]);
  split_opening((*parts)[0], next, format);
  if (!next.starts_with(format.value_close) || format.call_open.empty()) return std::nullopt;
  next = without_end(next.substr(format.value_close.size()), format.call_open);
  // Of "</call></section><section>" the first tag is the call's own.
  const size_t n_close = next.find('>') + 1;
  format.call_close = std::string(next.substr(0, n_close));
  next.remove_prefix(n_close);
  if (!format.section_open.empty()) {
    format.section_per_call = without_blanks(next).ends_with(format.section_open.front());
    next = without_end(next, format.section_open.front());
  }
  const std::string_view last =
      without_blanks(text.substr(text.rfind(format.call_close) + n_close));
  if (const std::string close = literal(next.empty() ? last : next); !close.empty()) {
    format.section_close = {close};
  }
  return format;
}

/// Whether the machine finds in `text` the calls that it was rendered of.
bool comes_back(const AnswerFormat& format, std::string_view text) {
  const auto tools = std::make_shared<const Tools>(Tools::create(probe_tools()).value());
  AnswerMachine machine(AnswerGrammar::create(format, nullptr), {.tools = tools});
  std::vector<AnswerEvent> events;
  machine.feed(text, events);
  machine.finish(events);
  size_t n_calls = 0;
  for (const AnswerEvent& event : events) {
    if (event.kind == AnswerEvent::Kind::kText || event.kind == AnswerEvent::Kind::kReasoning)
      return false;
    if (event.kind == AnswerEvent::Kind::kCallBegun && event.text != kNames[n_calls++])
      return false;
    if (event.kind != AnswerEvent::Kind::kArguments) continue;
    const auto json = read_ordered_json(event.text, event.text.size());
    if (!json.ok() || *json != arguments_of(2)) return false;
  }
  return n_calls == 2 && machine.n_unparsed() == 0;
}

}  // namespace

TemplateTraits TemplateTraits::probe(const ChatTemplate& chat_template) {
  const Json user = message("user", "pumice-user");
  const auto make = [&](const Json& messages, bool tools = false) {
    return rendered(chat_template, messages, tools);
  };
  TemplateTraits traits;
  traits.system = has(make({message("system", kText), user}), kText);
  traits.late_system =
      has(make({user, message("assistant", "x"), message("system", kText), user}), kText);
  traits.tools = has(make(Json::array({user}), true), kNames[0]);
  for (const bool without_content : {false, true}) {
    for (const bool as_string : {false, true}) {
      const Json calls = Json::array({call(kNames[0], arguments_of(1), as_string)});
      if (traits.calls || !has_arguments(make({user, calling(calls, without_content)}, true))) {
        continue;
      }
      traits.calls = true;
      traits.string_arguments = as_string;
      traits.no_content = without_content;
    }
  }
  Json thinking = calling(Json::array({call(kNames[0], arguments_of(1), traits.string_arguments)}),
                          traits.no_content);
  thinking["reasoning_content"] = kText;
  thinking["reasoning"] = kText;
  const std::string with_result = make({user, thinking, result()}, true);
  traits.results = has(with_result, kOther);
  traits.reasoning = has(with_result, kText);
  return traits;
}

std::optional<AnswerFormat> derive_answer_format(const ChatTemplate& chat_template,
                                                 const TemplateTraits& traits) {
  if (!traits.calls) return std::nullopt;
  const Json user = message("user", "pumice-user");
  const std::string prompt = rendered(chat_template, Json::array({user}), true, true);
  const std::string plain =
      rendered(chat_template, {user, message("assistant", kText)}, true, false);
  Json calls = Json::array();
  for (const std::string_view name : kNames) {
    calls.push_back(call(name, arguments_of(2), traits.string_arguments));
  }
  const std::string all =
      rendered(chat_template, {user, calling(calls, traits.no_content)}, true, false);
  // Between what a prompt ends with and what a turn ends with.
  std::string_view text = all;
  const size_t n_same = n_common_start(all, prompt);
  const size_t tag = std::string_view(all).substr(0, n_same).find_last_of("<>");
  // Two tags may have begun alike.
  constexpr size_t kMaxTagBytes = 32;
  const bool is_within =
      tag != std::string::npos && all[tag] == '<' && n_same - tag <= kMaxTagBytes;
  text.remove_prefix(is_within ? tag : n_same);
  constexpr std::string_view kThought = "</think>";
  if (const size_t thought = text.find(kThought); thought < text.find(kNames[0])) {
    text.remove_prefix(thought + kThought.size());
  }
  const size_t at = plain.rfind(kText);
  if (at == std::string::npos) return std::nullopt;
  const std::string_view end = std::string_view(plain).substr(at + kText.size());
  text.remove_suffix(n_common_end(text, end));
  if (!has(text, kNames[0]) || !has(text, kNames[1])) return std::nullopt;
  for (const auto derive : {derive_json, derive_named, derive_python, derive_tagged}) {
    const std::optional<AnswerFormat> format = derive(text);
    if (format && comes_back(*format, text)) return format;
  }
  return std::nullopt;
}

}  // namespace pumice
