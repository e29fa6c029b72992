// Chat templates: Jinja as GGUF files carry it, rendered as Hugging Face's transformers do, that is
// by Jinja2 3.1's ImmutableSandboxedEnvironment with trim_blocks, lstrip_blocks and loop controls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <ctime>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.hpp"

namespace pumice {

namespace jinja {
struct Template;
}

/// What a rendering may take. Every operation pays in proportion to what it reads, makes and holds;
/// what cannot be paid ends the rendering with an error. Both limits are for what a template does
/// beside what it was given; they grow with that, by kStepsPerContextByte and kBytesPerContextByte
/// for each byte that the context has as JSON, since a template passes over the messages a few
/// times and holds their text in its output, which doubles as it grows, and in what it joins.
struct RenderOptions {
  std::optional<std::tm> now;           ///< what strftime_now shows; local time where not given
  uint64_t max_steps = 10'000'000;      ///< of about 0.1 us: a second, whatever the template
  size_t max_bytes = size_t{64} << 20;  ///< of values alive at once, the text among them
  /// Asked every millisecond or so, in the thread that renders; yes ends the rendering.
  std::function<bool()> stopped;

  static constexpr uint64_t kStepsPerContextByte = 2;
  static constexpr size_t kBytesPerContextByte = 4;
};

/// A compiled template; immutable, render from any thread.
///
/// Statements: for (if, else, recursive), if, set (also blocks), macro, call, filter, with, raw,
/// break, continue, generation (whose body is rendered). Templates that need others (include,
/// import, from, extends, block) are refused. Functions: range, dict, namespace, joiner,
/// raise_exception, strftime_now. Filters: abs attr capitalize count d default dictsort e escape
/// first float format indent int items join last length list lower map max min reject rejectattr
/// replace reverse round safe select selectattr sort string sum title tojson trim truncate unique
/// upper. The others of Jinja2's, which no chat template uses, are errors by name; so is what else
/// Python's formats have than s, r, d, i, x, X, f, F and, in braces, %.
/// Every test of Jinja2's; methods of strings, lists and dicts that change nothing.
///
/// Unlike Python: integers have 64 bits, beyond which is an error; upper and lower case map one
/// character to one; generators compute, and fail, where they are made; a call has at most 255
/// named arguments.
class ChatTemplate {
 public:
  static constexpr size_t kMaxSourceBytes = size_t{1} << 20;

  /// Errors: kBadFile with the line and what is wrong there; `source` must be UTF-8.
  static Result<ChatTemplate> parse(std::string_view source);

  /// `context`: an object with messages, tools, add_generation_prompt, bos_token, eos_token and
  /// whatever else a template asks for. Errors: kInvalidArgument with the line and the template's
  /// own words (raise_exception) or what a value cannot do; kDoesNotFit beyond a limit; kCancelled
  /// where it was stopped. Takes a megabyte of stack at most, about 250 bytes of heap for a message
  /// of `context`, whose strings are not copied, and what RenderOptions allow.
  Result<std::string> render(const nlohmann::ordered_json& context,
                             const RenderOptions& options = {}) const;

 private:
  explicit ChatTemplate(std::shared_ptr<const jinja::Template> compiled)
      : compiled_(std::move(compiled)) {}

  std::shared_ptr<const jinja::Template> compiled_;
};

}  // namespace pumice
