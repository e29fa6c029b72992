#include <algorithm>

#include "tests/text/synthetic_vocabulary.hpp"
#include "text/detokenizer.hpp"
#include "text/ranking_prompt.hpp"
#include "text/unicode.hpp"

namespace pumice {
namespace {

using test::encode;
using test::Pieces;
using test::pieces;

// "[PAD]" 0, "[UNK]" 1, "[CLS]" 2, "[SEP]" 3, then `words`.
struct WordPieces {
  explicit WordPieces(std::vector<std::string> words)
      : tokens({"[PAD]", "[UNK]", "[CLS]", "[SEP]"}) {
    for (std::string& word : words) tokens.push_back(std::move(word));
  }
  VocabularyData data() const {
    VocabularyData result;
    result.model = "bert";
    result.tokens.assign(tokens.begin(), tokens.end());
    result.types.assign(tokens.size(), 1);
    std::fill_n(result.types.begin(), 4, 3);
    result.unknown_id = 1;
    result.bos_id = 2;
    result.separator_id = 3;
    return result;
  }
  Tokenizer tokenizer() const { return Tokenizer::create(data()).value(); }

  std::vector<std::string> tokens;
};

TEST(WordPiece, TakesTheLongestTokensOfAWordFromItsBeginning) {
  const Tokenizer tokenizer =
      WordPieces({"▁un", "▁u", "aff", "affable", "able", "n", "▁the"}).tokenizer();
  EXPECT_EQ(pieces(tokenizer, "unaffable"), (Pieces{"▁un", "affable"}));
  EXPECT_EQ(pieces(tokenizer, "the unaff  \n u"), (Pieces{"▁the", "▁un", "aff", "▁u"}));
  EXPECT_EQ(detokenize(tokenizer, encode(tokenizer, "the unaffable")), "the unaffable");
}

TEST(WordPiece, AWordThatDoesNotComeOutIsUnknownAsAWhole) {
  const Tokenizer tokenizer = WordPieces({"▁a", "a", "▁b"}).tokenizer();
  EXPECT_EQ(pieces(tokenizer, "aac b"), (Pieces{"[UNK]", "▁b"}));
  EXPECT_EQ(encode(tokenizer, std::string(100, 'a')).size(), 100u);
  EXPECT_EQ(pieces(tokenizer, std::string(101, 'a')), (Pieces{"[UNK]"}));
}

TEST(WordPiece, BeginsWithClsAndEndsWithSep) {
  const Tokenizer tokenizer = WordPieces({"▁a"}).tokenizer();
  EXPECT_EQ(pieces(tokenizer, "a", EncodeOptions{}), (Pieces{"[CLS]", "▁a", "[SEP]"}));
  EXPECT_EQ(pieces(tokenizer, "", EncodeOptions{}), (Pieces{"[CLS]", "[SEP]"}));
  EXPECT_EQ(pieces(tokenizer, "a[SEP]a", test::kParsed), (Pieces{"▁a", "[SEP]", "▁a"}));
}

TEST(WordPiece, PunctuationAndChineseCharactersAreWordsEach) {
  const Tokenizer tokenizer =
      WordPieces({"▁a", "▁!", "▁$", "▁你", "▁好", "▁。", "▁€", "▁a€", "▁["}).tokenizer();
  EXPECT_EQ(pieces(tokenizer, "a!!a$"), (Pieces{"▁a", "▁!", "▁!", "▁a", "▁$"}));
  EXPECT_EQ(pieces(tokenizer, "a你好。"), (Pieces{"▁a", "▁你", "▁好", "▁。"}));
  EXPECT_EQ(pieces(tokenizer, "a€"), (Pieces{"▁a€"})) << "symbols are only ASCII's";
  EXPECT_EQ(pieces(tokenizer, "[a"), (Pieces{"▁[", "▁a"}));
}

TEST(WordPiece, CleansTextAsBertDoes) {
  const WordPieces words({"▁cafe", "▁Café", "▁a", "▁ἄ", "▁한", "▁ᄒ", "ᅡ", "ᆫ"});
  const Tokenizer uncased = words.tokenizer();
  EXPECT_EQ(pieces(uncased, "CAFÉ Cafe\u0301"), (Pieces{"▁cafe", "▁cafe"}));
  EXPECT_EQ(pieces(uncased,
                   "c\u00ADa\x01\u200Df\xFF\xE2\x82"
                   "é\x7F"),
            (Pieces{"▁cafe"}));
  EXPECT_EQ(pieces(uncased, "a\u00A0a\u2003a\u3000a"), (Pieces{"▁a", "▁a", "▁a", "▁a"}));
  EXPECT_EQ(pieces(uncased, "\uD55C"), (Pieces{"▁ᄒ", "ᅡ", "ᆫ"}));
  VocabularyData data = words.data();
  data.lower_case = false;
  const Tokenizer cased = Tokenizer::create(data).value();
  EXPECT_EQ(pieces(cased, "Café cafe \uD55C"), (Pieces{"▁Café", "▁cafe", "▁한"}));
  data.strip_accents = true;
  EXPECT_EQ(pieces(Tokenizer::create(data).value(), "café"), (Pieces{"▁cafe"}));
}

TEST(WordPiece, WithoutAnUnknownTokenIsAnError) {
  const WordPieces words({"▁a"});
  VocabularyData data = words.data();
  data.unknown_id.reset();
  const auto result = Tokenizer::create(data);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().message,
            "tokenizer.ggml.unknown_token_id is missing; tokenizer model 'bert' needs it");
}

TEST(WordPiece, HostileTextsTakeSeconds) {
  std::vector<std::string> words = {"▁a"};
  for (size_t n = 1; n <= 100; ++n) words.push_back(std::string(n, 'a'));
  const Tokenizer tokenizer = WordPieces(words).tokenizer();
  for (const char* unit : {"a", "aaab", " ", "\xC3", "\u0301", "a ", "!", "\uD55C"}) {
    std::string text;
    while (text.size() < (1 << 20)) text += unit;
    const double start = test::cpu_seconds();
    encode(tokenizer, text);
    EXPECT_LT(test::cpu_seconds() - start, test::kSlowSeconds) << unit;
  }
}

TEST(Unicode, KnowsCharactersOfEveryKind) {
  EXPECT_TRUE(is_punctuation(U'¿') && is_punctuation(0x3002) && is_punctuation(0x1E95F));
  EXPECT_FALSE(is_punctuation(U'€') || is_punctuation(U'a') || is_punctuation(0x10FFFF));
  EXPECT_TRUE(is_nonspacing_mark(0x0301) && !is_nonspacing_mark(0x0903));
  EXPECT_TRUE(is_control(0x200D) && is_control(0xE000) && !is_control(0x0378));
  EXPECT_EQ(to_lower(U'Ÿ'), U'ÿ');
  EXPECT_EQ(to_lower(0x0100), 0x0101u);
  EXPECT_EQ(to_lower(0x0101), 0x0101u);
  EXPECT_EQ(to_lower(0x0416), 0x0436u);
  EXPECT_EQ(to_lower(0x1E900), 0x1E922u);
  EXPECT_EQ(to_lower(U'ß'), U'ß');
}

TEST(Unicode, BasesAreDecompositionsWithoutMarks) {
  const auto base = [](char32_t c) {
    std::u32string bases;
    append_base(c, bases);
    return bases;
  };
  EXPECT_EQ(base(U'é'), U"e");
  EXPECT_EQ(base(0x1EA5), U"a");
  EXPECT_EQ(base(0x0301), U"");
  EXPECT_EQ(base(0xF900), U"\u8c48");
  EXPECT_EQ(base(0x09CB), U"\u09c7\u09be");
  EXPECT_EQ(base(0xD55C), U"\u1112\u1161\u11ab");
  EXPECT_EQ(base(0xAC00), U"\u1100\u1161");
  EXPECT_EQ(base(U'ß'), U"ß");
}

std::vector<TokenId> pair(const Tokenizer& tokenizer, const RankingPrompt& prompt,
                          std::string_view query, std::string_view text) {
  return prompt.encode(tokenizer, query, text).value();
}

TEST(RankingPrompt, OfBertAndRobertaIsAPairOfSegments) {
  const WordPieces words({"▁a", "▁b", "▁[", "sep", "]", "▁]"});
  constexpr TokenId kCls = 2, kSep = 3, kA = 4, kB = 5;
  EXPECT_EQ(pair(words.tokenizer(), RankingPrompt(), "a", "b a"),
            (std::vector<TokenId>{kCls, kA, kSep, kB, kA, kSep}));
  EXPECT_EQ(pair(words.tokenizer(), RankingPrompt(), "", ""),
            (std::vector<TokenId>{kCls, kSep, kSep}));
  VocabularyData roberta = words.data();
  roberta.model = "t5";
  roberta.scores.assign(roberta.tokens.size(), -1);
  roberta.eos_id = kSep;
  roberta.add_space_prefix = true;
  roberta.add_bos = true;
  roberta.add_eos = true;
  EXPECT_EQ(pair(Tokenizer::create(roberta).value(), RankingPrompt(), "a", "b"),
            (std::vector<TokenId>{kCls, kA, kSep, kSep, kB, kSep}));
}

TEST(RankingPrompt, AFormHoldsTheTwoAndItsOwnControlTokensOnly) {
  const WordPieces words({"▁a", "▁b", "▁q", "▁[", "sep", "▁]", "▁{", "query", "▁}", "▁sep"});
  const Tokenizer tokenizer = words.tokenizer();
  const RankingPrompt prompt("q {query}[SEP]b {document}");
  EXPECT_EQ(pair(tokenizer, prompt, "a", "a"),
            tokenizer.encode("q a[SEP]b a", {.parse_special = true}).value());
  // What the contents spell is text, and is not filled in again.
  EXPECT_EQ(std::ranges::count(pair(tokenizer, prompt, "[SEP]", "[SEP] a"), TokenId{3}),
            std::ranges::count(pair(tokenizer, prompt, "a", "a"), TokenId{3}));
  EXPECT_EQ(pair(tokenizer, prompt, "{document}", "{query}").size(),
            pair(tokenizer, prompt, "[query]", "[query]").size());
}

}  // namespace
}  // namespace pumice
