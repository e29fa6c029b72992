// The C ABI: texts that become vectors.
#include <algorithm>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "api/handles.hpp"
#include "api/options.hpp"
#include "api/structs.hpp"
#include "host/load_model.hpp"
#include "models/embedding.hpp"

namespace pumice::api {
namespace {

Result<std::unique_ptr<pumice_embedder>> create_embedder(const pumice_model& model,
                                                         const pumice_embedder_options* given) {
  PUMICE_TRY(EmbedderInput input, read_embedder_options(given));
  PUMICE_TRY(const host::OpenedModel opened, model.owner->current());
  const Program& program = opened.model->program;
  if (!program.pooling) {
    return make_error(ErrorCode::kInvalidArgument,
                      "the model was loaded to write text: set pumice_model_options.embeds");
  }
  if (program.relevant_label) {
    return make_error(ErrorCode::kInvalidArgument, "the model ranks texts and gives no embeddings");
  }
  EmbedderOptions& options = input.embedder;
  if (options.text_tokens == 0) {
    options.text_tokens = host::default_context_tokens(longest_text(program));
  }
  auto handle = std::make_unique<pumice_embedder>();
  handle->normalizes = input.normalizes;
  PUMICE_TRY(handle->embedder, host::LastingEmbedder::create(model.owner, options));
  return handle;
}

/// Tokens of texts. Errors: what is wrong with which.
Result<std::vector<std::vector<TokenId>>> tokens_of(const Tokenizer& tokenizer,
                                                    const pumice_string* texts, size_t n_texts) {
  PUMICE_TRY(const std::span<const pumice_string> given, read_array(texts, n_texts, "texts"));
  std::vector<std::vector<TokenId>> tokens;
  for (size_t i = 0; i < given.size(); ++i) {
    PUMICE_TRY(const std::string_view text, read_text(given[i], fmt::format("text {}", i + 1)));
    PUMICE_TRY(tokens.emplace_back(), tokenizer.encode(text, {.parse_special = false}));
  }
  return tokens;
}

ApiStatus embed(pumice_embedder& handle, const pumice_string* texts, size_t n_texts, float* vectors,
                size_t capacity, size_t* n_floats) {
  host::LastingEmbedder& embedder = *handle.embedder;
  PUMICE_TRY(const std::vector<std::vector<TokenId>> tokens,
             tokens_of(*embedder.model().texts().tokenizer, texts, n_texts));
  const size_t width = embedder.width();
  const size_t n = tokens.size() * width;
  *n_floats = n;
  if (capacity == 0 && vectors == nullptr) return {};
  if (capacity < n) {
    return {PUMICE_TOO_SMALL, fmt::format("{} vectors of {} numbers do not fit an array of {}",
                                          tokens.size(), width, capacity)};
  }
  *n_floats = 0;
  const std::unique_lock lock(handle.mutex, std::try_to_lock);
  if (!lock) return {PUMICE_BUSY, "another thread is in a call for this embedder"};
  PUMICE_TRY(std::vector<std::vector<float>> computed, embedder.embed(tokens));
  *n_floats = n;
  for (std::vector<float>& vector : computed) {
    if (handle.normalizes) normalise(vector, width);
    vectors = std::copy(vector.begin(), vector.end(), vectors);
  }
  return {};
}

}  // namespace

}  // namespace pumice::api

using namespace pumice;
using namespace pumice::api;

pumice_status pumice_embedder_create(pumice_model* model, const pumice_embedder_options* options,
                                     pumice_embedder** embedder) {
  return guarded([&]() -> ApiStatus {
    if (embedder == nullptr) return invalid("embedder is NULL");
    *embedder = nullptr;
    PUMICE_TRY_STATUS(check_handle(model, "model"));
    Result<std::unique_ptr<pumice_embedder>> created = create_embedder(*model, options);
    if (!created.ok()) return created.error();
    *embedder = created->release();
    return {};
  });
}

pumice_status pumice_embedder_get_info(const pumice_embedder* embedder,
                                       pumice_embedder_info* info) {
  return guarded([&]() -> ApiStatus {
    PUMICE_TRY_STATUS(check_struct(info, "info"));
    write_struct(pumice_embedder_info{}, info);
    PUMICE_TRY_STATUS(check_handle(embedder, "embedder"));
    write_struct(pumice_embedder_info{.struct_size = sizeof(pumice_embedder_info),
                                      .width = embedder->embedder->width(),
                                      .text_tokens = embedder->embedder->text_tokens()},
                 info);
    return {};
  });
}

pumice_status pumice_embed(pumice_embedder* embedder, const pumice_string* texts, size_t n_texts,
                           float* vectors, size_t capacity, size_t* n_floats) {
  return guarded([&]() -> ApiStatus {
    PUMICE_TRY_STATUS(check_output_array(vectors, capacity, n_floats));
    PUMICE_TRY_STATUS(check_handle(embedder, "embedder"));
    return embed(*embedder, texts, n_texts, vectors, capacity, n_floats);
  });
}

void pumice_embedder_close(pumice_embedder* embedder) {
  if (embedder == nullptr) return;
  (void)guarded([&]() -> ApiStatus {
    PUMICE_TRY_STATUS(check_handle(embedder, "embedder"));
    delete embedder;
    return {};
  });
}
