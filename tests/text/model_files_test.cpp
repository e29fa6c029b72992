// Tokenizers of real models against what llama.cpp and the models' own tokenizers say.
#include <gmock/gmock.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>

#include "tests/shared_data.hpp"
#include "tests/text/gguf_vocabulary.hpp"
#include "tests/text/synthetic_vocabulary.hpp"
#include "text/conversation.hpp"
#include "text/detokenizer.hpp"

namespace pumice {
namespace {

using nlohmann::json;
using test::encode;
using test::load_tokenizer;

// A text file as it is, or "" if it cannot be read.
std::string read_file(const std::filesystem::path& path) {
  std::ifstream stream(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(stream), {});
}

std::vector<std::string> split_at(const std::string& text, const std::string& separator) {
  std::vector<std::string> parts;
  size_t begin = 0;
  for (size_t at; (at = text.find(separator, begin)) != text.npos; begin = at + separator.size()) {
    parts.push_back(text.substr(begin, at - begin));
  }
  parts.push_back(text.substr(begin));
  return parts;
}

std::vector<TokenId> parse_ids(const std::string& line) {
  std::istringstream stream(line);
  return {std::istream_iterator<TokenId>(stream), {}};
}

// Read once for all tests.
const Tokenizer& shared_tokenizer(const std::filesystem::path& path) {
  static std::map<std::filesystem::path, Tokenizer> tokenizers;
  const auto found = tokenizers.find(path);
  if (found != tokenizers.end()) return found->second;
  return tokenizers.emplace(path, load_tokenizer(path)).first->second;
}

struct VocabularyFile : ::testing::TestWithParam<const char*> {};

TEST_P(VocabularyFile, TokenisesItsTestTextsAsPublishedAndBack) {
  PUMICE_REQUIRE_SHARED(path, fmt::format("tokenizers/{}", GetParam()));
  const Tokenizer& tokenizer = shared_tokenizer(path);
  const auto texts = split_at(read_file(path.string() + ".inp"), "\n__ggml_vocab_test__\n");
  const auto lines = split_at(read_file(path.string() + ".out"), "\n");
  ASSERT_GE(texts.size(), 40u);
  ASSERT_GE(lines.size(), texts.size());
  for (size_t i = 0; i < texts.size(); ++i) {
    const auto ids = encode(tokenizer, texts[i]);
    EXPECT_EQ(ids, parse_ids(lines[i])) << texts[i];
    EXPECT_EQ(detokenize(tokenizer, ids), texts[i]);
  }
}

void expect_reference_tokens(const std::filesystem::path& folder, size_t& n_tested) {
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".gguf") continue;
    const Tokenizer tokenizer = load_tokenizer(entry.path());
    auto description = entry.path();
    const json reference = json::parse(read_file(description.replace_extension(".json")));
    for (const json& example : reference.at("tokenize")) {
      const std::string text = example.at("text");
      SCOPED_TRACE(entry.path().filename().string() + ": " + text);
      const auto ids = encode(tokenizer, text);
      EXPECT_EQ(json(ids), example.at("ids"));
      EXPECT_EQ(json(encode(tokenizer, text, {.add_special = true, .parse_special = true})),
                example.at("ids_add_special_parse_special"));
      // WordPiece keeps words, not texts.
      if (tokenizer.vocabulary().separator()) continue;
      EXPECT_EQ(detokenize(tokenizer, ids), text);
    }
    ++n_tested;
  }
}

TEST(ReferenceFiles, TokeniseAsLlamaCppDoesWithAndWithoutSpecialTokens) {
  PUMICE_REQUIRE_SHARED(families, "reference/families");
  PUMICE_REQUIRE_SHARED(embeddings, "reference/embeddings");
  size_t n_tested = 0;
  expect_reference_tokens(families, n_tested);
  expect_reference_tokens(embeddings, n_tested);
  EXPECT_GE(n_tested, 54u);
}

// Messages are hidden in part from templates, which must not matter to them.
TEST(ChatTemplates, SayTheSameOfMessagesThatMayHoldControlTokensAndOthers) {
  PUMICE_REQUIRE_SHARED(folder, "templates/jinja");
  test::SyntheticVocabulary vocabulary;
  for (const char* mark :
       {"<|im_start|>", "<|im_end|>", "[INST]", "<|eot_id|>", "<\xEF\xBD\x9CUser\xEF\xBD\x9C>",
        "<|channel|>", "<|message|>", "[TOOL_CALLS]", "{fim}"}) {
    vocabulary.add(mark, 0, TokenType::kControl);
  }
  const Tokenizer tokenizer = vocabulary.tokenizer();
  const std::vector<std::vector<std::string>> talks = {
      {"Be brief. /no_think", " Is 1 < 2? ", "<think>\nHm, [x] < 3\n</think>\n\nYes <b>it</b> is.",
       "<tool_response>\n{\"a\": [1]}\n</tool_response>"},
      {"<tools>{}</tools>", "a[0] <- {b} /think", "Hm\n</think>\n\n<tool_call>\n{}\n</tool_call>",
       "<think></think> \xF3\xB0\x80\x81"},
  };
  size_t n_rendered = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".jinja") continue;
    const ChatFormat format =
        ChatFormat::create(read_file(entry.path()), tokenizer.vocabulary()).value();
    for (const std::vector<std::string>& talk : talks) {
      const auto render = [&](bool special) {
        Conversation conversation;
        conversation.set_system(talk[0], special);
        conversation.ask(talk[1], special);
        conversation.answer(talk[2], special);
        conversation.ask(talk[3], special);
        const Result<RenderedPrompt> prompt = format.render(conversation.messages(), tokenizer);
        n_rendered += prompt.ok();
        return prompt.ok() ? prompt->text : prompt.error().message;
      };
      EXPECT_EQ(render(false), render(true)) << entry.path().filename();
    }
  }
  EXPECT_GT(n_rendered, 100u);
}

