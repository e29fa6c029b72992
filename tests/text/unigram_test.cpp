#include <cmath>
#include <map>
#include <random>

#include "tests/text/synthetic_vocabulary.hpp"
#include "text/charsmap.hpp"
#include "text/detokenizer.hpp"

namespace pumice {
namespace {

using test::encode;
using test::Pieces;
using test::pieces;

// "<pad>" 0, "</s>" 1, "<unk>" 2, then what is added.
struct UnigramVocabulary {
  UnigramVocabulary() {
    add("<pad>", 0, TokenType::kControl);
    add("</s>", 0, TokenType::kControl);
    add("<unk>", 0, TokenType::kUnknown);
  }
  void add(std::string text, float score, TokenType type = TokenType::kNormal) {
    tokens.push_back(std::move(text));
    scores.push_back(score);
    types.push_back(static_cast<int32_t>(type));
  }
  void add_bytes() {
    for (int byte = 0; byte < 256; ++byte) {
      add(fmt::format("<0x{:02X}>", byte), 0, TokenType::kByte);
    }
  }
  VocabularyData data() const {
    VocabularyData result;
    result.model = "t5";
    result.tokens.assign(tokens.begin(), tokens.end());
    result.scores = scores;
    result.types = types;
    result.add_space_prefix = true;
    return result;
  }
  Tokenizer tokenizer() const { return Tokenizer::create(data()).value(); }

