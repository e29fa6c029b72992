#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/pre_tokenizer.hpp"

#include <pcre2.h>

#include <algorithm>
#include <array>
#include <cstdint>

#include "base/printable.hpp"

namespace pumice {
namespace {

// Unicode's White_Space. PCRE2's own \s also has U+180E, which Unicode dropped.
#define SPACE                                                                              \
  "\\t-\\r \\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}" \
  "\\x{3000}"
#define BLANKS "[" SPACE "]+(?![^" SPACE "])|[" SPACE "]+"
// In any case, but not (?i:…), which would also take U+017F for an s.
#define CONTRACTIONS "'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]"

constexpr const char* kGpt2 =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^" SPACE "\\p{L}\\p{N}]+|" BLANKS;
constexpr const char* kSingleDigits = "\\p{N}";
constexpr const char* kLlama3 =
    CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^" SPACE
                 "\\p{L}\\p{N}]+[\\r\\n]*|[" SPACE "]*[\\r\\n]+|" BLANKS;
constexpr const char* kQwen2 = CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^" SPACE
                                            "\\p{L}\\p{N}]+[\\r\\n]*|[" SPACE "]*[\\r\\n]+|" BLANKS;
#undef CONTRACTIONS
#undef BLANKS
#undef SPACE

// Several expressions cut one after the other, each what the one before has left in one piece.
struct Recipe {
  std::string_view name;
  std::array<const char*, 2> expressions;
  bool whole_words = false;
  bool adds_bos = false;
};
constexpr Recipe kRecipes[] = {
    {"gpt-2", {kGpt2}},
    {"mpt", {kGpt2}},
    {"olmo", {kGpt2}},
    {"jais", {kGpt2}},
    {"phi-2", {kGpt2}},
    {"llama-bpe", {kLlama3}, true, true},
    {"llama3", {kLlama3}, true, true},
    {"llama-v3", {kLlama3}, true, true},
    {"qwen2", {kQwen2}},
    {"deepseek-r1-qwen", {kQwen2}},
    {"stablelm2", {kQwen2}},
    {"command-r", {kSingleDigits, kGpt2}},
    {"refact", {kSingleDigits, kGpt2}},
    {"smollm", {kSingleDigits, kGpt2}},
    {"starcoder", {kSingleDigits, kGpt2}},
};

const Recipe* find_recipe(std::string_view name) {
  const auto* found = std::find_if(std::begin(kRecipes), std::end(kRecipes),
                                   [name](const Recipe& recipe) { return recipe.name == name; });
  return found == std::end(kRecipes) ? nullptr : found;
}

struct CodeDeleter {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};
struct MatchDeleter {
  void operator()(pcre2_match_data* match) const { pcre2_match_data_free(match); }
};
using Code = std::unique_ptr<pcre2_code, CodeDeleter>;
using Match = std::unique_ptr<pcre2_match_data, MatchDeleter>;

void split_by(const Code& code, std::string_view text, std::vector<std::string_view>& words) {
  const Match match(pcre2_match_data_create_from_pattern(code.get(), nullptr));
  size_t done = 0;
  while (done < text.size()) {
    const int found = pcre2_match(code.get(), reinterpret_cast<PCRE2_SPTR>(text.data()),
                                  text.size(), done, 0, match.get(), nullptr);
    // No match, or PCRE2 gave up at one of its limits: the rest is one word.
    if (found < 0) break;
    const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(match.get());
    if (ends[1] <= done) break;
    if (ends[0] > done) words.push_back(text.substr(done, ends[0] - done));
    words.push_back(text.substr(ends[0], ends[1] - ends[0]));
    done = ends[1];
  }
  if (done < text.size()) words.push_back(text.substr(done));
}

}  // namespace

struct PreTokenizer::State {
  std::vector<Code> codes;
  bool whole_words = false;
};

PreTokenizer::PreTokenizer(std::unique_ptr<State> state) : state_(std::move(state)) {}
PreTokenizer::PreTokenizer(PreTokenizer&&) noexcept = default;
PreTokenizer& PreTokenizer::operator=(PreTokenizer&&) noexcept = default;
PreTokenizer::~PreTokenizer() = default;

Result<PreTokenizer> PreTokenizer::create(std::string_view name) {
  const Recipe* recipe = find_recipe(name);
  if (recipe == nullptr) {
    std::string known;
    for (const Recipe& each : kRecipes)
      known += fmt::format("{}{}", known.empty() ? "" : ", ", each.name);
    return make_error(ErrorCode::kBadFile,
                      "pre-tokenizer '{}' is not supported yet (tokenizer.ggml.pre; supported: {})",
                      printable(name), known);
  }
  auto state = std::make_unique<State>();
  state->whole_words = recipe->whole_words;
  for (const char* expression : recipe->expressions) {
    if (expression == nullptr) continue;
    int error = 0;
    PCRE2_SIZE offset = 0;
    Code code(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(expression), PCRE2_ZERO_TERMINATED,
                            PCRE2_UTF | PCRE2_MATCH_INVALID_UTF, &error, &offset, nullptr));
    if (code == nullptr) {
      return make_error(ErrorCode::kInternal,
                        "PCRE2 refuses the expression of pre-tokenizer '{}' (error {} at {})", name,
                        error, offset);
    }
    pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE);  // only speed depends on it
    state->codes.push_back(std::move(code));
  }
  return PreTokenizer(std::move(state));
}

bool PreTokenizer::whole_words() const { return state_->whole_words; }

bool PreTokenizer::adds_bos(std::string_view name) {
  const Recipe* recipe = find_recipe(name);
  return recipe != nullptr && recipe->adds_bos;
}

std::vector<std::string_view> PreTokenizer::split(std::string_view text) const {
  std::vector<std::string_view> words;
  if (!text.empty()) words.push_back(text);
  for (const Code& code : state_->codes) {
    std::vector<std::string_view> cut;
    for (std::string_view word : words) split_by(code, word, cut);
    words = std::move(cut);
  }
  return words;
}

}  // namespace pumice
