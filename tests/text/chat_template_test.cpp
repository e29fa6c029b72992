// Chat templates: what Jinja2 renders, what it refuses, and what no template may cost.
#include "text/chat_template.hpp"

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

#include "tests/shared_data.hpp"

namespace pumice {
namespace {

using Json = nlohmann::ordered_json;
using ::testing::HasSubstr;

std::tm july_2025() {
  std::tm time{};
  time.tm_year = 125;
  time.tm_mon = 6;
  time.tm_mday = 10;
  time.tm_hour = 12;
  time.tm_wday = 4;
  time.tm_yday = 190;
  return time;
}

Result<std::string> render(std::string_view source, const Json& context = Json::object(),
                           RenderOptions options = {}) {
  PUMICE_TRY(const ChatTemplate compiled, ChatTemplate::parse(source));
  if (!options.now) options.now = july_2025();
  return compiled.render(context, options);
}

/// The text, or what went wrong.
std::string shown(std::string_view source, const Json& context = Json::object()) {
  const Result<std::string> text = render(source, context);
  return text.ok() ? *text : "error: " + text.error().message;
}

std::string read(const std::filesystem::path& path) {
  std::ifstream stream(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(stream), {});
}

TEST(SharedTemplates, RenderAsJinja2RendersThemAndFailWhereItFails) {
  PUMICE_REQUIRE_SHARED(folder, "templates");
  const auto context_file = [&](const std::string& name) {
    const bool ours = name == "tool_use_objargs" || name == "multi";
    return Json::parse(read(folder / ((ours ? "ctx_" : "minja_ctx_") + name + ".json")));
  };
  std::ifstream goldens(folder / "goldens.jsonl");
  int n_errors = 0;
  int n_texts = 0;
  for (std::string line; std::getline(goldens, line);) {
    const Json golden = Json::parse(line);
    SCOPED_TRACE(golden["template"].dump() + golden["context"].dump());
    Json context = context_file(golden["context"]);
    context["add_generation_prompt"] = golden["add_generation_prompt"];
    const Result<std::string> text =
        render(read(folder / "jinja" / golden["template"].get<std::string>()), context);
    if (golden.contains("error")) {
      ++n_errors;
      ASSERT_FALSE(text.ok()) << *text;
      const std::string error = golden["error"];
      EXPECT_THAT(text.error().message, HasSubstr(error.substr(error.find(' ') + 1)));
      continue;
    }
    ++n_texts;
    ASSERT_TRUE(text.ok()) << text.error().message;
    EXPECT_EQ(*text, golden["expected"].get<std::string>());
  }
  EXPECT_GT(n_texts, 200);
  EXPECT_GT(n_errors, 20);
}

TEST(SharedTemplates, UnitCasesRenderAsExpected) {
  PUMICE_REQUIRE_SHARED(path, "templates/jinja_unit_cases.json");
  const Json cases = Json::parse(read(path));
  EXPECT_GT(cases.size(), 90u);
  for (const Json& one : cases) {
    EXPECT_EQ(shown(one["template"].get<std::string>(), one["context"]),
              one["expected"].get<std::string>())
        << one["name"];
  }
}

struct Case {
  std::string_view source;
  std::string_view text;
};

Json conversation() {
  return Json::parse(R"({"n": 3, "none": null, "l": [3, 1, 2], "d": {"a": 1, "b": [null, true]},
    "s": "Hello, World", "u": "Äpfel 世界", "m": [{"role": "user"}, {"role": "tool"}]})");
}

void expect_texts(std::initializer_list<Case> cases) {
  for (const Case& one : cases)
    EXPECT_EQ(shown(one.source, conversation()), one.text) << one.source;
}

// What each of these renders is Jinja2 3.1.6's.
TEST(ChatTemplate, PrintsValuesAsPythonDoes) {
  expect_texts(
      {{"{{ d }}{{ l }}{{ (1,) }}{{ none }}{{ true }}",
        "{'a': 1, 'b': [None, True]}[3, 1, 2](1,)NoneTrue"},
       {"{{ ['it\\'s', '\"', '\\n\\x00\\xa0世'] }}", "[\"it's\", '\"', '\\n\\x00\\xa0世']"},
       {"{{ 1/3 }} {{ 1e16 }} {{ 1e15 }} {{ 3.0 }} {{ 1e-5 }} {{ 0.0001 }} {{ -0.0 }}",
        "0.3333333333333333 1e+16 1000000000000000.0 3.0 1e-05 0.0001 -0.0"},
       {"{{ range(1, 9, 3) }}{{ d.keys() }}", "range(1, 9, 3)dict_keys(['a', 'b'])"},
       {"{{ l | map('string') }}", "<generator object sync_do_map>"},
       {"[{{ nope }}{{ d.nope }}{{ n.nope }}{{ l[9] }}]", "[]"}});
}

TEST(ChatTemplate, ComputesAsPythonDoes) {
  expect_texts(
      {{"{{ 7 // 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 7 % -3 }} {{ 7.5 // 2 }} {{ 4 / 2 }}",
        "3 -4 2 -2 3.0 2.0"},
       {"{{ 2 ** 3 ** 2 }} {{ 2 ** -1 }} {{ true + 1 }} {{ (1 + 2) * 3 ~ 4 }}", "64 0.5 2 94"},
       {"{{ 1 == 1.0 }}{{ 1 == '1' }}{{ [1] == (1,) }}{{ 1 < 2 < 3 }}{{ 2 in l }}{{ 'a' in d }}",
        "TrueFalseFalseTrueTrueTrue"},
       {"{{ l and [] or 'x' }}{{ not n is string }}{{ -1 | abs }}", "xTrue1"},
       {"{{ 'a' 'b' * 2 }}{{ l + [4] }}{{ '%05.1f|%-4s|%r' % (2.55, 'a', 'b') }}",
        "abab[3, 1, 2, 4]002.5|a   |'b'"},
       {"{{ '{:>4}|{:05d}|{0[a]}'.format(1, 2) if false else '{:>4}|{:05d}'.format(1, 2) }}",
        "   1|00002"}});
}

TEST(ChatTemplate, CountsCodePoints) {
  expect_texts(
      {{"{{ u | length }}{{ u[0] }}{{ u[-2:] }}{{ u[::-1] }}", "8Ä世界界世 lefpÄ"},
       {"{{ u.find('世') }}{{ u.upper() }}{{ u.center(10, '世') }}", "6ÄPFEL 世界世Äpfel 世界世"},
       {"{{ l[::-1] }}{{ l[-2:] }}{{ s[10:2:-2] }}{{ l[5:] }}", "[2, 1, 3][1, 2]lo o[]"},
       {"{{ '\xC2\xA0 x\xE3\x80\x80'.strip() }}{{ u | tojson(ensure_ascii=true) }}",
        "x\"\\u00c4pfel \\u4e16\\u754c\""}});
}

TEST(ChatTemplate, KeepsVariablesInTheirScopes) {
  expect_texts(
      {{"{% set x = 0 %}{% for i in l %}{{ x }}{% set x = i %}{{ x }}{% endfor %}{{ x }}",
        "0301020"},
       {"{% set ns = namespace(x=0) %}{% for i in l %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x "
        "}}",
        "6"},
       {"{% if n %}{% set x = 1 %}{% endif %}{{ x }}{% with x = 2 %}{{ x }}{% endwith %}{{ x }}",
        "121"},
       {"{% macro f() %}{{ x }}{% endmacro %}{% set x = 9 %}{{ f() }}", "9"},
       {"{% generation %}{% set z = 1 %}a{% endgeneration %}{{ z }}", "a"}});
}

/// Expected texts are Python's.
TEST(ChatTemplate, PrintsPrettilyAsPythonDoes) {
  const Json context = Json::parse(
      R"({"tools": [{"type": "function", "function": {"name": "get_weather", "description": "Say what the weather is like in a city, today or on one of the next seven days, and nothing else.\nSecond line", "parameters": {"type": "object", "required": ["city"], "properties": {"days": {"type": "integer", "minimum": 0, "maximum": 7}, "city": {"type": "string"}}}}}], "s": "Words, many of them, which are far more than what one line of eighty columns could ever hold.\nA second line.", "w": "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy", "wide": ["éééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééé", "éééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééé"]})");
  const std::pair<std::string_view, std::string_view> cases[] = {
      {R"({{ {'b': 1, 'a': [2, none, 1.5]} | pprint }}{{ 'a' | pprint }}{{ [] | pprint }})",
       R"({'a': [2, None, 1.5], 'b': 1}'a'[])"},
      {R"({{ tools | pprint }})",
       R"([{'function': {'description': 'Say what the weather is like in a city, today '
                              'or on one of the next seven days, and nothing '
                              'else.\n'
                              'Second line',
               'name': 'get_weather',
               'parameters': {'properties': {'city': {'type': 'string'},
                                             'days': {'maximum': 7,
                                                      'minimum': 0,
                                                      'type': 'integer'}},
                              'required': ['city'],
                              'type': 'object'}},
  'type': 'function'}])"},
      {R"({{ s | pprint }})",
       R"(('Words, many of them, which are far more than what one line of eighty columns '
 'could ever hold.\n'
 'A second line.'))"},
      {R"({{ [s] | pprint }})",
       R"(['Words, many of them, which are far more than what one line of eighty columns '
 'could ever hold.\n'
 'A second line.'])"},
      {R"({{ w | pprint }})",
       R"(('xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx '
 'yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy'))"},
      {R"({{ (s,) | pprint }})",
       R"(('Words, many of them, which are far more than what one line of eighty columns '
 'could ever hold.\n'
 'A second line.',))"},
      {R"({{ wide | pprint }})",
       R"(['éééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééé',
 'éééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééé'])"},
      {R"({{ {2: 1, 'a': 2, 1: s} | pprint }})",
       R"({1: 'Words, many of them, which are far more than what one line of eighty '
    'columns could ever hold.\n'
    'A second line.',
 2: 1,
 'a': 2})"},
      {R"({{ {'k' * 70: {'b': s, 'a': 1}} | pprint }})",
       R"({'kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk': {'a': 1,
                                                                            'b': 'Words, '
                                                                                 'many '
                                                                                 'of '
                                                                                 'them, '
                                                                                 'which '
                                                                                 'are '
                                                                                 'far '
                                                                                 'more '
                                                                                 'than '
                                                                                 'what '
                                                                                 'one '
                                                                                 'line '
                                                                                 'of '
                                                                                 'eighty '
                                                                                 'columns '
                                                                                 'could '
                                                                                 'ever '
                                                                                 'hold.\n'
                                                                                 'A '
                                                                                 'second '
                                                                                 'line.'}})"},
      {R"({{ range(30) | map('string') | list | pprint }})",
       R"(['0',
 '1',
 '2',
 '3',
 '4',
 '5',
 '6',
 '7',
 '8',
 '9',
 '10',
 '11',
 '12',
 '13',
 '14',
 '15',
 '16',
 '17',
 '18',
 '19',
 '20',
 '21',
 '22',
 '23',
 '24',
 '25',
 '26',
 '27',
 '28',
 '29'])"},
  };
  for (const auto& [source, text] : cases) EXPECT_EQ(shown(source, context), text) << source;
}

