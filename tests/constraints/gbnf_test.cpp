#include "constraints/gbnf.hpp"

#include <gtest/gtest.h>

#include <string>

#include "tests/constraints/support.hpp"

namespace pumice::testing {
namespace {

const SmallVocabulary& bytes_vocabulary() {
  static const SmallVocabulary kVocabulary([] {
    std::vector<std::string> texts;
    for (char c = '!'; c < '\x7F'; ++c) texts.push_back(std::string(1, c));
    for (const char* text :
         {"\xE2\x96\x81", "<0x0A>", "<0xC3>", "<0xA9>", "true", "\":", "{\"", "\xC3\xA9"})
      texts.push_back(text);
    return texts;
  }());
  return kVocabulary;
}

std::optional<TokenId> find_token(std::string_view text) {
  return bytes_vocabulary().tokenizer->vocabulary().find(text);
}

Result<Grammar> parse(std::string_view text) { return parse_gbnf(text, find_token); }

Matcher matcher_of(std::string_view text) {
  return Matcher(Constraint::create(parse(text).value(), bytes_vocabulary().trie).value());
}

bool takes(std::string_view grammar, std::string_view text) {
  Matcher matcher = matcher_of(grammar);
  for (const TokenId token :
       bytes_vocabulary().tokenizer->encode(text, {.add_special = false}).value()) {
    if (!matcher.accept(token).ok()) return false;
  }
  return matcher.can_end().value();
}

constexpr std::string_view kJson = R"(# JSON
root   ::= object
value  ::= object | array | string | number |
           ("true" | "false" | "null") ws
object ::= "{" ws ( string ":" ws value ("," ws string ":" ws value)* )? "}" ws
array  ::= "[" ws ( value ("," ws value)* )? "]" ws
string ::= "\"" (
    [^"\\\x7F\x00-\x1F] |
    "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4})
  )* "\"" ws
number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws
ws ::= | " " | "\n" [ \t]{0,20}
)";

TEST(Gbnf, Json) {
  EXPECT_TRUE(takes(kJson, R"({"a": [1, {"b":-2.5e+3}, "x\u00e9\n"], "c":true})"));
  EXPECT_TRUE(takes(kJson, "{}"));
  EXPECT_FALSE(takes(kJson, R"({"a": [1, {"b":-2.5e+3}, "x"]])"));
  EXPECT_FALSE(takes(kJson, R"({"a" 1})"));
  EXPECT_FALSE(takes(kJson, "[1]"));
}

TEST(Gbnf, ArithmeticRecursesOnTheLeft) {
  constexpr std::string_view kGrammar = R"g(
root ::= (expr "=" term "\n")+
expr ::= expr [-+*/] term | term
term ::= [a-z] [a-z0-9_]* | [0-9]+ | "(" expr ")"
)g";
  EXPECT_TRUE(takes(kGrammar, "a+(b2*3)-c=4\n1=1\n"));
  EXPECT_FALSE(takes(kGrammar, "a+=4\n"));
}

TEST(Gbnf, LiteralsAndClassesAreCharacters) {
  EXPECT_TRUE(takes(R"(root ::= "\x41\u00e9" [\u00e0-\u00ff]{2} . [^a] [a\]\-])",
                    "A\xC3\xA9\xC3\xA9\xC3\xA9zb]"));
  EXPECT_FALSE(takes(R"(root ::= [^a])", "a"));
  EXPECT_FALSE(takes(R"(root ::= [^a])", "bb"));
}

TEST(Gbnf, TokensAreTerminals) {
  Matcher matcher = matcher_of("root ::= <think> (!<[3]>)* <[3]> \"a\" | <ctl>");
  EXPECT_EQ(allowed(matcher),
            (std::vector<TokenId>{SmallVocabulary::kThink, SmallVocabulary::kControl}));
  ASSERT_TRUE(matcher.accept(SmallVocabulary::kThink).ok());
  const std::vector<TokenId> inside = allowed(matcher);
  EXPECT_EQ(inside.front(), TokenId{SmallVocabulary::kThink});
  EXPECT_EQ(inside.size(), bytes_vocabulary().trie->n_tokens() - SmallVocabulary::kFirst + 1);
  ASSERT_TRUE(matcher.accept(*find_token("true")).ok());
  ASSERT_TRUE(matcher.accept(SmallVocabulary::kThink).ok());
  EXPECT_EQ(allowed(matcher), std::vector<TokenId>{*find_token("a")});
}

TEST(Gbnf, ErrorsSayWhere) {
  const std::pair<const char*, const char*> cases[] = {
      {"root ::= \"a\"\nother = \"b\"", "grammar, line 2, column 7: ::= was expected"},
      {"root ::= a", "grammar, line 1, column 10: the rule a is used but not defined"},
      {"rot ::= \"a\"", "no rule named root"},
      {"root ::= \"a", "line 1, column 10: a literal that is not closed"},
      {"root ::= [a", "column 10: a [ that is not closed"},
      {"root ::= (\"a\"", "column 10: a ( that is not closed"},
      {"root ::= \"a\" )", "column 14: a ) that closes nothing"},
      {"root ::= \"a\"\nroot ::= \"b\"", "line 2, column 1: this rule is defined already"},
      {"root ::= \"\\q\"", "column 11: an escape that is not known"},
      {"root ::= \"\\u00\"", "too few hexadecimal digits"},
      {"root ::= [b-a]", "ends before it begins"},
      {"root ::= \"a\"{3,2}", "least number is above"},
      {"root ::= \"a\"{x}", "a number was expected"},
      {"root ::= <nope>", "column 10: the vocabulary has no token <nope>"},
      {"root ::= <[x]>", "a token's number was expected"},
      {"root ::= *", "was expected"},
      {"", "no rule named root"},
  };
  for (const auto& [text, what] : cases) {
    const Result<Grammar> parsed = parse(text);
    ASSERT_FALSE(parsed.ok()) << text;
    EXPECT_NE(parsed.error().message.find(what), std::string::npos) << parsed.error().message;
  }
}

TEST(Gbnf, HostileOnesEndInBoundedTimeAndMemory) {
  std::string alternatives = "root ::= (\"x0\"";
  for (int i = 1; i < 100'000; ++i) alternatives += "|\"x" + std::to_string(i) + "\"";
  EXPECT_TRUE(takes(alternatives + ")", "x31415"));
  EXPECT_FALSE(parse("root ::= " + std::string(100'000, '(')).ok());
  EXPECT_TRUE(takes("root ::= (([a]*)*)* \"b\"", "aaaaaaaaaaaaab"));

  const Result<Grammar> endless = parse("root ::= root \"a\" | other\nother ::= root");
  ASSERT_TRUE(endless.ok());
  EXPECT_FALSE(Constraint::create(*endless, bytes_vocabulary().trie).ok());

  // Every way of cutting the text is another tree: rows grow with it, and fuel ends it.
  const auto ambiguous = parse("root ::= root root | \"a\" | \"(\" root \")\"");
  const auto constraint =
      Constraint::create(*ambiguous, bytes_vocabulary().trie, {.fuel = 200'000}).value();
  Matcher matcher(constraint);
  Status last;
  for (int i = 0; i < 3000 && last.ok(); ++i) last = matcher.accept(*find_token("a"));
  ASSERT_FALSE(last.ok());
  EXPECT_EQ(last.error().code, ErrorCode::kDoesNotFit);
}

}  // namespace
}  // namespace pumice::testing