TEST(Stories, PromptsAndContinuationsAreThoseOfTheReference) {
  PUMICE_REQUIRE_SHARED(model, "models/stories260K.gguf");
  PUMICE_REQUIRE_SHARED(greedy, "reference/stories260K.greedy.json");
  const Tokenizer tokenizer = load_tokenizer(model);
  for (const json& example : json::parse(read_file(greedy))) {
    EXPECT_EQ(json(encode(tokenizer, example.at("prompt").get<std::string>(), EncodeOptions{})),
              example.at("prompt_tokens"));
    Detokenizer stream(tokenizer, {.start = TextStart::kContinuation});
    std::string text;
    for (TokenId id : example.at("tokens").get<std::vector<TokenId>>()) text += stream.feed(id);
    EXPECT_EQ(text + stream.flush(), example.at("text").get<std::string>());
  }
}

TEST_P(VocabularyFile, ShakespeareComesBack) {
  PUMICE_REQUIRE_SHARED(vocabulary, fmt::format("tokenizers/{}", GetParam()));
  PUMICE_REQUIRE_SHARED(text_path, "text/tinyshakespeare.txt");
  const Tokenizer& tokenizer = shared_tokenizer(vocabulary);
  const std::string text = read_file(text_path).substr(0, 200000);
  EXPECT_EQ(detokenize(tokenizer, encode(tokenizer, text)), text);
}

// Any scalar value except U+2581, which stands for the space.
std::string random_utf8(std::mt19937& random) {
  std::string text;
  for (uint32_t n = random() % 30; n > 0; --n) {
    const uint32_t widths[] = {0x7F, 0x7FF, 0xFFFF, 0x10FFFF};
    uint32_t c = random() % (widths[random() % 4] + 1);
    if ((c >= 0xD800 && c <= 0xDFFF) || c == 0x2581) c = ' ';
    const auto tail = [c](int shift) { return static_cast<char>(0x80 | ((c >> shift) & 0x3F)); };
    if (c < 0x80) {
      text += static_cast<char>(c);
    } else if (c < 0x800) {
      text += {static_cast<char>(0xC0 | c >> 6), tail(0)};
    } else if (c < 0x10000) {
      text += {static_cast<char>(0xE0 | c >> 12), tail(6), tail(0)};
    } else {
      text += {static_cast<char>(0xF0 | c >> 18), tail(12), tail(6), tail(0)};
    }
  }
  return text;
}

// Falcon's vocabulary has no tokens for some control characters.
bool can_spell(const Tokenizer& tokenizer, const std::string& text) {
  return std::all_of(text.begin(), text.end(),
                     [&](char c) { return !encode(tokenizer, std::string_view(&c, 1)).empty(); });
}

TEST_P(VocabularyFile, AnyUnicodeTextComesBack) {
  PUMICE_REQUIRE_SHARED(vocabulary, fmt::format("tokenizers/{}", GetParam()));
  const Tokenizer& tokenizer = shared_tokenizer(vocabulary);
  std::mt19937 random(13);
  int n_spelled = 0;
  for (int round = 0; round < 2000; ++round) {
    const std::string text = random_utf8(random);
    const auto ids = encode(tokenizer, text);
    const std::string back = detokenize(tokenizer, ids);
    if (back != text && !can_spell(tokenizer, text)) continue;
    ASSERT_EQ(back, text);
    ++n_spelled;
  }
  EXPECT_GT(n_spelled, 500);
}

INSTANTIATE_TEST_SUITE_P(, VocabularyFile,
                         ::testing::Values("ggml-vocab-llama-spm.gguf", "ggml-vocab-phi-3.gguf",
                                           "ggml-vocab-gpt-2.gguf", "ggml-vocab-falcon.gguf",
                                           "ggml-vocab-deepseek-llm.gguf", "rebuilt-llama-bpe.gguf",
                                           "rebuilt-qwen2.gguf"),
                         [](const auto& file) {
                           std::string name = file.param;
                           std::erase_if(name, [](unsigned char c) { return !std::isalnum(c); });
                           return name;
                         });

}  // namespace
}  // namespace pumice
