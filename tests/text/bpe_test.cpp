#include <random>

#include "tests/text/synthetic_vocabulary.hpp"
#include "text/detokenizer.hpp"
#include "text/pre_tokenizer.hpp"
#include "text/pre_tokenizer_recipes.hpp"

namespace pumice {
namespace {

using test::encode;
using test::Pieces;
using test::pieces;

// All 256 bytes as GPT-2 writes them, "<|end|>", and the results of the merges.
struct BytePairs {
  explicit BytePairs(std::vector<std::string> list) : merges(std::move(list)) {
    for (uint32_t c = 0x21; c <= 0x143; ++c) {
      const bool printable = c <= 0x7E || (c >= 0xA1 && c <= 0xAC) || (c >= 0xAE && c <= 0xFF);
      if (!printable && c < 0x100) continue;
      std::string text;
      if (c >= 0x80) text.push_back(static_cast<char>(0xC0 | c >> 6));
      text.push_back(static_cast<char>(c < 0x80 ? c : 0x80 | (c & 0x3F)));
      add(text, TokenType::kNormal);
    }
    add("<|end|>", TokenType::kControl);
    for (const std::string& merge : merges) {
      std::string text = merge;
      text.erase(text.find(' ', 1), 1);
      add(text, TokenType::kNormal);
    }
  }
  void add(const std::string& text, TokenType type) {
    tokens.push_back(text);
    types.push_back(static_cast<int32_t>(type));
  }
  VocabularyData data(std::string_view pre_tokenizer) const {
    VocabularyData result;
    result.model = "gpt2";
    result.pre_tokenizer = pre_tokenizer;
    result.tokens.assign(tokens.begin(), tokens.end());
    result.types = types;
    result.merges.assign(merges.begin(), merges.end());
    return result;
  }
  Tokenizer tokenizer(std::string_view pre_tokenizer = "gpt-2") const {
    return Tokenizer::create(data(pre_tokenizer)).value();
  }