TEST(ChatTemplate, WritesAttributesOfXml) {
  expect_texts(
      {{"{{ {'id': 'a<b', 'n': none, 'u': nope, 'k': 1} | xmlattr }}", " id=\"a&lt;b\" k=\"1\""},
       {"{{ {'a': 1, 'b': 2} | xmlattr(false) }}|{{ {} | xmlattr }}", "a=\"1\" b=\"2\"|"}});
}

TEST(ChatTemplate, LoopsKnowWhereTheyAre) {
  expect_texts({{"{% for x in l %}{{ loop.index }}{{ loop.revindex0 }}{{ loop.last }}{{ "
                 "loop.previtem }}{{ loop.nextitem }} {% endfor %}",
                 "12False1 21False32 30True1 "},
                {"{% for x in l if x > 1 %}{{ x }}{{ loop.length }}{% else %}-{% endfor %}{% for x "
                 "in [] %}{% else %}-{% endfor %}",
                 "3222-"},
                {"{% for x in l %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% if x == 2 %}{% "
                 "break %}{% endif %}{% endfor %}",
                 "32"},
                {"{% for t in [[1, [2, [3]]]] recursive %}{{ t if t is number else '(' ~ loop(t) ~ "
                 "')' }}{% endfor %}",
                 "(1(2(3)))"},
                {"{% for x in l %}{{ loop.cycle('a', 'b') }}{{ loop.changed(x > 1) }}{% endfor %}",
                 "aTruebTrueaTrue"},
                {"{% for k, v in d.items() %}{{ k }}{{ v }}{% endfor %}", "a1b[None, True]"},
                {"{% set g = l | map('string') %}{{ g | join }}{{ g | join }}!", "312!"}});
}

