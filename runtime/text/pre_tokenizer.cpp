#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/pre_tokenizer.hpp"

#include <pcre2.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>

#include "base/printable.hpp"
#include "text/pre_tokenizer_recipes.hpp"
#include "text/utf8.hpp"

namespace pumice {
namespace {

const PreTokenizerRecipe* find_recipe(std::string_view name) {
  // Files from before there were names have none.
  if (name.empty()) name = "default";
  for (const PreTokenizerRecipe& recipe : pre_tokenizer_recipes()) {
    if (recipe.name == name) return &recipe;
  }
  return nullptr;
}

struct CodeDeleter {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};
struct MatchDeleter {
  void operator()(pcre2_match_data* match) const { pcre2_match_data_free(match); }
};
struct ContextDeleter {
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};
using Code = std::unique_ptr<pcre2_code, CodeDeleter>;
using Match = std::unique_ptr<pcre2_match_data, MatchDeleter>;
using Context = std::unique_ptr<pcre2_match_context, ContextDeleter>;
using Words = std::vector<std::string_view>;

struct CompiledStep {
  Code code;
  bool in_thirds;
};

size_t complete_bytes(std::string_view text) {
  size_t end = 0;
  while (end < text.size()) {
    const Utf8Step step = utf8_step(text.substr(end));
    if (step.kind != Utf8Kind::kComplete) break;
    end += step.length;
  }
  return end;
}

size_t malformed_bytes(std::string_view text) {
  size_t end = 0;
  while (end < text.size()) {
    const Utf8Step step = utf8_step(text.substr(end));
    if (step.kind == Utf8Kind::kComplete) break;
    end += step.length;
  }
  return end;
}

// In groups of three characters, the first of which may have less.
void push_thirds(std::string_view digits, Words& words) {
  const auto is_first_byte = [](char c) { return (static_cast<uint8_t>(c) & 0xC0) != 0x80; };
  auto left = static_cast<size_t>(std::ranges::count_if(digits, is_first_byte));
  size_t begin = 0;
  for (size_t i = 1; i < digits.size(); ++i) {
    if (!is_first_byte(digits[i]) || --left % 3 != 0) continue;
    words.push_back(digits.substr(begin, i - begin));
    begin = i;
  }
  words.push_back(digits.substr(begin));
}

// `text` is well-formed.
void split_by(const CompiledStep& step, std::string_view text, const Match& match,
              const Context& context, Words& words) {
  const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(match.get());
  size_t done = 0;
  while (done < text.size()) {
    const int found =
        pcre2_match(step.code.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), done,
                    PCRE2_NO_UTF_CHECK, match.get(), context.get());
    // No match, or PCRE2 had no memory: the rest is one word.
    if (found < 0 || ends[1] <= done) break;
    if (ends[0] > done) words.push_back(text.substr(done, ends[0] - done));
    const std::string_view word = text.substr(ends[0], ends[1] - ends[0]);
    if (step.in_thirds) {
      push_thirds(word, words);
    } else {
      words.push_back(word);
    }
    done = ends[1];
  }
  if (done < text.size()) words.push_back(text.substr(done));
}

}  // namespace

struct PreTokenizer::State {
  std::vector<CompiledStep> steps;
  Context context;
  bool whole_words = false;

  void split_well_formed(std::string_view text, Words& words) const;
};

PreTokenizer::PreTokenizer(std::unique_ptr<State> state) : state_(std::move(state)) {}
PreTokenizer::PreTokenizer(PreTokenizer&&) noexcept = default;
PreTokenizer& PreTokenizer::operator=(PreTokenizer&&) noexcept = default;
PreTokenizer::~PreTokenizer() = default;

Result<PreTokenizer> PreTokenizer::create(std::string_view name) {
  const PreTokenizerRecipe* recipe = find_recipe(name);
  if (recipe == nullptr) {
    return make_error(ErrorCode::kBadFile,
                      "pre-tokenizer '{}' is not one of the {} known (tokenizer.ggml.pre)",
                      printable(name), pre_tokenizer_recipes().size());
  }
  auto state = std::make_unique<State>();
  state->whole_words = recipe->whole_words;
  // The expressions take linear time, so a long text may take as many steps as it needs.
  state->context.reset(pcre2_match_context_create(nullptr));
  pcre2_set_match_limit(state->context.get(), std::numeric_limits<uint32_t>::max());
  pcre2_set_depth_limit(state->context.get(), std::numeric_limits<uint32_t>::max());
  for (const PreTokenizerStep& step : recipe->steps) {
    int error = 0;
    PCRE2_SIZE offset = 0;
    Code code(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(step.expression), PCRE2_ZERO_TERMINATED,
                            PCRE2_UTF, &error, &offset, nullptr));
    if (code == nullptr) {
      return make_error(ErrorCode::kInternal,
                        "PCRE2 refuses an expression of pre-tokenizer '{}' (error {} at {}): {}",
                        recipe->name, error, offset, step.expression);
    }
    pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE);  // only speed depends on it
    state->steps.push_back({std::move(code), step.in_thirds});
  }
  return PreTokenizer(std::move(state));
}

bool PreTokenizer::whole_words() const { return state_->whole_words; }

bool PreTokenizer::adds_bos(std::string_view name) {
  const PreTokenizerRecipe* recipe = find_recipe(name);
  return recipe != nullptr && recipe->adds_bos;
}

bool PreTokenizer::of_characters(std::string_view name) {
  const PreTokenizerRecipe* recipe = find_recipe(name);
  return recipe != nullptr && recipe->of_characters;
}

void PreTokenizer::State::split_well_formed(std::string_view text, Words& words) const {
  Words pieces = {text};
  for (const CompiledStep& step : steps) {
    const Match match(pcre2_match_data_create_from_pattern(step.code.get(), nullptr));
    Words cut;
    for (std::string_view piece : pieces) split_by(step, piece, match, context, cut);
    pieces = std::move(cut);
  }
  words.insert(words.end(), pieces.begin(), pieces.end());
}

std::vector<std::string_view> PreTokenizer::split(std::string_view text) const {
  Words words;
  while (!text.empty()) {
    const size_t n_complete = complete_bytes(text);
    if (n_complete > 0) state_->split_well_formed(text.substr(0, n_complete), words);
    text.remove_prefix(n_complete);
    const size_t n_malformed = malformed_bytes(text);
    if (n_malformed > 0) words.push_back(text.substr(0, n_malformed));
    text.remove_prefix(n_malformed);
  }
  return words;
}

}  // namespace pumice