  std::vector<std::string> merges;
  std::vector<std::string> tokens;
  std::vector<int32_t> types;
};

std::vector<std::string_view> split(std::string_view name, std::string_view text) {
  return PreTokenizer::create(name).value().split(text);
}
using Words = std::vector<std::string_view>;

TEST(PreTokenizer, CutsWordsDigitsAndBlanksAsTheFamilyDoes) {
  EXPECT_EQ(split("gpt-2", "I'm 12345  ok!\n"),
            (Words{"I", "'m", " 12345", " ", " ok", "!", "\n"}));
  EXPECT_EQ(split("llama-bpe", "I'M 12345  ok!\n"),
            (Words{"I", "'M", " ", "123", "45", " ", " ok", "!\n"}));
  EXPECT_EQ(split("qwen2", "a12 b"), (Words{"a", "1", "2", " b"}));
  EXPECT_EQ(split("command-r", "ab 12"), (Words{"ab", " ", "1", "2"}));
}

TEST(PreTokenizer, EveryRecipeCompilesAndLosesNothing) {
  const std::string text =
      "Ab's 12345 ½ \u4F60\u597D,\u3002 \u0915\u093F\t \n\r\n e\u0301X\u0E01 $+!? "
      "<sentinel:7>IMGIMGABZ \xFF\xE4 ";
  for (const PreTokenizerRecipe& recipe : pre_tokenizer_recipes()) {
    std::string joined;
    for (std::string_view word : split(recipe.name, text)) {
      EXPECT_FALSE(word.empty()) << recipe.name;
      joined += word;
    }
    EXPECT_EQ(joined, text) << recipe.name;
  }
}

TEST(PreTokenizer, GroupsOfThreeDigitsCountFromTheEndWhereTheModelWasTrainedSo) {
  EXPECT_EQ(split("afmoe", "x1234567"), (Words{"x", "1", "234", "567"}));
  EXPECT_EQ(split("superbpe", "12345 \u0663\u0664\u0665\u0666"),
            (Words{"12", "345", " ", "\u0663", "\u0664\u0665\u0666"}));
  EXPECT_EQ(split("tiny_aya", "12345 123456 12345a"),
            (Words{"12", "345", " ", "123", "456", " ", "123", "45", "a"}));
  EXPECT_EQ(split("deepseek-v3", "12345"), (Words{"123", "45"}));
  EXPECT_EQ(split("falcon", "12345"), (Words{"123", "45"}));
}

TEST(PreTokenizer, CapitalsBeginWordsInGpt4oAndItsKin) {
  EXPECT_EQ(split("gpt-4o", "camelCaseHTTPServer's"), (Words{"camel", "Case", "HTTPServer's"}));
  EXPECT_EQ(split("tekken", "camelCase's 12"), (Words{"camel", "Case", "'s", " ", "1", "2"}));
  EXPECT_EQ(split("gpt-4o", "\u041F\u0440\u0418\u0432"), (Words{"\u041F\u0440", "\u0418\u0432"}));
  EXPECT_EQ(split("gpt-4o", "a/b//\n/c"), (Words{"a", "/b", "//\n/", "c"}));
  EXPECT_EQ(split("kimi-k2", "ab\u4F60\u597Dcd  \u4F60"),
            (Words{"ab", "\u4F60\u597D", "cd", " ", " ", "\u4F60"}));
}

TEST(PreTokenizer, WordsMayHoldMarksAndSpacesWhereTheModelWasTrainedSo) {
  EXPECT_EQ(split("qwen35", "\u0915\u093F a"), (Words{"\u0915\u093F", " a"}));
  EXPECT_EQ(split("qwen2", "\u0915\u093F a"), (Words{"\u0915", "\u093F", " a"}));
  EXPECT_EQ(split("exaone-moe", "to be  or, \n\nno"),
            (Words{"to be", " ", " or", ",", " \n\n", "no"}));
  EXPECT_EQ(split("bloom", "a b, c"), (Words{"a", " b", ",", " c"}));
  EXPECT_EQ(split("viking", "a12 b"), (Words{"a", "1", "2", " b"}));
  EXPECT_EQ(split("deepseek-llm", "ab \u0561c\n ok  "),
            (Words{"ab", " \u0561", "c", "\n", " ok", "  "}));
  EXPECT_EQ(split("jais-2", std::string(7, ' ') + "x"), (Words{"    ", "  ", " x"}));
}

TEST(PreTokenizer, WithoutANameItIsTheDefault) {
  EXPECT_EQ(split("", "a$$ 12345"), (Words{"a", "$$", " ", "123", "45"}));
}

TEST(PreTokenizer, ContractionsAreAsciiAndSpacesAreUnicodes) {
  EXPECT_EQ(split("llama-bpe", "x'\u017F"), (Words{"x", "'\u017F"})) << "long s: a letter";
  EXPECT_EQ(split("gpt-2", "\u2003\u3000"), (Words{"\u2003\u3000"}));
  EXPECT_EQ(split("gpt-2", "!\u180E"), (Words{"!\u180E"})) << "no longer a space";
}

TEST(PreTokenizer, MalformedBytesAreWordsOfTheirOwn) {
  EXPECT_EQ(split("gpt-2", "ab\xFF\xFE cd"), (Words{"ab", "\xFF\xFE", " cd"}));
  EXPECT_EQ(split("gpt-2", "\xE2\x82"), (Words{"\xE2\x82"}));
  EXPECT_EQ(split("gpt-2", ""), Words{});
}

TEST(PreTokenizer, AnUnknownNameIsAnErrorThatNamesIt) {
  const auto result = Tokenizer::create(BytePairs({"a b"}).data("vi\nking"));
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, ErrorCode::kBadFile);
  EXPECT_EQ(result.error().message.rfind("pre-tokenizer 'vi\\x0aking' is not one of", 0), 0u);
}

TEST(Bpe, MergesByRankAndOfEqualsTheLeftmost) {
  EXPECT_EQ(pieces(BytePairs({"b c", "a b", "a bc"}).tokenizer(), "abc"), (Pieces{"abc"}));
  EXPECT_EQ(pieces(BytePairs({"a b", "b c", "a bc"}).tokenizer(), "abc"), (Pieces{"ab", "c"}));
  EXPECT_EQ(pieces(BytePairs({"a a"}).tokenizer(), "aaaaa"), (Pieces{"aa", "aa", "a"}));
}

TEST(Bpe, OfEqualMergesTheFirstCounts) {
  BytePairs pairs({"a b", "b c"});
  pairs.merges.push_back("a b");
  EXPECT_EQ(pieces(pairs.tokenizer(), "abc"), (Pieces{"ab", "c"}));
}

TEST(Bpe, NeverMergesAcrossWords) {
  EXPECT_EQ(pieces(BytePairs({"a Ġ", "Ġ a"}).tokenizer(), "a a"), (Pieces{"a", "Ġa"}));
}

TEST(Bpe, AWholeWordThatIsATokenNeedsNoMergesInLlama3) {
  BytePairs pairs({"a b"});
  pairs.add("xyz", TokenType::kNormal);
  EXPECT_EQ(pieces(pairs.tokenizer("llama-bpe"), "xyz"), (Pieces{"xyz"}));
  EXPECT_EQ(pieces(pairs.tokenizer("qwen2"), "xyz"), (Pieces{"x", "y", "z"}));
}

TEST(Bpe, NoTextSpellsAControlTokenUnlessAsked) {
  BytePairs pairs({"a b", "< |", "<| end", "e n", "en d", "| >", "<|end |>"});
  for (const char* name : {"gpt-2", "llama-bpe"}) {
    const Tokenizer tokenizer = pairs.tokenizer(name);
    for (TokenId id : encode(tokenizer, "<|end|>")) {
      EXPECT_NE(tokenizer.vocabulary().type(id), TokenType::kControl);
    }
    EXPECT_EQ(pieces(tokenizer, "<|end|>", test::kParsed), (Pieces{"<|end|>"}));
  }
}

TEST(Bpe, EveryByteComesBack) {
  const Tokenizer tokenizer = BytePairs({"a b"}).tokenizer();
  std::string text;
  for (int byte = 0; byte < 256; ++byte) text.push_back(static_cast<char>(byte));
  std::string bytes;
  for (TokenId id : encode(tokenizer, text)) tokenizer.append_bytes(id, false, bytes);
  EXPECT_EQ(bytes, text);
}

TEST(Bpe, TheFirstSpaceIsPartOfTheTextNotAPrefix) {
  const Tokenizer tokenizer = BytePairs({"Ġ a"}).tokenizer();
  EXPECT_EQ(detokenize(tokenizer, encode(tokenizer, " a")), " a");
  EXPECT_EQ(detokenize(tokenizer, encode(tokenizer, "a")), "a");
}

TEST(Bpe, MalformedMergesAreErrorsThatSayWhich) {
  BytePairs pairs({"a b"});
  pairs.merges = {"a b", "ab"};
  auto result = Tokenizer::create(pairs.data("gpt-2"));
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().message,
            "tokenizer.ggml.merges[1] is not two tokens with a space between them");
  pairs.merges = {};
  result = Tokenizer::create(pairs.data("gpt-2"));
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().message,
            "tokenizer.ggml.merges is missing; a byte-pair tokenizer needs it");
}

