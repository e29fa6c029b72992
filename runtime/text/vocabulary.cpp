#include "text/vocabulary.hpp"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <limits>

#include "base/ascii.hpp"
#include "text/pre_tokenizer.hpp"

namespace pumice {
namespace {

std::optional<uint8_t> hex_digit(char c) {
  if (c >= '0' && c <= '9') return static_cast<uint8_t>(c - '0');
  if (c >= 'A' && c <= 'F') return static_cast<uint8_t>(c - 'A' + 10);
  if (c >= 'a' && c <= 'f') return static_cast<uint8_t>(c - 'a' + 10);
  return std::nullopt;
}

std::optional<uint8_t> parse_byte_token(std::string_view text) {
  if (text.size() != 6 || !text.starts_with("<0x") || text.back() != '>') return std::nullopt;
  const auto high = hex_digit(text[3]);
  const auto low = hex_digit(text[4]);
  if (!high || !low) return std::nullopt;
  return static_cast<uint8_t>(*high << 4 | *low);
}

// Of chats, of reasoning, of tool calls, and of files to fill in.
constexpr std::string_view kTurnEnds[] = {
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end_of_text|>",
    "<|im_end|>",
    "<|end|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "<｜end▁of▁sentence｜>",
    "<|return|>",
    "<|call|>",
    "<|calls|>",
    "<|flush|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<eos>",
    "<turn|>",
    "<|tool_response>",
    "<end_of_utterance>",
    "[e~[",
    "<|fim_pad|>",
    "<|fim_repo|>",
    "<|repo_name|>",
    "<|file_sep|>",
};

// Prefix, suffix, middle.
constexpr std::string_view kFillTokens[][3] = {
    {"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"},
    {"<fim_prefix>", "<fim_suffix>", "<fim_middle>"},
    {"<fim-prefix>", "<fim-suffix>", "<fim-middle>"},
    {"<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>"},
    {"<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"},
    {"▁<PRE>", "▁<SUF>", "▁<MID>"},
    {"<PRE>", "<SUF>", "<MID>"},
};

// Some files have these as user-defined, which texts of users then may hold.
constexpr std::string_view kTurnStarts[] = {
    "<|im_start|>",      "<|start_header_id|>", "<|end_header_id|>", "<start_of_turn>",
    "<|start_of_role|>", "<|system|>",          "<|user|>",          "<|assistant|>",
};
// Some files have these as control tokens, which are no part of what a model says.
constexpr std::string_view kReasoningMarks[] = {"<think>", "</think>"};

// What a tokenizer model has where a file says nothing.
struct ModelDefaults {
  std::string_view model;
  std::optional<uint32_t> unknown, bos, eos, separator;
  bool add_bos = false;
  bool add_eos = false;
  bool add_separator = false;
  bool add_space_prefix = false;
};
constexpr ModelDefaults kModelDefaults[] = {
    {.model = "llama", .unknown = 0, .bos = 1, .eos = 2, .add_bos = true, .add_space_prefix = true},
    {.model = "bert",
     .unknown = 100,
     .bos = 101,
     .separator = 102,
     .add_bos = true,
     .add_separator = true,
     .add_space_prefix = true},
    {.model = "t5", .unknown = 2, .eos = 1, .add_eos = true},
    {.model = "gemma4", .add_bos = true},
};

ModelDefaults defaults_of(const VocabularyData& data) {
  for (const ModelDefaults& defaults : kModelDefaults) {
    if (defaults.model == data.model) return defaults;
  }
  return {.model = data.model, .add_bos = PreTokenizer::adds_bos(data.pre_tokenizer)};
}

bool has_any(std::string_view text, std::initializer_list<std::string_view> parts) {
  return std::ranges::any_of(
      parts, [text](std::string_view part) { return text.find(part) != text.npos; });
}

}  // namespace

Result<std::unique_ptr<const Vocabulary>> Vocabulary::create(const VocabularyData& data) {
  std::unique_ptr<Vocabulary> vocabulary(new Vocabulary);
  PUMICE_TRY_STATUS(vocabulary->load_tokens(data));
  vocabulary->load_special_ids(data);
  if (data.types.empty()) vocabulary->infer_types();
  vocabulary->index();
  vocabulary->load_end_tokens();
  vocabulary->load_fill_tokens(data);
  vocabulary->correct_types();
  vocabulary->load_blank_takers(data);
  return std::unique_ptr<const Vocabulary>(std::move(vocabulary));
}

Status Vocabulary::load_tokens(const VocabularyData& data) {
  const size_t count = data.tokens.size();
  if (count == 0) {
    return make_error(ErrorCode::kBadFile, "tokenizer.ggml.tokens is missing or empty");
  }
  if (count > static_cast<size_t>(std::numeric_limits<int32_t>::max())) {
    return make_error(ErrorCode::kBadFile, "tokenizer.ggml.tokens has {} entries, at most 2^31 - 1",
                      count);
  }
  if (!data.scores.empty() && data.scores.size() != count) {
    return make_error(ErrorCode::kBadFile, "tokenizer.ggml.scores has {} entries for {} tokens",
                      data.scores.size(), count);
  }
  if (!data.types.empty() && data.types.size() != count) {
    return make_error(ErrorCode::kBadFile, "tokenizer.ggml.token_type has {} entries for {} tokens",
                      data.types.size(), count);
  }
  for (size_t i = 0; i < data.scores.size(); ++i) {
    if (std::isnan(data.scores[i])) {
      return make_error(ErrorCode::kBadFile, "tokenizer.ggml.scores[{}] is not a number", i);
    }
  }
  types_.assign(count, TokenType::kNormal);
  for (size_t i = 0; i < data.types.size(); ++i) {
    const int32_t type = data.types[i];
    if (type < 0 || type > static_cast<int32_t>(TokenType::kByte)) {
      return make_error(ErrorCode::kBadFile, "tokenizer.ggml.token_type[{}] is {}, expected 0 to 6",
                        i, type);
    }
    if (type != 0) types_[i] = static_cast<TokenType>(type);  // 0, "undefined", is normal
    if (types_[i] == TokenType::kByte && !parse_byte_token(data.tokens[i])) {
      return make_error(
          ErrorCode::kBadFile,
          "tokenizer.ggml.tokens[{}] has type byte but is not spelled <0x00> to <0xFF>", i);
    }
  }
  size_t total_bytes = 0;
  for (std::string_view token : data.tokens) total_bytes += token.size();
  pool_.reserve(total_bytes);
  ends_.reserve(count + 1);
  ends_.push_back(0);
  for (std::string_view token : data.tokens) {
    pool_.append(token);
    ends_.push_back(pool_.size());
  }
  scores_ = data.scores;
  return {};
}

void Vocabulary::load_special_ids(const VocabularyData& data) {
  const ModelDefaults defaults = defaults_of(data);
  const auto known = [this](std::optional<uint32_t> id, std::optional<uint32_t> fallback) {
    if (id && !contains(*id)) id.reset();
    if (!id) id = fallback;
    if (id && !contains(*id)) id.reset();
    return id;
  };
  unknown_ = known(data.unknown_id, defaults.unknown);
  bos_ = known(data.bos_id, defaults.bos);
  eos_ = known(data.eos_id, defaults.eos);
  separator_ = known(data.separator_id, defaults.separator);
  eot_ = known(data.eot_id, std::nullopt);
  eom_ = known(data.eom_id, std::nullopt);
  add_bos_ = data.add_bos.value_or(defaults.add_bos) && bos_;
  // The first files of Gemma 4 say no, and mean yes.
  if (data.model == "gemma4") add_bos_ = bos_.has_value();
  add_eos_ = data.add_eos.value_or(defaults.add_eos) && eos_;
  add_separator_ = defaults.add_separator && data.add_separator.value_or(true) && separator_;
  // Where a separator ends a text nothing else does.
  if (add_separator_) add_eos_ = false;
  opens_second_text_ = add_eos_ && separator_ && data.add_separator.value_or(true);
  add_space_prefix_ = data.add_space_prefix.value_or(defaults.add_space_prefix);
}

/// All three, of the file's ids or of one spelling.
void Vocabulary::load_fill_tokens(const VocabularyData& data) {
  const std::optional<uint32_t> given[3] = {data.fill_prefix_id, data.fill_suffix_id,
                                            data.fill_middle_id};
  if (std::all_of(std::begin(given), std::end(given),
                  [this](const auto& id) { return id && contains(*id); })) {
    fill_tokens_ = {*given[0], *given[1], *given[2]};
    return;
  }
  for (const auto& spelling : kFillTokens) {
    const auto prefix = find(spelling[0]), suffix = find(spelling[1]), middle = find(spelling[2]);
    if (!prefix || !suffix || !middle) continue;
    fill_tokens_ = {*prefix, *suffix, *middle};
    return;
  }
}

void Vocabulary::infer_types() {
  for (TokenId id = 0; id < size(); ++id) {
    if (parse_byte_token(text(id))) types_[id] = TokenType::kByte;
  }
  if (unknown_) types_[*unknown_] = TokenType::kUnknown;
  if (bos_) types_[*bos_] = TokenType::kControl;
  if (eos_) types_[*eos_] = TokenType::kControl;
}

void Vocabulary::index() {
  ids_.reserve(size());
  for (TokenId id = 0; id < size(); ++id) {
    ids_[text(id)] = id;
    if (type(id) == TokenType::kByte) byte_tokens_[byte_of(id)] = id;
  }
}

void Vocabulary::load_end_tokens() {
  for (const auto& id : {eos_, eot_, eom_}) {
    if (id) end_tokens_.push_back(*id);
  }
  // Where a message ends and the turn goes on: gpt-oss's harmony, Solar.
  const bool has_messages = find("<|call|>") && find("<|return|>");
  const bool has_flush = find("<|calls|>") && find("<|flush|>");
  for (std::string_view name : kTurnEnds) {
    if (name == "<|end|>" && (has_messages || has_flush)) continue;
    const auto id = find(name);
    if (id && (type(*id) == TokenType::kControl || type(*id) == TokenType::kUserDefined)) {
      end_tokens_.push_back(*id);
    }
  }
  std::ranges::sort(end_tokens_);
}

void Vocabulary::correct_types() {
  const auto retype = [this](TokenId id, TokenType from, TokenType to) {
    if (types_[id] == from) types_[id] = to;
  };
  for (const TokenId id : end_tokens_) retype(id, TokenType::kUserDefined, TokenType::kControl);
  for (const std::string_view name : kTurnStarts) {
    if (const auto id = find(name)) retype(*id, TokenType::kUserDefined, TokenType::kControl);
  }
  for (const std::string_view name : kReasoningMarks) {
    if (const auto id = find(name)) retype(*id, TokenType::kControl, TokenType::kUserDefined);
  }
}

void Vocabulary::load_blank_takers(const VocabularyData& data) {
  const std::string name = lower_case(data.model_name);
  if (has_any(data.pre_tokenizer, {"jina-v2-de", "jina-v2-es", "jina-v2-code"}) ||
      has_any(data.architecture, {"nomic-bert-moe", "jina-bert-v3"})) {
    takes_before_ = find("<mask>");
  } else if (has_any(name, {"phi-3", "phi3"})) {
    for (TokenId id = 0; id < size(); ++id) {
      const bool special = type(id) == TokenType::kControl || type(id) == TokenType::kUnknown ||
                           type(id) == TokenType::kUserDefined;
      const std::string_view spelling = text(id);
      const bool keeps = spelling == "<unk>" || spelling == "<s>" || spelling == "<|endoftext|>";
      if (special && !keeps) take_behind_.push_back(id);
    }
  } else if (has_any(name, {"modern-bert"})) {
    takes_before_ = find("[MASK]");
  }
}

std::optional<TokenId> Vocabulary::find(std::string_view text) const {
  const auto found = ids_.find(text);
  if (found == ids_.end()) return std::nullopt;
  return found->second;
}

uint8_t Vocabulary::byte_of(TokenId id) const {
  const auto byte = parse_byte_token(text(id));
  PUMICE_CHECK(byte.has_value(), "byte_of() of a token that is not a byte");
  return *byte;
}

bool Vocabulary::ends_generation(TokenId id) const {
  return std::binary_search(end_tokens_.begin(), end_tokens_.end(), id);
}

}  // namespace pumice