TEST(ChatTemplate, MacrosTakeArgumentsAsPythonDoes) {
  expect_texts({{"{% macro f(a, b=2, c=a) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ f(1) }}{{ f(1, "
                 "c=5) }}{{ f() }}",
                 "1211252"},
                {"{% macro f(a) %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ f(1, 2, z=3) }}",
                 "(2,){'z': 3}"},
                {"{% macro f() %}[{{ caller(1) }}]{% endmacro %}{% call(a) f() %}{{ a }}{{ n }}{% "
                 "endcall %}",
                 "[13]"},
                {"{% set x | upper %}a{{ n }}{% endset %}{{ x }}{% filter upper %}b{% endfilter %}",
                 "A3B"}});
}

TEST(ChatTemplate, TrimsTagsAsTransformersAsksFor) {
  expect_texts({{"a\n  {% if n %}\n  b\n  {% endif %}\n  c\n", "a\n  b\n  c"},
                {"  {{ n }}\n  {%+ if n %}x{% endif +%}\ny", "  3\n  x\ny"},
                {"a  {{- n -}}  b {#- c -#} d", "a3bd"},
                {"a\r\nb\rc\n\n", "a\nb\nc\n"},
                {"{% raw %} {{ x }} {% endraw -%}  b", " {{ x }} b"}});
}