  std::vector<std::string> tokens;
  std::vector<float> scores;
  std::vector<int32_t> types;
};

TEST(Unigram, TakesTheSpellingOfTheLargestSum) {
  UnigramVocabulary vocabulary;
  for (const char* letter : {"▁", "a", "b", "c"}) vocabulary.add(letter, -4);
  vocabulary.add("ab", -5);
  vocabulary.add("bc", -3);
  vocabulary.add("▁ab", -9.5);
  EXPECT_EQ(pieces(vocabulary.tokenizer(), "abc"), (Pieces{"▁", "a", "bc"}));
  vocabulary.add("abc", -6);
  EXPECT_EQ(pieces(vocabulary.tokenizer(), "abc"), (Pieces{"▁", "abc"}));
  EXPECT_EQ(pieces(vocabulary.tokenizer(), "ab", EncodeOptions{}), (Pieces{"▁", "ab", "</s>"}));
}

TEST(Unigram, NeighboursThatAreNoTokensAreOneUnknown) {
  UnigramVocabulary vocabulary;
  for (const char* letter : {"▁", "a"}) vocabulary.add(letter, -1);
  const Tokenizer tokenizer = vocabulary.tokenizer();
  EXPECT_EQ(pieces(tokenizer, "axyéa"), (Pieces{"▁", "a", "<unk>", "a"}));
  EXPECT_EQ(pieces(tokenizer, "x x\xFF"), (Pieces{"▁", "<unk>", "▁", "<unk>"}));
}

TEST(Unigram, BytesSpellWhatNoTokenIsWhereThereAreAll) {
  UnigramVocabulary vocabulary;
  vocabulary.add("▁", -1);
  vocabulary.add_bytes();
  const Tokenizer tokenizer = vocabulary.tokenizer();
  EXPECT_EQ(pieces(tokenizer, "é\xFF"), (Pieces{"▁", "<0xC3>", "<0xA9>", "<0xFF>"}));
  std::mt19937 random(23);
  for (int round = 0; round < 100; ++round) {
    std::string text(random() % 100, '\0');
    for (char& c : text) c = static_cast<char>(random());
    std::string bytes;
    for (TokenId id : encode(tokenizer, text)) tokenizer.append_bytes(id, false, bytes);
    ASSERT_EQ(bytes, text.find_first_not_of(' ') == text.npos ? text : " " + text);
  }
}

TEST(Unigram, SpacesAreMergedWhereTheModelWasTrainedSo) {
  UnigramVocabulary vocabulary;
  for (const char* letter : {"▁", "a"}) vocabulary.add(letter, -1);
  VocabularyData data = vocabulary.data();
  EXPECT_EQ(pieces(Tokenizer::create(data).value(), "a  a "),
            (Pieces{"▁", "a", "▁", "▁", "a", "▁"}));
  data.merge_spaces = true;
  EXPECT_EQ(pieces(Tokenizer::create(data).value(), "  a  a "), (Pieces{"▁", "a", "▁", "a"}));
  EXPECT_EQ(pieces(Tokenizer::create(data).value(), "  "), Pieces{});
}

// "A" becomes "a", "AB" becomes "xy", and a NUL behind each.
std::vector<uint8_t> small_charsmap() {
  std::vector<uint32_t> units(512, 0);
  const std::string replacements("a\0xy\0", 5);
  units[0] = 256u << 10;
  units[256 ^ 'A'] = 1u << 10 | 1u << 8 | 'A';  // 321, and its children at 320 ^ byte
  units[320] = 1u << 31 | 0;
  units[320 ^ 'B'] = 2u << 10 | 1u << 8 | 'B';  // 258
  units[256] = 1u << 31 | 2;
  std::vector<uint8_t> data = {0, 8, 0, 0};
  for (uint32_t unit : units) {
    for (int shift = 0; shift < 32; shift += 8) data.push_back(static_cast<uint8_t>(unit >> shift));
  }
  data.insert(data.end(), replacements.begin(), replacements.end());
  return data;
}

TEST(Charsmap, TheLongestBeginningIsReplaced) {
  UnigramVocabulary vocabulary;
  for (const char* letter : {"▁", "a", "x", "y", "B"}) vocabulary.add(letter, -1);
  VocabularyData data = vocabulary.data();
  data.charsmap = small_charsmap();
  const Tokenizer tokenizer = Tokenizer::create(data).value();
  EXPECT_EQ(pieces(tokenizer, "AaABB"), (Pieces{"▁", "a", "a", "x", "y", "B"}));
}

TEST(Charsmap, BrokenOnesAreErrorsOrReplaceNothing) {
  const std::vector<uint8_t> good = small_charsmap();
  ASSERT_TRUE(Charsmap::create(good).ok());
  for (size_t size : {size_t{1}, size_t{3}, size_t{4}, size_t{2000}, good.size() - 1}) {
    const auto result =
        Charsmap::create({good.begin(), good.begin() + static_cast<ptrdiff_t>(size)});
    ASSERT_FALSE(result.ok()) << size;
    EXPECT_EQ(result.error().code, ErrorCode::kBadFile);
  }
  std::vector<uint8_t> too_long = good;
  too_long.insert(too_long.end() - 1, 100, 'x');
  EXPECT_FALSE(Charsmap::create(too_long).ok());
  std::mt19937 random(29);
  for (int round = 0; round < 2000; ++round) {
    std::vector<uint8_t> bent = good;
    for (int i = 0; i < 8; ++i) {
      const size_t units[] = {0, 256, 258, 320, 321};
      bent[4 + 4 * units[random() % 5] + random() % 4] ^= static_cast<uint8_t>(1u << random() % 8);
    }
    const Charsmap map = Charsmap::create(bent).value();
    EXPECT_LE(map.find("ABABAB").value_or(Charsmap::Replacement{}).n_replaced, 6u);
  }
}

TEST(Unigram, MissingFieldsAreErrorsThatNameThem) {
  UnigramVocabulary vocabulary;
  vocabulary.add("a", -1);
  VocabularyData data = vocabulary.data();
  data.scores.clear();
  EXPECT_EQ(Tokenizer::create(data).error().message,
            "tokenizer.ggml.scores is missing; tokenizer model 't5' needs it");
  vocabulary.add(std::string(1025, 'a'), -1);
  EXPECT_EQ(Tokenizer::create(vocabulary.data()).error().message,
            "tokenizer.ggml.tokens[4] has 1025 bytes, at most 1024");
}

// The definition: every spelling of a short text.
double best_sum(const std::map<std::string, float>& scores, const std::string& text) {
  if (text.empty()) return 0;
  double best = -HUGE_VAL;
  for (const auto& [token, score] : scores) {
    if (text.starts_with(token)) {
      best = std::max(best, score + best_sum(scores, text.substr(token.size())));
    }
  }
  return best;
}

TEST(Unigram, AgreesWithTheDefinitionOnRandomVocabulariesAndTextsAndRoundTrips) {
  std::mt19937 random(31);
  for (int round = 0; round < 300; ++round) {
    UnigramVocabulary vocabulary;
    std::map<std::string, float> scores;
    const auto add = [&](const std::string& token, float score) {
      if (scores.emplace(token, score).second) vocabulary.add(token, score);
    };
    for (const char* letter : {"▁", "a", "b", "c"}) add(letter, -9);
    for (int i = 0; i < 12; ++i) {
      std::string token = random() % 3 == 0 ? "▁" : "";
      for (uint32_t k = 0; k < 1 + random() % 4; ++k) token += "abc"[random() % 3];
      add(token, -static_cast<float>(random() % 1000) / 64);
    }
    const Tokenizer tokenizer = vocabulary.tokenizer();
    std::string text = "a";
    for (uint32_t k = 0; k < random() % 9; ++k) text += "abc "[random() % 4];
    std::string marked = "▁";
    for (char c : text) marked += c == ' ' ? "▁" : std::string(1, c);
    const auto ids = encode(tokenizer, text);
    double sum = 0;
    for (TokenId id : ids) sum += double{tokenizer.vocabulary().score(id)};
    ASSERT_DOUBLE_EQ(sum, best_sum(scores, marked)) << text;
    ASSERT_EQ(detokenize(tokenizer, ids), text);
  }
}

TEST(Unigram, HostileTextsTakeSeconds) {
  UnigramVocabulary vocabulary;
  vocabulary.add("▁", -1);
  for (size_t n = 1; n <= 256; n += n < 16 ? 1 : n / 4) {
    vocabulary.add(std::string(n, 'a'), -static_cast<float>(n % 7));
  }
  const Tokenizer tokenizer = vocabulary.tokenizer();
  for (const char* unit : {"a", " ", "\xC3", "x", "\xF0\x9F\x98\x80"}) {
    std::string text;
    while (text.size() < (1 << 18)) text += unit;
    const double start = test::cpu_seconds();
    encode(tokenizer, text);
    EXPECT_LT(test::cpu_seconds() - start, test::kSlowSeconds) << unit;
  }
}

}  // namespace
}  // namespace pumice
