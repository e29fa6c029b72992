#include <algorithm>
#include <random>

#include "tests/text/synthetic_vocabulary.hpp"
#include "text/detokenizer.hpp"

namespace pumice {
namespace {

using test::encode;
using test::Pieces;
using test::pieces;
using test::SyntheticVocabulary;

// Characters, bytes and what the merges make.
struct CharacterPairsVocabulary : SyntheticVocabulary {
  explicit CharacterPairsVocabulary(std::vector<std::string> list) : merges(std::move(list)) {
    for (const char* character : {"▁", "a", "b", "c", "é", "\n"}) add(character);
    for (std::string merged : merges) add(merged.erase(merged.find(' '), 1));
  }
  VocabularyData data(std::string_view model = "gemma4", std::string_view pre = "") const {
    VocabularyData result = SyntheticVocabulary::data();
    result.model = model;
    result.pre_tokenizer = pre;
    result.scores.clear();
    result.merges.assign(merges.begin(), merges.end());
    return result;
  }
  Tokenizer tokenizer() const { return Tokenizer::create(data()).value(); }

  std::vector<std::string> merges;
};

TEST(TextBpe, MergesCharactersByRankAcrossSpaces) {
  const Tokenizer tokenizer = CharacterPairsVocabulary({"a b", "▁ a", "ab ▁", "é c"}).tokenizer();
  EXPECT_EQ(pieces(tokenizer, "ab ab"), (Pieces{"ab▁", "ab"}));
  EXPECT_EQ(pieces(tokenizer, " a"), (Pieces{"▁a"}));
  EXPECT_EQ(pieces(tokenizer, "aéc"), (Pieces{"a", "éc"}));
}

TEST(TextBpe, IsChosenByTheModelOrByThePreTokenizer) {
  const CharacterPairsVocabulary vocabulary({"▁ a"});
  for (const char* pre : {"gemma4", "granite-embed-multi-311m", "sarvam-moe"}) {
    const Tokenizer tokenizer = Tokenizer::create(vocabulary.data("gpt2", pre)).value();
    EXPECT_EQ(pieces(tokenizer, "b a"), (Pieces{"b", "▁a"})) << pre;
  }
}

TEST(TextBpe, ARunOfLineEndsThatIsATokenStaysWhole) {
  CharacterPairsVocabulary vocabulary({"a b"});
  vocabulary.add("\n\n");
  const Tokenizer tokenizer = vocabulary.tokenizer();
  EXPECT_EQ(pieces(tokenizer, "a\n\nb\n"), (Pieces{"a", "\n\n", "b", "\n"}));
  EXPECT_EQ(pieces(tokenizer, "\n\n\n"), (Pieces{"\n", "\n", "\n"}));
}

TEST(TextBpe, SpellsInBytesWhatNoTokenIs) {
  const Tokenizer tokenizer = CharacterPairsVocabulary({"a b"}).tokenizer();
  EXPECT_EQ(pieces(tokenizer, "ñ\xFF"), (Pieces{"<0xC3>", "<0xB1>", "<0xFF>"}));
}

TEST(TextBpe, Gemma4AlwaysHasBos) {
  const CharacterPairsVocabulary vocabulary({"a b"});
  VocabularyData data = vocabulary.data();
  data.bos_id = 1;
  data.add_bos = false;
  const Tokenizer tokenizer = Tokenizer::create(data).value();
  EXPECT_EQ(pieces(tokenizer, "ab", EncodeOptions{}), (Pieces{"<s>", "ab"}));
}

// The definition: of all pairs the one of lowest rank, the leftmost of equals, again and again.
Pieces naive_merge(const std::vector<std::string>& merges, const std::string& text) {
  Pieces symbols;
  for (char c : text) symbols.push_back(c == ' ' ? "▁" : std::string(1, c));
  for (;;) {
    size_t best = symbols.size();
    auto best_rank = merges.end();
    for (size_t i = 0; i + 1 < symbols.size(); ++i) {
      const auto rank = std::find(merges.begin(), merges.end(), symbols[i] + " " + symbols[i + 1]);
      if (rank < best_rank) {
        best = i;
        best_rank = rank;
      }
    }
    if (best == symbols.size()) return symbols;
    symbols[best] += symbols[best + 1];
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
}

TEST(TextBpe, AgreesWithTheDefinitionOnRandomMergesAndTextsAndRoundTrips) {
  std::mt19937 random(19);
  for (int round = 0; round < 300; ++round) {
    Pieces parts = {"▁", "a", "b", "c"};
    std::vector<std::string> merges;
    for (int i = 0; i < 12; ++i) {
      const std::string left = parts[random() % parts.size()];
      const std::string right = parts[random() % parts.size()];
      if (std::find(parts.begin(), parts.end(), left + right) != parts.end()) continue;
      merges.push_back(left + " " + right);
      parts.push_back(left + right);
    }
    const Tokenizer tokenizer = CharacterPairsVocabulary(merges).tokenizer();
    std::string text;
    const uint32_t n = round % 30 == 0 ? 700 : random() % 50;
    for (uint32_t k = 0; k < n; ++k) text += "abc "[random() % 4];
    ASSERT_EQ(pieces(tokenizer, text), naive_merge(merges, text)) << text;
    ASSERT_EQ(detokenize(tokenizer, encode(tokenizer, text)), text);
  }
}

}  // namespace
}  // namespace pumice
