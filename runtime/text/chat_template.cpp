#include "text/chat_template.hpp"

#include <nlohmann/json.hpp>

#include <utility>

#include "base/utf8.hpp"
#include "text/jinja/context.hpp"
#include "text/jinja/interpreter.hpp"
#include "text/jinja/lexer.hpp"
#include "text/jinja/parser.hpp"

namespace pumice {
namespace {

using Json = nlohmann::ordered_json;

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
  jinja::Budget budget(options.stopped);
  PUMICE_TRY(jinja::Context values, jinja::context_of(budget, context));
  // What the caller gives is not the template's to pay for.
  budget.limit(options.max_steps + RenderOptions::kStepsPerContextByte * values.n_bytes,
               options.max_bytes + RenderOptions::kBytesPerContextByte * values.n_bytes);
  jinja::Interpreter interpreter(*compiled_, budget, std::move(values.value), options.now);
  PUMICE_TRY(const jinja::Text text, interpreter.run());
  return std::string(text);
}

}  // namespace pumice
