// A model that is served, as requests need to know it. Immutable; any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "answers/chat_prompt.hpp"
#include "base/result.hpp"
#include "constraints/constraint_cache.hpp"
#include "format/gguf.hpp"
#include "host/model_owner.hpp"
#include "sampling/options.hpp"
#include "text/ranking_prompt.hpp"
#include "text/tokenizer.hpp"

namespace pumice::serve {

/// What is known of a model also while it is not loaded.
struct ModelCard {
  std::string id;                          ///< as /v1/models lists it
  std::vector<std::string> names;          ///< further ones; "*": any
  std::vector<std::string> adapters = {};  ///< names of its adapters, by Program::adapters
  std::string architecture;
  uint64_t file_bytes = 0;
  int64_t created = 0;  ///< seconds since 1970: when its file was first read

  /// What the file says of itself; its names are the caller's to fill.
  static ModelCard read(const GgufFile& file);
  /// Also of an adapter.
  bool has_name(std::string_view name) const;
  /// Whether a request for `name` can be for this model; an empty one can.
  bool is_called(std::string_view name) const;
};

/// What is used in place of a file's own.
struct ChatWays {
  std::optional<std::string> chat_template = {};
  std::string answers = {};  ///< how the model writes them, by name (ChatPrompt::create)
};

struct ServedModel : ModelCard {
  std::string device;  ///< that it was loaded onto, as its driver calls it
  std::shared_ptr<const Tokenizer> tokenizer;
  /// Or why messages cannot be prompts. Of a model without a template a plain one, which says what
  /// was said, as `pumice chat` does.
  std::shared_ptr<const Result<ChatPrompt>> chat;
  bool has_template = false;
  std::shared_ptr<ConstraintCache> constraints;
  uint32_t window_tokens = 0;  ///< of a prompt and its answer, or of a text
  uint32_t trained_tokens = 0;
  SamplerOptions sampling;    ///< of requests that do not say
  bool draws_seeds = true;    ///< each request has another seed unless it says
  uint32_t adapter = 0;       ///< GenerationRequest::adapter of its requests
  uint32_t vector_width = 0;  ///< of a model that turns texts into vectors; 0: it writes text
  /// Of one that ranks texts (models/ranking.hpp): of its vectors the number that says how well.
  std::optional<uint32_t> relevant_label = {};
  RankingPrompt ranking = RankingPrompt();

  /// The model of that card with what its file says, or `ways`; `texts` are its own. The rest is the
  /// caller's to fill.
  static ServedModel read(const ModelCard& card, const GgufFile& file,
                          const host::ModelTexts& texts, const ChatWays& ways);

  /// One of its adapters, as a model of that name alone.
  ServedModel with_adapter(size_t index) const;

  bool embeds() const { return vector_width != 0 && !relevant_label; }
  bool ranks() const { return relevant_label.has_value(); }
  bool writes() const { return vector_width == 0; }
};

}  // namespace pumice::serve
