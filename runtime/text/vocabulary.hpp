// The tokens of a model: what a tokenizer is made of. VocabularyData is the plain description that
// a file reader fills; Vocabulary is the checked, owned and indexed form.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.hpp"

namespace pumice {

using TokenId = uint32_t;

/// GGUF's numbers (tokenizer.ggml.token_type).
enum class TokenType : uint8_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,  ///< found in the text before anything else, even when special tokens are not
  kUnused = 5,
  kByte = 6,  ///< spelled "<0x0A>", stands for that byte
};

/// As it stands in a file; nothing is checked yet. The views must live until Vocabulary::create has
/// returned. Absent fields get the tokenizer model's defaults; an id that is not below the number
/// of tokens (files write 2^32 - 1 for "none") counts as absent.
struct VocabularyData {
  std::string_view model = {};          ///< tokenizer.ggml.model: "llama", "gpt2", …
  std::string_view pre_tokenizer = {};  ///< tokenizer.ggml.pre
  std::vector<std::string_view> tokens = {};
  std::vector<float> scores = {};             ///< one per token ("llama"), else empty
  std::vector<int32_t> types = {};            ///< one TokenType per token, or empty
  std::vector<std::string_view> merges = {};  ///< "left right", best first ("gpt2")
  std::optional<uint32_t> bos_id = {};
  std::optional<uint32_t> eos_id = {};
  std::optional<uint32_t> unknown_id = {};
  std::optional<uint32_t> eot_id = {};        ///< end of turn
  std::optional<uint32_t> eom_id = {};        ///< end of message
  std::optional<uint32_t> separator_id = {};  ///< tokenizer.ggml.seperator_token_id
  /// tokenizer.ggml.fim_pre_token_id, fim_suf_token_id and fim_mid_token_id
  std::optional<uint32_t> fill_prefix_id = {}, fill_suffix_id = {}, fill_middle_id = {};
  std::optional<bool> add_bos = {};
  std::optional<bool> add_eos = {};
  std::optional<bool> add_separator = {};  ///< tokenizer.ggml.add_sep_token
  std::optional<bool> add_space_prefix = {};
  std::optional<bool> lower_case = {};     ///< tokenizer.ggml.normalizer.lowercase ("bert")
  std::optional<bool> strip_accents = {};  ///< tokenizer.ggml.normalizer.strip_accents ("bert")
  /// tokenizer.ggml.remove_extra_whitespaces and tokenizer.ggml.precompiled_charsmap ("t5")
  std::optional<bool> merge_spaces = {};
  std::vector<uint8_t> charsmap = {};
  /// general.name and general.architecture: files do not say which special tokens take the spaces
  /// around them along, so that it hangs on the model.
  std::string_view model_name = {};
  std::string_view architecture = {};
};

/// Tokens that ask a model for what belongs between two texts: prefix, the first text, suffix, the
/// second one, middle, behind which it writes.
struct FillTokens {
  TokenId prefix = 0;
  TokenId suffix = 0;
  TokenId middle = 0;
};

/// Immutable; safe to read from any thread. Copying and moving are disabled because the index
/// points into it.
class Vocabulary {
 public:
  /// Fails with kBadFile, naming the field, when arrays differ in length, a type is unknown or a
  /// score is not a number. Without types, "<0x0A>" spellings are bytes, BOS and EOS are control
  /// tokens and the unknown token is unknown.
  static Result<std::unique_ptr<const Vocabulary>> create(const VocabularyData& data);

  Vocabulary(const Vocabulary&) = delete;
  Vocabulary& operator=(const Vocabulary&) = delete;

  size_t size() const { return types_.size(); }
  bool contains(TokenId id) const { return id < size(); }

  /// `id` must be below size().
  std::string_view text(TokenId id) const {
    return std::string_view(pool_).substr(ends_[id], ends_[id + 1] - ends_[id]);
  }
  /// The file's, but for spellings whose role is known: what ends or begins a turn is a control
  /// token and the marks of reasoning (<think>, </think>) are user-defined, whichever of the two it
  /// says.
  TokenType type(TokenId id) const { return types_[id]; }
  bool has_scores() const { return !scores_.empty(); }
  float score(TokenId id) const { return scores_.empty() ? 0.0f : scores_[id]; }

  /// The token spelled `text`, of any type; of several, the last one, as llama.cpp has it.
  std::optional<TokenId> find(std::string_view text) const;
  /// The byte token of `byte`, if there is one.
  std::optional<TokenId> byte_token(uint8_t byte) const { return byte_tokens_[byte]; }
  /// The byte that a token of type kByte stands for.
  uint8_t byte_of(TokenId id) const;

  std::optional<TokenId> bos() const { return bos_; }
  std::optional<TokenId> eos() const { return eos_; }
  std::optional<TokenId> unknown() const { return unknown_; }
  std::optional<TokenId> eot() const { return eot_; }
  /// As the file says, or by their known spellings; nothing: the model cannot fill in.
  const std::optional<FillTokens>& fill_tokens() const { return fill_tokens_; }
  bool add_bos() const { return add_bos_; }
  bool add_eos() const { return add_eos_; }
  /// The token that ends a text of "bert" where another model has EOS.
  std::optional<TokenId> separator() const { return separator_; }
  bool add_separator() const { return add_separator_; }
  /// Whether one stands before the second of two texts as well, as RoBERTa's </s></s>.
  bool opens_second_text() const { return opens_second_text_; }
  bool add_space_prefix() const { return add_space_prefix_; }

  /// Whether the blanks before or behind a special token vanish with it.
  bool takes_blanks_before(TokenId id) const { return id == takes_before_; }
  bool takes_blanks_behind(TokenId id) const {
    return std::binary_search(take_behind_.begin(), take_behind_.end(), id);
  }

  /// Whether generation stops at `id`: EOS, end of turn or message, and the control tokens that
  /// models are known to end a turn with ("<|im_end|>", "<end_of_turn>", …) although their files do
  /// not say so.
  bool ends_generation(TokenId id) const;

 private:
  Vocabulary() = default;
  Status load_tokens(const VocabularyData& data);
  void load_special_ids(const VocabularyData& data);
  void infer_types();
  void index();
  void load_end_tokens();
  void load_fill_tokens(const VocabularyData& data);
  void correct_types();
  void load_blank_takers(const VocabularyData& data);

  std::string pool_;            // every token's text, one after the other
  std::vector<uint64_t> ends_;  // size() + 1 offsets into pool_
  std::vector<TokenType> types_;
  std::vector<float> scores_;
  std::unordered_map<std::string_view, TokenId> ids_;
  std::array<std::optional<TokenId>, 256> byte_tokens_;
  std::vector<TokenId> end_tokens_;   // sorted
  std::vector<TokenId> take_behind_;  // sorted
  std::optional<TokenId> takes_before_;
  std::optional<TokenId> bos_, eos_, unknown_, eot_, eom_, separator_;
  std::optional<FillTokens> fill_tokens_;
  bool add_bos_ = false;
  bool add_eos_ = false;
  bool add_separator_ = false;
  bool opens_second_text_ = false;
  bool add_space_prefix_ = false;
};

}  // namespace pumice