TEST(ChatTemplate, RefusesWhatPythonRefusesAndNamesTheLine) {
  const std::pair<std::string_view, std::string_view> cases[] = {
      {"\n\n{{ raise_exception('no system role') }}", "line 3: no system role"},
      {"{{ nope.x }}", "'nope' is undefined"},
      {"{{ d.x.y }}", "'dict object' has no attribute 'x'"},
      {"{{ none.x.y }}", "'None' has no attribute 'x'"},
      {"{{ l.append(1) }}", "access to attribute 'append' of 'list' object is unsafe"},
      {"{{ d.update({}) }}", "unsafe"},
      {"{{ ''.__class__.mro }}", "unsafe"},
      {"{{ '{0.__class__.mro}'.format(1) }}", "unsafe"},
      {"{{ s + 1 }}", "can only concatenate str"},
      {"{{ 1 < 'a' }}", "'<' not supported"},
      {"{{ 1 // 0 }}", "zero"},
      {"{{ 1 % 0 }}", "zero"},
      {"{{ range(100001) }}", "range too big"},
      {"{{ l | map('string') | length }}", "has no len()"},
      {"{{ n | items }}", "Can only get item pairs from a mapping."},
      {"{{ nope | tojson }}", "not JSON serializable"},
      {"{{ {[1]: 2} }}", "unhashable"},
      {"{{ n | nosuch }}", "no filter named 'nosuch'"},
      {"{{ l | random }}", "no filter named 'random'"},
      {"{{ lipsum() }}", "'lipsum' is undefined"},
      {"{{ n | xmlattr }}", "'int' object has no attribute 'items'"},
      {"{{ {'a b': 1} | xmlattr }}", "Invalid character in attribute name: a b"},
      {"{{ n is nosuch }}", "no test named 'nosuch'"},
      {"{% for a, b in [[1]] %}{% endfor %}", "unpack"},
      {"{% set d.a = 1 %}", "non-namespace"},
      {"{% macro f() %}{% endmacro %}{{ f(1) }}", "takes not more than 0"},
      {"{{ 9223372036854775807 + 1 }}", "64 bits"},
  };
  for (const auto& [source, words] : cases) {
    const Result<std::string> text = render(source, conversation());
    ASSERT_FALSE(text.ok()) << source;
    EXPECT_EQ(text.error().code, ErrorCode::kInvalidArgument) << source;
    EXPECT_THAT(text.error().message, HasSubstr(words)) << source;
  }
}

