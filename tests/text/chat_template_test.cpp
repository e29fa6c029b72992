// Chat templates: what Jinja2 renders, what it refuses, and what no template may cost.
#include "text/chat_template.hpp"

#include <gmock/gmock.h>
#include <malloc.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

#include "tests/shared_data.hpp"
#include "text/jinja/context.hpp"

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
       {"{{ '{:>4}|{:05d}'.format(1, 2) }}", "   1|00002"}});
}

TEST(ChatTemplate, FormatsAsPythonDoes) {
  expect_texts(
      {{"{{ '%s %d %i %x %X %.2f %5.1f|%-4s|%04d|%+d' % ('a', 7, 2.9, 255, 255, 1/3, 2.25, 'b', 5, "
        "3) }}",
        "a 7 2 ff FF 0.33   2.2|b   |0005|+3"},
       {"{{ '%(a)s%%%(b)r' % {'a': 1, 'b': 'x'} }}{{ '%s: %s'|format('a', none) }}",
        "1%'x'a: None"},
       {"{{ '{1} {0} {a}'.format('x', 'y', a=3) }}", "y x 3"},
       {"{{ '{{}}{!r}{!s}'.format('a', 1) }}{{ '{:<3}|{:^5}|{:*>4}'.format('a', 'b', 'c') }}",
        "{}'a'1a  |  b  |***c"},
       {"{{ '{:,} {:.1f} {:.0%} {:x} {} {}'.format(1234567, 2.25, 0.5, 255, 1.5, true) }}",
        "1,234,567 2.2 50% ff 1.5 True"},
       {"{{ '{:.2}{:5}|'.format('abc', 2.5) }}", "ab  2.5|"}});
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

TEST(ChatTemplate, SafeTextEscapesWhatIsAddedToIt) {
  expect_texts(
      {{"{{ 'a'|safe + '\"' }} {{ '<' + 'a<'|safe }} {{ ['a<'|safe] }} {{ 'a'|safe + 'b<'|safe }}",
        "a&#34; &lt;a< [Markup('a<')] ab<"},
       {"{{ ['<'|safe * 2] }}{{ [2 * '<'|safe] }}{{ ['a'|safe ~ '<'] }}",
        "[Markup('<<')][Markup('<<')]['a<']"},
       {"{{ [('<%s>'|safe) % '<'] }}{{ [('%s %r'|safe) % ('<', '\"')] }}",
        "[Markup('<&lt;>')][Markup('&lt; &#39;&#34;&#39;')]"},
       {"{{ [('%(a)s'|safe) % {'a': '<'|safe}] }}{{ [('%5s'|safe) % '<'] }}{{ '%s' % ('<'|safe) }}",
        "[Markup('<')][Markup(' &lt;')]<"},
       {"{{ [('<{}>'|safe).format('<')] }}{{ [('{:>3}'|safe).format('<')] }}"
        "{{ ['{}'.format('<'|safe)] }}",
        "[Markup('<&lt;>')][Markup('  &lt;')]['<']"},
       {"{{ [('<'|safe).join(['>', '>'|safe, 1])] }}{{ [', '.join(['<'|safe])] }}",
        "[Markup('&gt;<><1')]['<']"},
       {"{{ [('a<'|safe).replace('a', '<')] }}{{ ['a<'|safe|replace('a', '<')] }}",
        "[Markup('&lt;<')]['<<']"},
       {"{{ [('a<'|safe)[1:]] }}{{ [('a<'|safe)[0]] }}{{ ('a,<'|safe).split(',') }}",
        "[Markup('<')][Markup('a')][Markup('a'), Markup('<')]"},
       {"{{ ('a<b'|safe).partition('<') }}{{ ('<\n>'|safe).splitlines() }}",
        "(Markup('a'), Markup('<'), Markup('b'))[Markup('<'), Markup('>')]"},
       {"{{ [(' a<'|safe).strip().upper().ljust(3)] }}{{ [('a'|safe).zfill(2)] }}",
        "[Markup('A< ')][Markup('0a')]"},
       {"{{ 'a<'|safe == 'a<' }}{{ 'a' in 'a<'|safe }}{{ {'a': 1}['a'|safe] }}{{ 'a'|safe < 'b' }}",
        "TrueTrue1True"},
       {"{{ 'a'|safe is escaped }}{{ 'a' is escaped }}{{ 'a'|safe is string }}", "TrueFalseTrue"}});
}

TEST(ChatTemplate, FiltersKeepTextSafeWhereJinja2Does) {
  expect_texts(
      {{"{{ ['<'|e, '<'|escape|e, 5|e, none|safe] }}",
        "[Markup('&lt;'), Markup('&lt;'), Markup('5'), Markup('None')]"},
       {"{{ ['<'|safe|upper, '<'|safe|trim, '<'|safe|string, '<'|safe|capitalize] }}",
        "[Markup('<'), Markup('<'), Markup('<'), Markup('<')]"},
       {"{{ ['<'|safe|reverse, '<'|safe|last, ('<'|safe).center(3), '<'|safe|indent] }}",
        "[Markup('<'), Markup('<'), Markup(' < '), Markup('<')]"},
       {"{{ ['<'|safe|title, '<'|safe|first, '<'|safe|tojson, ['<'|safe]|join('>')] }}",
        "['<', '<', '\"<\"', '<']"},
       {"{{ ['%s'|safe|format('<'), 'a<<<<<<<<<'|safe|truncate(3, true, '>')] }}",
        "[Markup('&lt;'), Markup('a<&gt;')]"},
       {"{{ '<'|safe|list }}{{ ['<', '<'|safe]|map('e')|list }}{{ ['<'|safe, '<']|unique|list }}",
        "['<'][Markup('&lt;'), Markup('<')][Markup('<')]"},
       {"{{ ['<'|safe, 'b']|select('escaped')|list }}", "[Markup('<')]"},
       {"{% set x | e %}<{% endset %}{{ [x] }}{% set y %}{{ '<'|e }}{% endset %}{{ [y] }}",
        "[Markup('&lt;')]['&lt;']"},
       {"{{ 'a\\rb\\n\\nc' | indent(1) }}", "a\n b\n\n c"}});
  EXPECT_EQ(shown("{{ 'a'|safe + 1 }}"),
            "error: chat template, line 1: unsupported operand type(s) for +: 'Markup' and 'int'");
}

TEST(ChatTemplate, NothingIsMappedOrChosenFromWhatCountsAsFalse) {
  expect_texts(
      {{"{{ none|selectattr('x')|list }}{{ none|rejectattr('x', 'nosuch')|list }}"
        "{{ 0|map('upper')|list }}{{ ''|select|list }}{{ false|reject('odd')|list }}",
        "[][][][][]"},
       {"{% for m in none|selectattr('role', 'equalto', 'x') %}a{% else %}none{% endfor %}",
        "none"},
       {"{{ none|map(attribute='x')|join }}{{ nope|map('nosuch')|list }}", "[]"}});
  for (const char* filter : {"list", "join", "first", "length", "sort", "sum", "unique|list"}) {
    EXPECT_THAT(shown(std::string("{{ none|") + filter + " }}"), HasSubstr("NoneType")) << filter;
  }
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
      {"{{ '{0.__class__.mro}'.format(1) }}", "nothing behind it"},
      {"{{ '{a}'.format(b=1) }}", "key 'a' is missing"},
      {"{{ '{:e}'.format(1.5) }}", "invalid format specifier"},
      {"{{ '{:.3}'.format(1.5) }}", "formatted by f or %"},
      {"{{ '%e' % 1.5 }}", "unsupported format character 'e'"},
      {"{{ '%*d' % (3, 1) }}", "unsupported format character '*'"},
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
      {"{{ d | xmlattr }}", "no filter named 'xmlattr'"},
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
      "{% for i in range(99999) %}{{ 'b' in ('a' * 1000000) }}{% endfor %}",
      "{% set ns = namespace(x=1) %}{% for a in range(999) %}{% set ns.x = [ns.x] %}{% endfor %}",
      "{% set ns = namespace(x=[1]) %}{% for a in range(999) %}{% set ns.x = [ns.x.count] %}{% "
      "endfor %}",
      "{% set ns = namespace(x=1) %}{% for a in range(999) %}{% for y in [ns.x] %}{% set ns.x = "
      "loop %}{% endfor %}{% endfor %}",
      "{% set ns = namespace(x=1) %}{% for a in range(999) %}{% set ns.x = joiner(ns.x) %}{% "
      "endfor "
      "%}",
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

/// The processor's time for this program, in seconds.
double processor_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

/// A value in 2^60 places of another, twice over, in 60 steps: `ns.t` and `ns.u`, which are equal.
std::string with_doubled_tuples(std::string_view what) {
  return "{% set ns = namespace(t=(1,), u=(1,)) %}{% for i in range(60) %}"
         "{% set ns.t = (ns.t, ns.t) %}{% set ns.u = (ns.u, ns.u) %}{% endfor %}" +
         std::string(what);
}

/// What the heap holds; 0 where it does not say: a sanitizer's, or one of another C library.
size_t heap_bytes() {
#ifdef __GLIBC__
  const struct mallinfo2 now = ::mallinfo2();
  return now.uordblks + now.hblkhd;
#else
  return 0;
#endif
}

/// A sanitizer takes ten times as long.
double most_seconds() { return heap_bytes() == 0 ? 30 : 3; }

TEST(HostileTemplate, EndsInSecondsWhateverItDoublesAndScans) {
  const std::string scans = "{% set x = 'ab ' * 1000000 %}{% for i in range(99999) %}";
  const std::string sources[] = {
      with_doubled_tuples("{{ {ns.t: 1} }}"),
      with_doubled_tuples("{{ dict([(ns.t, 1)]) }}"),
      with_doubled_tuples("{{ {}[ns.t] }}"),
      with_doubled_tuples("{{ {}.get(ns.t) }}"),
      with_doubled_tuples("{{ ns.t in {} }}"),
      with_doubled_tuples("{{ [ns.t, ns.u] | unique | list }}"),
      with_doubled_tuples("{{ [ns.t, ns.u] | sort }}"),
      with_doubled_tuples("{{ [ns.t, ns.u] | max }}"),
      with_doubled_tuples("{{ [{'a': ns.t}, {'a': ns.u}] | sort(attribute='a') }}"),
      with_doubled_tuples("{{ [ns.t].count(ns.u) }}"),
      with_doubled_tuples("{{ ns.t == ns.u }}"),
      with_doubled_tuples("{{ ns.t in [ns.u] }}"),
      with_doubled_tuples("{{ ns.t | tojson }}"),
      with_doubled_tuples("{{ ns.t | string }}"),
      with_doubled_tuples("{{ ns.t | e }}"),
      with_doubled_tuples("{{ ns.t ~ '' }}"),
      with_doubled_tuples("{{ [ns.t] | join }}"),
      with_doubled_tuples("{{ '%s' % (ns.t,) }}"),
      with_doubled_tuples("{{ '{}'.format(ns.t) }}"),
      with_doubled_tuples("{{ raise_exception(ns.t) }}"),
      scans + "{{ x.startswith(x) }}{% endfor %}",
      scans + "{{ x.startswith(('b', x ~ 'b', x)) }}{% endfor %}",
      scans + "{{ x.center(1) }}{% endfor %}",
      scans + "{{ x.ljust(1)[0] }}{% endfor %}",
      "{% set x = ' ' * 3000000 %}{% for i in range(99999) %}{{ x.isspace() }}{% endfor %}",
      scans + "{{ x.replace('a', '')[0] }}{% endfor %}",
      scans + "{{ x.title()[0] }}{% endfor %}",
      scans + "{{ x.count('a') }}{% endfor %}",
      scans + "{{ x.rfind('c') }}{% endfor %}",
      "{% set x = '\x01é' * 100000 %}{% for i in range(99999) %}{{ ([x] ~ '')[0] }}"
      "{% endfor %}",
  };
  for (const std::string& source : sources) {
    const double start = processor_seconds();
    const Result<std::string> text = render(source, Json::object(), {.max_steps = 2'000'000});
    EXPECT_LT(processor_seconds() - start, most_seconds()) << source;
    ASSERT_FALSE(text.ok()) << source;
    EXPECT_EQ(text.error().code, ErrorCode::kDoesNotFit) << source << ": " << text.error().message;
  }
}

TEST(HostileTemplate, TakesNoMoreMemoryThanItMay) {
  if (heap_bytes() == 0) GTEST_SKIP() << "this build's heap does not tell its size";
  constexpr size_t kMaxBytes = size_t{16} << 20;
  const std::string_view sources[] = {
      "{% set ns = namespace(x=[]) %}{% for a in range(99999) %}{% set ns.x = [ns.x, nope] %}"
      "{% endfor %}",
      "{{ range(99999) | map('attr', 'x' * 60) | list | tojson }}",
      "{{ range(99999) | map('string') | map('list') | map('list') | list }}",
      "{% for a in range(99999) %}{% set ns = namespace(x=joiner((a,))) %}{% endfor %}",
      "{% set ns = namespace(x=dict(a=1)) %}{% for a in range(99) %}{% set ns.x = dict(ns.x, "
      "b=ns.x, "
      "c=ns.x.items(), d=ns.x.keys() | list) %}{{ ns.x | length }}{% endfor %}",
      "{{ ('x ' * 5000000).split() }}",
      "{{ ('x\\n' * 5000000).splitlines() }}",
      "{{ ('x' * 5000000) | list }}",
      "{{ ('x' * 5000000)[::-1] }}",
      "{{ ('\xC3\xA9' * 4000000).title() }}",
      "{{ ([1] * 100000) | sort(attribute='a,b,c,d,e,f') }}",
      "{{ [1] * 10 ** 19 }}",
      "{{ 'x' * (10 ** 18 * 9) }}",
      "{{ 'x'.center(9223372036854775807) }}",
      "{% for a in range(99999) %}{% macro m() %}{% endmacro %}{{ 'x' * 200 }}{% endfor %}",
  };
  for (const std::string_view source : sources) {
    const size_t before = heap_bytes();
    size_t most = before;
    const auto look = [&] {
      most = std::max(most, heap_bytes());
      return false;
    };
    const Result<std::string> text =
        render(source, Json::object(), {.max_bytes = kMaxBytes, .stopped = look});
    EXPECT_LT(most - before, kMaxBytes + (size_t{4} << 20)) << source;
    EXPECT_LT(heap_bytes(), before + (size_t{1} << 20)) << source << " leaves memory behind";
  }
}

TEST(HostileTemplate, NamesFewArguments) {
  std::string arguments;
  for (int i = 0; i < 100'000; ++i) arguments += "a" + std::to_string(i) + "=1,";
  const double start = processor_seconds();
  const Result<ChatTemplate> parsed = ChatTemplate::parse("{{ dict(" + arguments + ") }}");
  EXPECT_LT(processor_seconds() - start, 3);
  ASSERT_FALSE(parsed.ok());
  EXPECT_THAT(parsed.error().message, HasSubstr("more than 255 named arguments"));
  EXPECT_EQ(shown("{{ dict(" + arguments.substr(0, arguments.find("a255=")) + ") | length }}"),
            "255");
}

TEST(HostileTemplate, RangesReachTheEndsOfTheIntegers) {
  EXPECT_EQ(shown("{{ range(-9223372036854775807, 9223372036854775807, 6148914691236517205) | list "
                  "}}{{ range(9223372036854775807, -9223372036854775807, -9223372036854775807) | "
                  "list }}"),
            "[-9223372036854775807, -3074457345618258602, 3074457345618258603]"
            "[9223372036854775807, 0]");
}

TEST(HostileTemplate, EndsWhenItIsStopped) {
  int asked = 0;
  const auto stopped = [&asked] { return ++asked == 3; };
  const Result<std::string> text =
      render("{% for a in range(99999) %}{% for b in range(99999) %}x{% endfor %}{% endfor %}",
             Json::object(), {.stopped = stopped});
  ASSERT_FALSE(text.ok());
  EXPECT_EQ(text.error().code, ErrorCode::kCancelled);
  EXPECT_THAT(text.error().message, HasSubstr("stopped"));
  EXPECT_EQ(asked, 3);
  const Json long_context = {{"l", Json(std::vector<int>(100'000))}};
  EXPECT_EQ(render("", long_context, {.stopped = [] { return true; }}).error().code,
            ErrorCode::kCancelled);
}

Json messages(size_t n, std::string_view content) {
  Json list = Json::array();
  for (size_t i = 0; i < n; ++i) list.push_back({{"role", "user"}, {"content", content}});
  return {{"messages", std::move(list)}};
}

TEST(ChatTemplate, AMessageTakesTheRoomOfItsReferencesWhateverItSays) {
  const Json json = messages(1000, std::string(10'000, 'x'));
  jinja::Budget budget;
  const Result<jinja::Context> context = jinja::context_of(budget, json);
  ASSERT_TRUE(context.ok());
  EXPECT_LT(budget.bytes(), 1000 * 256);
  EXPECT_GT(context->n_bytes, size_t{10'000'000});
}

TEST(ChatTemplate, MayTakeMoreForALongerConversation) {
  constexpr std::string_view kTurns = "{% for m in messages %}{{ m.role + m.content }}{% endfor %}";
  const RenderOptions little{.max_steps = 1000, .max_bytes = 16384};
  EXPECT_TRUE(render(kTurns, messages(1, "x"), little).ok());
  EXPECT_TRUE(render(kTurns, messages(1000, std::string(100, 'x')), little).ok());
  const Result<std::string> more =
      render("{% for a in range(9999) %}" + std::string(kTurns) + "{% endfor %}", messages(1, "x"),
             little);
  ASSERT_FALSE(more.ok());
  EXPECT_EQ(more.error().code, ErrorCode::kDoesNotFit);
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
