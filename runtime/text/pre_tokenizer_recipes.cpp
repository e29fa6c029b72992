#include "text/pre_tokenizer_recipes.hpp"

namespace pumice {
namespace {

// Unicode's White_Space. PCRE2's own \s also has U+180E, which Unicode dropped.
#define SPACE                                                                              \
  "\\t-\\r \\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}" \
  "\\x{3000}"
#define BLANKS "[" SPACE "]+(?![^" SPACE "])|[" SPACE "]+"
#define LINE_ENDS "[" SPACE "]*[\\r\\n]+"
// In any case, but not (?i:…), which would also take U+017F for an s.
#define CONTRACTIONS "'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]"
#define LETTERS "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+"
#define SYMBOLS " ?[^" SPACE "\\p{L}\\p{N}]+"

constexpr const char* kGpt2 = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+|" SYMBOLS "|" BLANKS;
constexpr const char* kDigits = "\\p{N}";
constexpr const char* kThreeDigits = "\\p{N}{1,3}";
constexpr const char* kLlama3 =
    CONTRACTIONS "|" LETTERS "|\\p{N}{1,3}|" SYMBOLS "[\\r\\n]*|" LINE_ENDS "|" BLANKS;
constexpr const char* kQwen2 =
    CONTRACTIONS "|" LETTERS "|\\p{N}|" SYMBOLS "[\\r\\n]*|" LINE_ENDS "|" BLANKS;

constexpr PreTokenizerStep kGpt2Steps[] = {{kGpt2}};
constexpr PreTokenizerStep kStarcoderSteps[] = {{kDigits}, {kGpt2}};
constexpr PreTokenizerStep kLlama3Steps[] = {{kLlama3}};
constexpr PreTokenizerStep kQwen2Steps[] = {{kQwen2}};
constexpr PreTokenizerStep kQwen35Steps[] = {
    {CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^" SPACE
                  "\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" LINE_ENDS "|" BLANKS}};
constexpr PreTokenizerStep kMiniCpm5Steps[] = {
    {kThreeDigits},
    {CONTRACTIONS "|" LETTERS "|\\p{N}+|" SYMBOLS "[\\r\\n]*|" LINE_ENDS "|" BLANKS}};
constexpr PreTokenizerStep kSeedCoderSteps[] = {
    {CONTRACTIONS "|" LETTERS "|\\p{N}| ?[^" SPACE "\\p{L}\\p{N}\\r\\n]+|" LINE_ENDS "|" BLANKS}};
constexpr PreTokenizerStep kUfakzekaSteps[] = {
    {LETTERS "|\\p{N}|" SYMBOLS "[\\r\\n]*|" LINE_ENDS "|" BLANKS}};
constexpr PreTokenizerStep kLagunaSteps[] = {{"[^\\n]+|\\n+"}, {kQwen2}};
constexpr PreTokenizerStep kBailingMoeSteps[] = {
    {"'(?:[sSdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE])|" LETTERS "|\\p{N}|" SYMBOLS "[\\r\\n]*|[" SPACE
     "]*[\\r\\n]|" BLANKS}};
// Letters with marks, and single spaces between two of them.
constexpr PreTokenizerStep kExaoneMoeSteps[] = {
    {CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}[\\p{L}\\p{M}]*+(?: \\p{L}[\\p{L}\\p{M}]*+)*+"
                  "|\\p{N}|" SYMBOLS "[\\r\\n/]?|[" SPACE "]*[\\r\\n]|" BLANKS}};
// Of blanks without a line end no more than 512 are one word, so the look for a line end, again for
// each, is bounded: from 4096 blanks on words may begin elsewhere than in the model's own.
constexpr PreTokenizerStep kJais2Steps[] = {
    {CONTRACTIONS "|" LETTERS "|\\p{N}{1,3}|" SYMBOLS "[\\r\\n]*|"
                  "[" SPACE "]{0,4096}[\\r\\n]+"
                  "|(?:[" SPACE "]{512}|[" SPACE "]{256}|[" SPACE "]{128}|[" SPACE "]{64}|[" SPACE
                  "]{32}|[" SPACE "]{16}|[" SPACE "]{8}|[" SPACE "]{4}|[" SPACE "]{1,2})(?![^" SPACE
                  "])|[" SPACE "]"}};

// Words end where small letters are followed by capitals; letters without case are both.
#define CAPITALS "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define SMALL "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define CASED(capitals, small, ending)                                                      \
  "[^\\r\\n\\p{L}\\p{N}]?" capitals "*" small "+" ending "|[^\\r\\n\\p{L}\\p{N}]?" capitals \
  "+" small "*" ending
#define GPT4O                                     \
  CASED(CAPITALS, SMALL, "(?:" CONTRACTIONS ")?") \
  "|\\p{N}{1,3}|" SYMBOLS "[\\r\\n/]*|" LINE_ENDS "|" BLANKS
// Without Han: whatever is in none of the other classes is a letter or mark of the kinds wanted.
#define CAPITALS_BUT_HAN "[^\\p{Ll}\\p{N}\\p{P}\\p{S}\\p{Z}\\p{C}\\p{sc:Han}]"
#define SMALL_BUT_HAN "[^\\p{Lu}\\p{Lt}\\p{N}\\p{P}\\p{S}\\p{Z}\\p{C}\\p{sc:Han}]"

constexpr PreTokenizerStep kTekkenSteps[] = {
    {CASED(CAPITALS, SMALL, "") "|\\p{N}|" SYMBOLS "[\\r\\n/]*|" LINE_ENDS "|" BLANKS}};
constexpr PreTokenizerStep kGpt4oSteps[] = {{GPT4O}};
// \d{1,3}(?=(?:\d{3})*\b), which alone would look at the rest of the digits from each of them.
constexpr PreTokenizerStep kTinyAyaSteps[] = {
    {"\\p{Nd}++(?:(?![\\p{L}\\p{M}\\p{Nl}\\p{Pc}])|(*SKIP)(*FAIL))", true}, {GPT4O}};
constexpr PreTokenizerStep kKimiK2Steps[] = {{"\\p{sc:Han}+|" CASED(
    CAPITALS_BUT_HAN, SMALL_BUT_HAN, "(?:" CONTRACTIONS ")?") "|\\p{N}{1,3}|" SYMBOLS
                                                              "[\\r\\n]*|" LINE_ENDS "|" BLANKS}};
constexpr PreTokenizerStep kYoutuSteps[] = {
    {"[\\x{ac00}-\\x{d7a3}\\x{3131}-\\x{318e}]+"
     "|[\\x{ff01}\\x{2026}\\x{201c}\\x{201d}\\x{2018}\\x{2019}\\x{2014}\\x{ff1a}\\x{ff1b}\\x{ff0c}"
     "\\x{3001}-\\x{303f}\\x{fe30}-\\x{fe4f}]+"
     "|[\\x{3105}-\\x{312f}]+|[\\x{4e00}-\\x{9fa5}\\x{3040}-\\x{30ff}]+"},
    {CASED(CAPITALS, SMALL, "(?:" CONTRACTIONS ")?") "|\\p{N}|" SYMBOLS "[\\r\\n/]*|" LINE_ENDS
                                                     "|" BLANKS}};

#define ASCII_SYMBOL "[!-/:-@\\[-`{-~]"
#define DEEPSEEK_WORDS \
  ASCII_SYMBOL "[A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+"
constexpr const char* kChineseAndKana = "[\\x{4e00}-\\x{9fa5}\\x{3040}-\\x{30ff}]+";
constexpr const char* kDeepSeekChinese =
    "[\\x{4e00}-\\x{9fa5}\\x{800}-\\x{4e00}\\x{ac00}-\\x{d7ff}]+";
// What had two cases in an older Unicode.
#define DEEPSEEK_LETTERS                                                                  \
  "A-Za-z\\x{b5}\\x{c0}-\\x{d6}\\x{d8}-\\x{f6}\\x{f8}-\\x{1ba}\\x{1bc}-\\x{1bf}"          \
  "\\x{1c4}-\\x{293}\\x{295}-\\x{2af}\\x{370}-\\x{373}\\x{376}\\x{377}\\x{37b}-\\x{37d}"  \
  "\\x{37f}\\x{386}\\x{388}-\\x{38a}\\x{38c}\\x{38e}-\\x{3a1}\\x{3a3}-\\x{3f5}"           \
  "\\x{3f7}-\\x{481}\\x{48a}-\\x{52f}\\x{531}-\\x{556}\\x{10a0}-\\x{10c5}"                \
  "\\x{13a0}-\\x{13f5}\\x{13f8}-\\x{13fd}\\x{1c90}-\\x{1cba}\\x{1cbd}-\\x{1cbf}"          \
  "\\x{1d00}-\\x{1d2b}\\x{1d6b}-\\x{1d77}\\x{1d79}-\\x{1d9a}\\x{1e00}-\\x{1f15}"          \
  "\\x{1f18}-\\x{1f1d}\\x{1f20}-\\x{1f45}\\x{1f48}-\\x{1f4d}\\x{1f50}-\\x{1f57}\\x{1f59}" \
  "\\x{1f5b}\\x{1f5d}\\x{1f5f}-\\x{1f7d}\\x{1f80}-\\x{1fb4}\\x{1fb6}-\\x{1fbc}\\x{1fbe}"  \
  "\\x{1fc2}-\\x{1fc4}\\x{1fc6}-\\x{1fcc}\\x{1fd0}-\\x{1fd3}\\x{1fd6}-\\x{1fdb}"          \
  "\\x{1fe0}-\\x{1fec}\\x{1ff2}-\\x{1ff4}\\x{1ff6}-\\x{1ffc}\\x{2102}\\x{2107}"           \
  "\\x{210a}-\\x{2113}\\x{2115}\\x{2119}-\\x{211d}\\x{2124}\\x{2126}\\x{2128}"            \
  "\\x{212a}-\\x{212d}\\x{212f}-\\x{2134}\\x{2139}\\x{213c}-\\x{213f}\\x{2145}-\\x{2149}" \
  "\\x{214e}\\x{2183}\\x{2184}\\x{2c00}-\\x{2c7b}\\x{2c7e}-\\x{2ce4}\\x{2ceb}-\\x{2cee}"  \
  "\\x{2cf2}\\x{2cf3}\\x{a640}-\\x{a66d}\\x{a680}-\\x{a69b}\\x{a722}-\\x{a76f}"           \
  "\\x{a771}-\\x{a787}\\x{a78b}-\\x{a78e}\\x{ab70}-\\x{abbf}\\x{fb00}-\\x{fb06}"          \
  "\\x{fb13}-\\x{fb17}\\x{ff21}-\\x{ff3a}\\x{ff41}-\\x{ff5a}\\x{10400}-\\x{1044f}"        \
  "\\x{104b0}-\\x{104d3}\\x{104d8}-\\x{104fb}\\x{10c80}-\\x{10cb2}\\x{10cc0}-\\x{10cf2}"  \
  "\\x{118a0}-\\x{118df}\\x{1e900}-\\x{1e943}"

constexpr PreTokenizerStep kDeepSeekV3Steps[] = {
    {kThreeDigits}, {kChineseAndKana}, {DEEPSEEK_WORDS "[\\r\\n]*|" LINE_ENDS "|" BLANKS}};
constexpr PreTokenizerStep kSparkSteps[] = {
    {kThreeDigits}, {kChineseAndKana}, {DEEPSEEK_WORDS "|[\\r\\n]|" BLANKS}, {kDigits}};
constexpr PreTokenizerStep kDeepSeekLlmSteps[] = {
    {"[\\r\\n]"},
    {"[" SPACE "]?[" DEEPSEEK_LETTERS "]+"},
    {"[" SPACE "]?[!-/:-~\\x{ff01}-\\x{ff0f}\\x{ff1a}-\\x{ff5e}\\x{2018}-\\x{201f}"
     "\\x{3000}-\\x{3002}]+"},
    {"[" SPACE "]++(?:\\z|(*SKIP)(*FAIL))"},
    {kDeepSeekChinese},
    {"\\p{N}+"}};
constexpr PreTokenizerStep kDeepSeekCoderSteps[] = {
    {"[\\r\\n]"}, {"[" SPACE "]?\\p{L}+"}, {"[" SPACE "]?\\p{P}+"}, {kDeepSeekChinese}, {kDigits}};
// Chinese, kana, Thai, Lao, Khmer, Burmese and Hangul.
constexpr PreTokenizerStep kAfmoeSteps[] = {
    {"\\p{N}+", true},
    {"[\\x{4e00}-\\x{9fff}\\x{3400}-\\x{4dbf}\\x{f900}-\\x{faff}\\x{3040}-\\x{30ff}"
     "\\x{ff65}-\\x{ff9f}\\x{2f00}-\\x{2fdf}\\x{e00}-\\x{eff}\\x{1780}-\\x{17ff}"
     "\\x{1000}-\\x{109f}\\x{aa60}-\\x{aa7f}\\x{a9e0}-\\x{a9ff}\\x{ac00}-\\x{d7af}"
     "\\x{1100}-\\x{11ff}]+"},
    {DEEPSEEK_WORDS "[\\r\\n]*|" LINE_ENDS "|" BLANKS}};

constexpr const char* kThreeAsciiDigits = "[0-9][0-9][0-9]";
constexpr PreTokenizerStep kFalconSteps[] = {{"[\\p{P}$+<=>^~|`]+"}, {kGpt2}, {kThreeAsciiDigits}};
constexpr PreTokenizerStep kDefaultSteps[] = {
    {"[\\p{P}$+<=>^~|]+"}, {kGpt2}, {"\\p{N}+"}, {kThreeAsciiDigits}};
// Full stops and commas of Chinese, Hindi, Urdu and Arabic among them.
constexpr const char* kBloom =
    " ?[^(" SPACE "|.,!?\\x{2026}\\x{3002}\\x{ff0c}\\x{3001}\\x{964}\\x{6d4}\\x{60c})]+";
constexpr PreTokenizerStep kBloomSteps[] = {{kBloom}};
constexpr PreTokenizerStep kVikingSteps[] = {{kBloom}, {kDigits}};
constexpr PreTokenizerStep kSuperBpeSteps[] = {{"\\p{N}+"}, {"\\p{Nd}+", true}};
constexpr PreTokenizerStep kChameleonSteps[] = {{"<sentinel:[0-9]+>"},      {"IMGIMG[A-I]{1,4}Z"},
                                                {"[\\t\\n]|    |  "},       {kDigits},
                                                {"[\\p{P}!-/:-@\\[-`{-~]"}, {kGpt2}};
// What merges characters cuts nothing but lines, and that itself.
constexpr std::span<const PreTokenizerStep> kNoSteps;

constexpr PreTokenizerRecipe kRecipes[] = {
    {"default", kDefaultSteps},
    {"gpt-2", kGpt2Steps},
    {"phi-2", kGpt2Steps},
    {"mpt", kGpt2Steps},
    {"olmo", kGpt2Steps},
    {"jais", kGpt2Steps},
    {"trillion", kGpt2Steps},
    {"granite-docling", kGpt2Steps},
    {"exaone4", kGpt2Steps},
    {"gigachat", kGpt2Steps},
    {"a.x-4.0", kGpt2Steps},
    {"mellum", kGpt2Steps},
    {"modern-bert", kGpt2Steps},
    {"roberta-bpe", kGpt2Steps},
    {"jina-es", kGpt2Steps},
    {"jina-de", kGpt2Steps},
    {"jina-v1-en", kGpt2Steps},
    {"jina-v2-es", kGpt2Steps},
    {"jina-v2-de", kGpt2Steps},
    {"jina-v2-code", kGpt2Steps},
    {"starcoder", kStarcoderSteps},
    {"refact", kStarcoderSteps},
    {"command-r", kStarcoderSteps},
    {"smollm", kStarcoderSteps},
    {"codeshell", kStarcoderSteps},
    {"exaone", kStarcoderSteps},
    {"minerva-7b", kStarcoderSteps},
    {"mellum2", kStarcoderSteps},
    {"llama-bpe", kLlama3Steps, true, true},
    {"llama3", kLlama3Steps, true, true},
    {"llama-v3", kLlama3Steps, true, true},
    {"falcon3", kLlama3Steps, true, true},
    {"falcon-h1", kLlama3Steps, true, true},
    {"pixtral", kLlama3Steps, true, true},
    {"midm-2.0", kLlama3Steps, true, true},
    {"lfm2", kLlama3Steps, true, true},
    {"jina-v5-nano", kLlama3Steps, true, true},
    {"dbrx", kLlama3Steps},
    {"smaug-bpe", kLlama3Steps},
    {"glm4", kLlama3Steps},
    {"chatglm-bpe", kLlama3Steps},
    {"minicpm5", kMiniCpm5Steps, true},
    {"qwen2", kQwen2Steps},
    {"deepseek-r1-qwen", kQwen2Steps},
    {"kormo", kQwen2Steps},
    {"f2llmv2", kQwen2Steps},
    {"megrez", kQwen2Steps},
    {"stablelm2", kQwen2Steps},
    {"hunyuan", kQwen2Steps},
    {"solar-open", kQwen2Steps},
    {"grok-2", kQwen2Steps},
    {"qwen35", kQwen35Steps},
    {"seed-coder", kSeedCoderSteps},
    {"ufakzeka", kUfakzekaSteps},
    {"laguna", kLagunaSteps},
    {"bailingmoe", kBailingMoeSteps},
    {"bailingmoe2", kBailingMoeSteps},
    {"llada-moe", kBailingMoeSteps},
    {"exaone-moe", kExaoneMoeSteps},
    {"jais-2", kJais2Steps},
    {"tekken", kTekkenSteps, true, true},
    {"gpt-4o", kGpt4oSteps},
    {"llama4", kGpt4oSteps},
    {"kanana2", kGpt4oSteps},
    {"talkie", kGpt4oSteps},
    {"minimax-m2", kGpt4oSteps},
    {"granite-embed-multi-97m", kGpt4oSteps, true},
    {"tiny_aya", kTinyAyaSteps},
    {"cohere2moe", kTinyAyaSteps},
    {"kimi-k2", kKimiK2Steps},
    {"youtu", kYoutuSteps, true},
    {"deepseek-llm", kDeepSeekLlmSteps},
    {"deepseek-coder", kDeepSeekCoderSteps},
    {"deepseek-v3", kDeepSeekV3Steps},
    {"hunyuan-dense", kDeepSeekV3Steps},
    {"joyai-llm", kDeepSeekV3Steps},
    {"hy_v4", kDeepSeekV3Steps},
    {"spark2_5", kSparkSteps},
    {"afmoe", kAfmoeSteps},
    {"falcon", kFalconSteps},
    {"bloom", kBloomSteps},
    {"poro-chat", kBloomSteps},
    {"gpt3-finnish", kBloomSteps},
    {"viking", kVikingSteps},
    {"superbpe", kSuperBpeSteps},
    {"chameleon", kChameleonSteps, false, true},
    {"gemma4", kNoSteps, false, true, true},
    {"granite-embed-multi-311m", kNoSteps, false, true, true},
    {"sarvam-moe", kNoSteps, false, false, true},
};

}  // namespace

std::span<const PreTokenizerRecipe> pre_tokenizer_recipes() { return kRecipes; }

}  // namespace pumice
