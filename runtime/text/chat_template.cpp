#include "text/chat_template.hpp"

#include <nlohmann/json.hpp>

#include <limits>
#include <utility>
#include <vector>

#include "base/utf8.hpp"
#include "text/jinja/interpreter.hpp"
#include "text/jinja/lexer.hpp"
#include "text/jinja/parser.hpp"

namespace pumice {
namespace {

using Json = nlohmann::ordered_json;

Result<jinja::Value> value_of(jinja::Budget& budget, const Json& json, int depth) {
  if (depth > jinja::kMaxDepth) {
    return make_error(ErrorCode::kDoesNotFit, "the template's values are nested more than {} deep",
                      jinja::kMaxDepth);
  }
  switch (json.type()) {
    case Json::value_t::boolean:
      return jinja::Value(json.get<bool>());
    case Json::value_t::number_integer:
      return jinja::Value(json.get<int64_t>());
    case Json::value_t::number_unsigned: {
      const auto number = json.get<uint64_t>();
      if (number > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
        return make_error(ErrorCode::kInvalidArgument, "{} has more than 64 bits", number);
      }
      return jinja::Value(static_cast<int64_t>(number));
    }
    case Json::value_t::number_float:
      return jinja::Value(json.get<double>());
    case Json::value_t::string:
      return make_string(budget, json.get_ref<const std::string&>());
    case Json::value_t::array: {
      std::vector<jinja::Value> items;
      for (const Json& item : json) {
        PUMICE_TRY(jinja::Value value, value_of(budget, item, depth + 1));
        items.push_back(std::move(value));
      }
      return make_list(budget, std::move(items));
    }
    case Json::value_t::object: {
      jinja::DictEntries entries;
      for (const auto& item : json.items()) {
        PUMICE_TRY(jinja::Value value, value_of(budget, item.value(), depth + 1));
        entries.emplace_back(make_string(budget, item.key()), std::move(value));
      }
      return make_dict(budget, std::move(entries));
    }
    default:
      return jinja::Value();
  }
}

}  // namespace

Result<ChatTemplate> ChatTemplate::parse(std::string_view source) {
  if (source.size() > kMaxSourceBytes) {
    return make_error(ErrorCode::kBadFile, "chat template: {} bytes, more than {}", source.size(),
                      kMaxSourceBytes);
  }
  if (!is_valid_utf8(source)) {
    return make_error(ErrorCode::kBadFile, "chat template: not valid UTF-8");
  }
  PUMICE_TRY(jinja::Template parsed, jinja::parse_template(source));
  return ChatTemplate(std::make_shared<const jinja::Template>(std::move(parsed)));
}

Result<std::string> ChatTemplate::render(const Json& context, const RenderOptions& options) const {
  if (!context.is_object()) {
    return make_error(ErrorCode::kInvalidArgument, "a template's context must be a JSON object");
  }
  // What the caller gives is not the template's to pay for.
  jinja::Budget callers(std::numeric_limits<uint64_t>::max(), std::numeric_limits<size_t>::max());
  jinja::Budget budget(options.max_steps, options.max_bytes);
  PUMICE_TRY(jinja::Value values, value_of(callers, context, 1));
  return jinja::Interpreter(*compiled_, budget, std::move(values), options.now).run();
}

}  // namespace pumice