// Longer than what is tokenised without a cache of words.
TEST(Bpe, ALongTextHasTheTokensOfItsWords) {
  const Tokenizer tokenizer = BytePairs({"a b", "ab c", "b c", "Ġ ab"}).tokenizer();
  std::mt19937 random(17);
  std::string text;
  std::vector<TokenId> expected;
  for (int n_words = 0; n_words < 3000; ++n_words) {
    std::string word = " ";
    for (uint32_t n = 1 + random() % 6; n > 0; --n) word += "abc"[random() % 3];
    const auto ids = encode(tokenizer, word);
    expected.insert(expected.end(), ids.begin(), ids.end());
    text += word;
  }
  EXPECT_EQ(encode(tokenizer, text), expected);
}

TEST(Bpe, HostileTextsTakeSecondsAndComeBack) {
  std::vector<std::string> merges;
  for (size_t n = 1; n < 64; ++n) merges.push_back(std::string(n, 'a') + " a");
  for (const char* name : {"gpt-2", "jais-2", "tiny_aya", "exaone-moe"}) {
    const Tokenizer tokenizer = BytePairs(merges).tokenizer(name);
    for (const char* unit :
         {"a", " ", "\n", "\t ", "1", "'", "!", "\xC3", "\xFF a", "é", "\u3000"}) {
      std::string text;
      while (text.size() < (1 << 18)) text += unit;
      const double start = test::cpu_seconds();
      std::string bytes;
      for (TokenId id : encode(tokenizer, text)) tokenizer.append_bytes(id, false, bytes);
      EXPECT_EQ(bytes, text) << name << " " << unit;
      EXPECT_LT(test::cpu_seconds() - start, test::kSlowSeconds);
    }
  }
}

}  // namespace
}  // namespace pumice