TEST(ChatTemplate, RefusesToParseWhatIsNoTemplate) {
  const std::pair<std::string_view, std::string_view> cases[] = {
      {"a\n{% if %}", "line 2"},
      {"{% if n %}", "expected 'endif'"},
      {"{% endfor %}", "unknown tag 'endfor'"},
      {"{{ (1 }}", "unexpected '}'"},
      {"{{ 'a }}", "string without its end"},
      {"{{ a b }}", "found 'b'"},
      {"{{ 99999999999999999999 }}", "64 bits"},
      {"{# x", "comment"},
      {"{% raw %}", "endraw"},
      {"{% break %}", "outside of a loop"},
      {"{% include 'x' %}", "needs other templates"},
      {"{% extends 'x' %}", "needs other templates"},
      {"{% do x %}", "unknown tag 'do'"},
      {"{% set true = 1 %}", "cannot assign"},
      {"\xFF", "UTF-8"},
  };
  for (const auto& [source, words] : cases) {
    const Result<ChatTemplate> parsed = ChatTemplate::parse(source);
    ASSERT_FALSE(parsed.ok()) << source;
    EXPECT_EQ(parsed.error().code, ErrorCode::kBadFile);
    EXPECT_THAT(parsed.error().message, HasSubstr(words)) << source;
  }
}

std::string repeated(std::string_view text, int count) {
  std::string result;
  for (int i = 0; i < count; ++i) result += text;
  return result;
}

