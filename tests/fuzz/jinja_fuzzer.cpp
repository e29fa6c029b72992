// Chat templates of a grammar that doubles things: each input is a choice of statements, which put
// values twice into others, again and again, and hand them to every filter, method and operator.
// Within its steps and its memory, whatever it does, and the same text twice.
#include <ctime>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "tests/fuzz/fuzz.hpp"
#include "text/chat_template.hpp"

namespace pumice::fuzz {
namespace {

constexpr uint64_t kMaxSteps = 20'000;
constexpr size_t kMaxBytes = size_t{1} << 20;
// What the budget gives, the text that is returned, what sorting takes, and the parsed template.
constexpr size_t kMaxHeapBytes = size_t{6} << 20;
// Steps are of about 0.1 us, and sanitizers slow them down; a host that is busy counts too.
constexpr double kMaxSeconds = 2;
constexpr size_t kMaxSourceBytes = 16'000;

/// Choices that the fuzzer makes; without any left, the first of each.
class Choices {
 public:
  Choices(const uint8_t* data, size_t size) : data_(data), size_(size) {}

  bool any_left() const { return at_ < size_; }
  size_t below(size_t n) { return (at_ < size_ ? data_[at_++] : 0) % n; }
  template <size_t kSize>
  std::string one_of(const std::string_view (&texts)[kSize]) {
    return std::string(texts[below(kSize)]);
  }

 private:
  const uint8_t* data_;
  size_t size_;
  size_t at_ = 0;
};

constexpr std::string_view kVariables[] = {"ns.a", "ns.b", "ns.c", "ns.d", "messages", "nope"};
constexpr std::string_view kTargets[] = {"ns.a", "ns.b", "ns.c", "ns.d"};
constexpr std::string_view kConstants[] = {"1",
                                           "0",
                                           "-1",
                                           "none",
                                           "true",
                                           "2.5",
                                           "''",
                                           "'a'",
                                           "'<'",
                                           "'\xC3\xA9'",
                                           "'\\x01'",
                                           "'a b\\nc'",
                                           "' '",
                                           "9223372036854775807",
                                           "10**9",
                                           "1000",
                                           "(1, 2)",
                                           "[3, 1, 2]",
                                           "{'a': 1, 'b': 2}",
                                           "range(9)",
                                           "'{} %s'"};
constexpr std::string_view kFilters[] = {
    "abs",        "attr",    "capitalize", "count",  "d",      "default",  "dictsort",   "e",
    "escape",     "first",   "float",      "format", "indent", "int",      "items",      "join",
    "last",       "length",  "list",       "lower",  "map",    "max",      "min",        "reject",
    "rejectattr", "replace", "reverse",    "round",  "safe",   "select",   "selectattr", "sort",
    "string",     "sum",     "title",      "tojson", "trim",   "truncate", "unique",     "upper"};
constexpr std::string_view kMethods[] = {
    "capitalize", "casefold", "center",     "count",      "endswith",     "find",
    "format",     "index",    "isalnum",    "isspace",    "isupper",      "join",
    "ljust",      "lower",    "lstrip",     "partition",  "removeprefix", "removesuffix",
    "replace",    "rfind",    "rindex",     "rjust",      "rpartition",   "rsplit",
    "rstrip",     "split",    "splitlines", "startswith", "strip",        "title",
    "upper",      "zfill",    "copy",       "get",        "items",        "keys",
    "values",     "next",     "cycle",      "changed"};
constexpr std::string_view kOperators[] = {"+",  "-", "*",  "/", "//", "%",      "**",  "~", "==",
                                           "!=", "<", "<=", ">", "in", "not in", "and", "or"};
constexpr std::string_view kTests[] = {"defined",  "string",       "escaped",        "iterable",
                                       "mapping",  "upper",        "lower",          "eq(ns.a)",
                                       "in(ns.b)", "sameas(ns.c)", "divisibleby(2)", "callable"};
constexpr std::string_view kCalls[] = {"range",        "dict", "namespace",      "joiner",
                                       "strftime_now", "m",    "raise_exception"};
constexpr std::string_view kNames[] = {"attribute", "default", "count",          "a",
                                       "indent",    "reverse", "case_sensitive", "chars"};

class Writer {
 public:
  explicit Writer(Choices& choices) : choices_(choices) {}

  std::string template_text() {
    text_ = "{% set ns = namespace(a=(1,), b=['a'], c='ab', d={'a': 1}) %}";
    while (choices_.any_left() && text_.size() < kMaxSourceBytes) statement(0);
    return std::move(text_);
  }

 private:
  std::string variable() { return choices_.one_of(kVariables); }

  /// One that holds others more than once.
  std::string doubled() {
    const std::string a = variable();
    const std::string b = choices_.below(2) == 0 ? a : variable();
    switch (choices_.below(9)) {
      case 0:
        return "(" + a + ", " + b + ")";
      case 1:
        return "[" + a + ", " + b + "]";
      case 2:
        return "{'a': " + a + ", 'b': " + b + "}";
      case 3:
        return "{" + a + ": " + b + "}";
      case 4:
        return a + " + " + b;
      case 5:
        return a + " ~ " + b;
      case 6:
        return a + " * 2";
      case 7:
        return "dict([(" + a + ", " + b + ")])";
      default:
        return "(" + a + ", joiner(" + b + "))";
    }
  }

