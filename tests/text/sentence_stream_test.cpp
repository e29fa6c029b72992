#include "text/sentence_stream.hpp"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "text/utf8.hpp"

namespace pumice {
namespace {

using Pieces = std::vector<std::string>;

std::vector<std::string> characters(std::string_view text) {
  std::vector<std::string> result;
  while (!text.empty()) {
    const size_t length = utf8_step(text).length;
    result.emplace_back(text.substr(0, length));
    text.remove_prefix(length);
  }
  return result;
}

/// What is given, piece by piece, of text that comes character by character.
Pieces pieces(std::string_view text) {
  SentenceStream stream;
  Pieces given;
  const auto add = [&](std::string piece) {
    if (!piece.empty()) given.push_back(std::move(piece));
  };
  for (const std::string& character : characters(text)) add(stream.feed(character));
  add(stream.flush());
  return given;
}

struct SentenceCase {
  const char* name;
  Pieces expected;
};

class Sentences : public testing::TestWithParam<SentenceCase> {};

// The text is the pieces together.
TEST_P(Sentences, EndWhereTheyEnd) {
  std::string text;
  for (const std::string& piece : GetParam().expected) text += piece;
  EXPECT_EQ(pieces(text), GetParam().expected);
}

INSTANTIATE_TEST_SUITE_P(
    Scripts, Sentences,
    testing::Values(
        SentenceCase{"full_stops", {"One.", " Two.", " Three"}},
        SentenceCase{"marks", {"What?", " Oh no!", " Really?!", " Well…", " so"}},
        SentenceCase{"several_stops", {"Well...", " maybe."}},
        SentenceCase{"quotes", {"\"Go!\"", " he said.", " 'Now.'", " (Truly.)", " “Yes.”", " So"}},
        SentenceCase{"emphasis", {"*She nods.*", " Fine."}},
        SentenceCase{"numbers", {"It is 3.14 or 1,000.5.", " Yes, in 1984.", " Then"}},
        SentenceCase{"lists", {"1. Milk\n", "2. Eggs.\n", " 12. Tea"}},
        SentenceCase{
            "abbreviations",
            {"Mr. and Mrs. Smith met Dr. J. R. Jones, e.g. at 5 p.m. or so.", " He left."}},
        SentenceCase{"an_answer", {"No.", " Never."}},
        SentenceCase{"addresses", {"See example.com/a?b=c!d for more.", " Bye."}},
        SentenceCase{"lines", {"Title\n", "\nText.\n", "\n\nEnd"}},
        SentenceCase{"windows_lines", {"Title\r\n", "Text.\r\n", "End"}},
        SentenceCase{"german", {"„Hallo.“", " Das ist z.B. Hr. Maier, usw. und so.", " Gut!"}},
        SentenceCase{"french", {"« Bonjour\u00A0!\u00A0»", " dit-il.", " Bien."}},
        SentenceCase{"spanish", {"¿Qué?", " ¡No!", " Sí."}},
        SentenceCase{"chinese", {"你好。", "你好吗？", "“好！”", "走吧。」", "完"}},
        SentenceCase{"japanese", {"「行く。」", "はい！", "３．５です。", "ｿｳ｡", "え？！", "次"}},
        SentenceCase{"hindi", {"नमस्ते।", " कैसे हो?", " ठीक॥"}},
        SentenceCase{"arabic", {"كيف حالك؟", " بخير۔", " شكرا."}},
        SentenceCase{"russian", {"Привет.", " Как дела?", " Хорошо!"}},
        SentenceCase{"armenian", {"Բարև։", " Այո"}}, SentenceCase{"nothing", {}},
        SentenceCase{"white_space", {"  \n \n"}}, SentenceCase{"no_end", {"and so on"}}),
    [](const auto& tested) { return std::string(tested.param.name); });

TEST(SentenceStream, GivesASentenceWithTheCharacterThatMakesItCertain) {
  SentenceStream stream;
  EXPECT_EQ(stream.feed("Hel"), "");
  EXPECT_EQ(stream.feed("lo."), "");
  EXPECT_EQ(stream.feed("\""), "");
  EXPECT_EQ(stream.feed(" And"), "Hello.\"");
  EXPECT_EQ(stream.feed(" so\nit"), " And so\n");
  EXPECT_EQ(stream.flush(), "it");
  EXPECT_EQ(stream.flush(), "");
}

TEST(SentenceStream, GivesSeveralSentencesOfOneTokenTogether) {
  SentenceStream stream;
  EXPECT_EQ(stream.feed("One. Two! Three"), "One. Two!");
  EXPECT_EQ(stream.feed(". "), " Three.");
}

TEST(SentenceStream, GivesTheSameHoweverTextIsCut) {
  const std::vector<std::string> parts = {"a",  "Mr", ".",  ". ",  "!",     "?", "…",
                                          "\n", " ",  "3",  "。",  "”",     "'", ")",
                                          "x",  "é",  "」", "e.g", "\u00A0"};
  std::mt19937 random(3);
  for (int i = 0; i < 2000; ++i) {
    std::string text;
    for (int n = static_cast<int>(random() % 30); n > 0; --n)
      text += parts[random() % parts.size()];
    std::string one_by_one;
    for (const std::string& piece : pieces(text)) one_by_one += piece;
    ASSERT_EQ(one_by_one, text) << "nothing is lost";
    SentenceStream whole;
    SentenceStream single;
    std::string given;
    for (const std::string& character : characters(text)) given += single.feed(character);
    ASSERT_EQ(whole.feed(text), given) << text;
  }
}

TEST(SentenceStream, TakesLinearTimeForAWordThatNeverEnds) {
  std::string text;
  for (int i = 0; i < 200000; ++i) text += "a.";
  SentenceStream stream;
  EXPECT_EQ(stream.feed(text), "");
  EXPECT_EQ(stream.flush(), text);
}

}  // namespace
}  // namespace pumice
