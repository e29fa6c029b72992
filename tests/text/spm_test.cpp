#include <random>

#include "tests/text/synthetic_vocabulary.hpp"
#include "text/detokenizer.hpp"

namespace pumice {
namespace {

using test::encode;
using test::kParsed;
using test::kPlain;
using test::Pieces;
using test::pieces;
using test::SyntheticVocabulary;

TEST(Spm, MergesThePairOfHighestScoreFirst) {
  SyntheticVocabulary synthetic;
  for (const char* piece : {"▁", "a", "b", "c"}) synthetic.add(piece, -100);
  synthetic.add("ab", -2);
  synthetic.add("bc", -1);
  synthetic.add("abc", -3);
  EXPECT_EQ(pieces(synthetic.tokenizer(), "abc"), (Pieces{"▁", "abc"}));
  synthetic.tokens.pop_back();
  EXPECT_EQ(pieces(synthetic.tokenizer(), "abc"), (Pieces{"▁", "a", "bc"}));
}

TEST(Spm, OfEqualScoresTheLeftmostIsMerged) {
  SyntheticVocabulary synthetic;
  for (const char* piece : {"▁", "a"}) synthetic.add(piece, 0);
  synthetic.add("aa", 0);
  EXPECT_EQ(pieces(synthetic.tokenizer(), "aaaaa"), (Pieces{"▁", "aa", "aa", "a"}));
}

TEST(Spm, SpellsInBytesWhatNoTokenIs) {
  SyntheticVocabulary synthetic;
  synthetic.add("▁");
  const Tokenizer tokenizer = synthetic.tokenizer();
  EXPECT_EQ(pieces(tokenizer, "é\n"), (Pieces{"▁", "<0xC3>", "<0xA9>", "<0x0A>"}));
  EXPECT_EQ(pieces(tokenizer, std::string_view("\0\xFF", 2)), (Pieces{"▁", "<0x00>", "<0xFF>"}));
}

TEST(Spm, ABrokenLeadByteDoesNotSwallowTheSpaceAfterIt) {
  SyntheticVocabulary synthetic;
  synthetic.add("▁");
  EXPECT_EQ(pieces(synthetic.tokenizer(), "\xE1 "), (Pieces{"▁", "<0xE1>", "▁"}));
}

TEST(Spm, ABytelessVocabularySaysUnknown) {
  VocabularyData data{
      .model = "llama", .tokens = {"<unk>", "▁", "a"}, .scores = {0, 0, 0}, .types = {2, 1, 1}};
  const auto tokenizer = Tokenizer::create(data).value();
  EXPECT_EQ(encode(tokenizer, "aé"), (std::vector<TokenId>{1, 2, 0, 0}));
}

TEST(Spm, ThePrefixSpaceIsOptionalAndEmptyTextHasNoTokens) {
  SyntheticVocabulary synthetic;
  synthetic.add("▁");
  synthetic.add("a");
  synthetic.add("▁a");
  VocabularyData data = synthetic.data();
  EXPECT_EQ(pieces(Tokenizer::create(data).value(), "a a"), (Pieces{"▁a", "▁a"}));
  EXPECT_EQ(pieces(Tokenizer::create(data).value(), ""), Pieces{});
  data.add_space_prefix = false;
  EXPECT_EQ(pieces(Tokenizer::create(data).value(), "a a"), (Pieces{"a", "▁a"}));
}

TEST(Spm, BosAndEosAreAddedAsTheVocabularySays) {
  SyntheticVocabulary synthetic;
  synthetic.add("▁");
  VocabularyData data = synthetic.data();
  data.add_eos = true;
  EXPECT_EQ(pieces(Tokenizer::create(data).value(), "", EncodeOptions{}), (Pieces{"<s>", "</s>"}));
  data.add_bos = false;
  EXPECT_EQ(pieces(Tokenizer::create(data).value(), " ", EncodeOptions{}),
            (Pieces{"▁", "▁", "</s>"}));
}

TEST(Spm, NoMergeSpellsAControlToken) {
  SyntheticVocabulary synthetic;
  for (const char* piece : {"▁", "<", "s", ">", "<s"}) synthetic.add(piece);
  const Tokenizer tokenizer = synthetic.tokenizer();
  EXPECT_EQ(pieces(tokenizer, "<s>", kPlain), (Pieces{"▁", "<s", ">"}));
  EXPECT_EQ(encode(tokenizer, "<s>", kParsed), (std::vector<TokenId>{1}));
}

TEST(Spm, TextAboveTheLimitDoesNotFit) {
  const auto result =
      SyntheticVocabulary().tokenizer().encode(std::string(Tokenizer::kMaxTextBytes + 1, 'a'));
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, ErrorCode::kDoesNotFit);
}

// The definition, in cubic time: look at every adjacent pair, merge the best, begin again.
std::vector<TokenId> naive_spm(const Vocabulary& vocabulary, const std::string& text) {
  std::vector<std::string> symbols = {"▁"};
  for (char c : text) symbols.push_back(c == ' ' ? "▁" : std::string(1, c));
  for (;;) {
    size_t best = symbols.size();
    float best_score = 0;
    for (size_t i = 0; i + 1 < symbols.size(); ++i) {
      const auto id = vocabulary.find(symbols[i] + symbols[i + 1]);
      if (id && (best == symbols.size() || vocabulary.score(*id) > best_score)) {
        best = i;
        best_score = vocabulary.score(*id);
      }
    }
    if (best == symbols.size()) break;
    symbols[best] += symbols[best + 1];
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
  std::vector<TokenId> ids;
  for (const std::string& symbol : symbols) ids.push_back(vocabulary.find(symbol).value());
  return ids;
}

TEST(Spm, AgreesWithTheDefinitionOnRandomVocabulariesAndTextsAndRoundTrips) {
  std::mt19937 random(11);
  for (int round = 0; round < 1000; ++round) {
    SyntheticVocabulary synthetic;
    for (const char* piece : {"▁", "a", "b", "c"}) synthetic.add(piece, -100);
    for (int i = 0; i < 30; ++i) {
      std::string piece = random() % 3 == 0 ? "▁" : "";
      for (uint32_t k = 0; k < 2 + random() % 4; ++k) piece += "abc"[random() % 3];
      synthetic.add(piece, -static_cast<float>(random() % 10));  // ties are common
    }
    const Tokenizer tokenizer = synthetic.tokenizer();
    std::string text;
    // Now and then longer than what is tokenised without a cache of words.
    const uint32_t n = round % 50 == 0 ? 800 : random() % 60;
    for (uint32_t k = 0; k < n; ++k) text += "abc "[random() % 4];
    if (text.empty()) continue;
    const auto ids = encode(tokenizer, text);
    ASSERT_EQ(ids, naive_spm(tokenizer.vocabulary(), text)) << text;
    ASSERT_EQ(detokenize(tokenizer, ids), text);
  }
}

}  // namespace
}  // namespace pumice