  std::string arguments(int depth) {
    std::string list;
    const size_t n = choices_.below(4);
    for (size_t i = 0; i < n; ++i) list += expression(depth + 1) + ", ";
    if (choices_.below(4) == 0) list += choices_.one_of(kNames) + "=" + expression(depth + 1);
    return "(" + list + ")";
  }

  std::string expression(int depth) {
    if (depth > 4) return variable();
    switch (choices_.below(14)) {
      case 0:
      case 1:
        return variable();
      case 2:
        return choices_.one_of(kConstants);
      case 3:
      case 4:
        return "(" + doubled() + ")";
      case 5:
      case 6:
        return "(" + expression(depth + 1) + ")|" + choices_.one_of(kFilters) +
               (choices_.below(2) == 0 ? "" : arguments(depth));
      case 7:
        return "(" + expression(depth + 1) + ")|" +
               (choices_.below(2) == 0 ? "map('" : "select('") + choices_.one_of(kFilters) +
               "')|list";
      case 8:
        return "(" + expression(depth + 1) + ")." + choices_.one_of(kMethods) + arguments(depth);
      case 9:
        return "(" + expression(depth + 1) + ") " + choices_.one_of(kOperators) + " (" +
               expression(depth + 1) + ")";
      case 10:
        return "(" + expression(depth + 1) + ")[" + expression(depth + 1) + "]";
      case 11:
        return "(" + expression(depth + 1) + ")[" + choices_.one_of(kConstants) + ":" +
               choices_.one_of(kConstants) + ":" + choices_.one_of(kConstants) + "]";
      case 12:
        return "(" + expression(depth + 1) + ") is " + choices_.one_of(kTests);
      default:
        return choices_.one_of(kCalls) + arguments(depth);
    }
  }

  void body(int depth) {
    const size_t n = 1 + choices_.below(3);
    for (size_t i = 0; i < n; ++i) statement(depth + 1);
  }

  void statement(int depth) {
    if (text_.size() > kMaxSourceBytes) return;
    switch (depth > 5 ? choices_.below(3) : choices_.below(10)) {
      case 0:
      case 1:
        text_ += "{% set " + choices_.one_of(kTargets) + " = " + doubled() + " %}";
        break;
      case 2:
        text_ += "{{ " + expression(0) + " }}";
        break;
      case 3:
      case 4: {
        constexpr std::string_view kTimes[] = {"range(60)", "range(9)", "range(99999)", "messages"};
        text_ += "{% for i in " + choices_.one_of(kTimes) + " %}";
        body(depth);
        text_ += "{% endfor %}";
        break;
      }
      case 5:
        text_ += "{% set " + choices_.one_of(kTargets) + " = " + expression(0) + " %}";
        break;
      case 6:
        text_ += "{% set x %}";
        body(depth);
        text_ += "{% endset %}{% set " + choices_.one_of(kTargets) + " = x %}";
        break;
      case 7:
        text_ += "{% macro m(a, b=1) %}{{ varargs }}{{ kwargs }}";
        body(depth);
        text_ += "{% endmacro %}";
        break;
      case 8:
        text_ += "{% for i in " + expression(0) + " recursive %}{{ loop.changed(i) }}";
        body(depth);
        text_ += "{% set ns.d = loop %}{% endfor %}";
        break;
      default:
        text_ += "{% if " + expression(0) + " %}";
        body(depth);
        text_ += "{% else %}{% filter " + choices_.one_of(kFilters) + " %}";
        body(depth);
        text_ += "{% endfilter %}{% endif %}";
        break;
    }
  }

  Choices& choices_;
  std::string text_;
};

const nlohmann::ordered_json& conversation() {
  static const nlohmann::ordered_json kContext = {
      {"messages",
       {{{"role", "user"}, {"content", "Be \xC3\xA4\xE4\xB8\x96 <brief>."}},
        {{"role", "assistant"}, {"content", nullptr}}}}};
  return kContext;
}

void run(const std::string& source) {
  const Result<ChatTemplate> parsed = ChatTemplate::parse(source);
  if (!parsed.ok()) return check_error(parsed.error());
  RenderOptions options{.now = std::tm{}, .max_steps = kMaxSteps, .max_bytes = kMaxBytes};
  options.now->tm_mday = 1;
  const std::clock_t start = std::clock();
  const Result<std::string> text = parsed->render(conversation(), options);
  promise(static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC < kMaxSeconds,
          "time is bounded");
  if (!text.ok()) check_error(text.error());
  promise(!text.ok() || text->size() <= kMaxBytes, "no text beyond the limit");
  const Result<std::string> again = parsed->render(conversation(), options);
  promise(again.ok() == text.ok() && (!text.ok() || *again == *text),
          "a template renders the same text again");
  int asked = 0;
  options.stopped = [&asked] { return ++asked > 1; };
  const Result<std::string> stopped = parsed->render(conversation(), options);
  promise(asked <= 2, "who is told to stop does not ask again");
  promise(asked < 2 || stopped.error().code == ErrorCode::kCancelled, "stops when it is told to");
}

}  // namespace
}  // namespace pumice::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  pumice::fuzz::Choices choices(data, size);
  const std::string source = pumice::fuzz::Writer(choices).template_text();
  if (std::getenv("PUMICE_FUZZ_SHOW") != nullptr) std::fprintf(stderr, "%s\n", source.c_str());
  const pumice::fuzz::MemoryMeter meter;
  pumice::fuzz::run(source);
  pumice::fuzz::promise(meter.peak_bytes() < pumice::fuzz::kMaxHeapBytes, "memory is bounded");
  return 0;
}