TEST(HostileTemplate, EndsWithinItsStepsAndMemory) {
  constexpr std::string_view kGrown =
      "{% set ns = namespace(x=[1], y=[1]) %}{% for a in range(150) %}";
  const std::string doubled =
      std::string(kGrown) +
      "{% set ns.x = [ns.x, ns.x] %}{% set ns.y = [ns.y, ns.y] %}{% endfor %}";
  const std::string sources[] = {
      "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
      "{% for a in range(99999) %}{% for b in range(99999) %}some text{% endfor %}{% endfor %}",
      "{% for a in range(99999) %}{% for b in range(99999) %}{% macro m() %}{% endmacro %}{% "
      "endfor %}{% endfor %}",
      "{% for a in range(99999) %}{% for b in range(99999) %}{% set ns = namespace(x=a) %}{% "
      "endfor %}{% endfor %}",
      "{% set ns = namespace(x='x') %}{% for a in range(99) %}{% set ns.x = ns.x ~ ns.x %}{% "
      "endfor %}",
      "{% set ns = namespace(x=[1]) %}{% for a in range(99) %}{% set ns.x = ns.x + ns.x %}{% "
      "endfor %}",
      doubled + "{{ ns.x }}",
      doubled + "{{ ns.x | tojson }}",
      doubled + "{{ ns.x == ns.y }}",
      doubled + "{{ ns.x < ns.y }}",
      "{{ 'x' * 10 ** 10 }}",
      "{{ [1] * 10 ** 12 }}",
      "{{ 'x'.center(10 ** 15) }}",
      "{{ 'x' | indent(10 ** 15) }}",
      "{{ (['x' * 100000] * 9999) | join }}",
      "{{ ('x' * 100000) | replace('x', 'y' * 100000) }}",
      "{{ ([1] * 10000) | tojson(indent=1000) }}",
      "{{ [1] | batch(10 ** 15, 'x') | list }}",
      "{{ [1] | slice(10 ** 15) | list }}",
      "{% for i in range(99999) %}{{ 'b' in ('a' * 1000000) }}{% endfor %}",
      "{% set ns = namespace(x=1) %}{% for a in range(999) %}{% set ns.x = [ns.x] %}{% endfor %}",
      "{% set ns = namespace(x=[1]) %}{% for a in range(999) %}{% set ns.x = [ns.x.count] %}{% "
      "endfor %}",
      "{% set ns = namespace(x=1) %}{% for a in range(999) %}{% for y in [ns.x] %}{% set ns.x = "
      "loop %}{% endfor %}{% endfor %}",
      "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
      "{% macro f() %}{% call f() %}{{ caller() }}{% endcall %}{% endmacro %}{{ f() }}",
      "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}",
      "{{ 'a' | map(*['map'] * 999) | list }}",
  };
  for (const std::string& source : sources) {
    const Result<std::string> text =
        render(source, Json::object(), {.max_steps = 300'000, .max_bytes = size_t{8} << 20});
    ASSERT_FALSE(text.ok()) << source;
    EXPECT_EQ(text.error().code, ErrorCode::kDoesNotFit) << source << ": " << text.error().message;
  }
}

TEST(HostileTemplate, MayHoldItself) {
  EXPECT_EQ(shown("{% set ns = namespace() %}{% set ns.a = [ns] %}{{ ns.a[0].a[0] == ns }}"
                  "{% for x in [1, 2] %}{{ loop.changed(loop) }}{% set ns.l = loop %}{% endfor %}"),
            "TrueTrueFalse");
}

TEST(HostileTemplate, IsRefusedWhereItIsNestedTooDeeply) {
  const std::string sources[] = {
      "{{ " + repeated("(", 9999) + "1" + repeated(")", 9999) + " }}",
      "{{ " + repeated("not ", 9999) + "1 }}",
      "{{ " + repeated("-", 9999) + "1 }}",
      "{{ 1" + repeated("+1", 9999) + " }}",
      "{{ a" + repeated(".a", 9999) + " }}",
      "{{ a" + repeated("|e", 9999) + " }}",
      "{{ " + repeated("1 if 1 else ", 9999) + "1 }}",
      repeated("{% if 1 %}", 9999),
      "{% for " + repeated("(", 9999) + "a" + repeated(")", 9999) + " in b %}",
  };
  for (const std::string& source : sources) {
    const Result<ChatTemplate> parsed = ChatTemplate::parse(source);
    ASSERT_FALSE(parsed.ok());
    EXPECT_THAT(parsed.error().message, HasSubstr("nested more than")) << source.substr(0, 30);
  }
  EXPECT_EQ(shown("{{ 1" + repeated("~1", 999) + " }}").size(), 1000u);
}

TEST(HostileTemplate, ValuesOfTheCallerAreNotItsOwn) {
  const Json context = {{"text", std::string(4096, 'x')}};
  EXPECT_TRUE(render("{{ text | length }}", context, {.max_bytes = 2048}).ok());
  Json deep = 1;
  for (int i = 0; i < 999; ++i) deep = Json::array({std::move(deep)});
  const Result<std::string> text = render("", {{"deep", deep}});
  ASSERT_FALSE(text.ok());
  EXPECT_EQ(text.error().code, ErrorCode::kDoesNotFit);
}

}  // namespace
}  // namespace pumice
