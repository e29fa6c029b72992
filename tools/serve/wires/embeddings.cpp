#include "tools/serve/wires/embeddings.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <span>
#include <utility>

#include "models/embedding.hpp"
#include "tools/serve/wires/openai_common.hpp"
#include "tools/serve/wires/prompts.hpp"

namespace pumice::serve {
namespace {

constexpr size_t kMostTexts = 2048;  // OpenAI's

std::string base64_of(std::span<const float> values) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bytes;
  bytes.reserve(values.size() * sizeof(float));
  for (const float value : values) {
    const auto bits = std::bit_cast<uint32_t>(value);
    for (int shift = 0; shift < 32; shift += 8) bytes += static_cast<char>(bits >> shift);
  }
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t at = 0; at < bytes.size(); at += 3) {
    const size_t n = std::min<size_t>(3, bytes.size() - at);
    uint32_t group = 0;
    for (size_t i = 0; i < 3; ++i) {
      group = group << 8 | (i < n ? static_cast<uint8_t>(bytes[at + i]) : 0u);
    }
    for (size_t i = 0; i < 4; ++i) {
      text += i <= n ? kDigits[group >> (18 - 6 * i) & 63] : '=';
    }
  }
  return text;
}

struct VectorForm {
  uint32_t dimensions = 0;  ///< of each vector: so many of its first numbers
  bool base64 = false;
};

std::string answer_of(std::vector<std::vector<float>> vectors, const VectorForm& form,
                      const std::string& model, const Json& usage) {
  std::string data;
  for (size_t i = 0; i < vectors.size(); ++i) {
    std::vector<float>& vector = vectors[i];
    vector.resize(form.dimensions);
    normalise(vector, vector.size());
    data += fmt::format(
        "{}{{\"object\":\"embedding\",\"index\":{},\"embedding\":", i == 0 ? "" : ",", i);
    data += form.base64 ? fmt::format("\"{}\"}}", base64_of(vector))
                        : fmt::format("[{}]}}", fmt::join(vector, ","));
  }
  return fmt::format("{{\"object\":\"list\",\"data\":[{}],\"model\":{},\"usage\":{}}}", data,
                     dumped(model), dumped(usage));
}

}  // namespace

uint32_t VectorRequest::n_tokens() const {
  size_t n = 0;
  for (const std::vector<TokenId>& text : texts) n += text.size();
  return static_cast<uint32_t>(n);
}

Json usage_of(const VectorRequest& request) {
  const uint32_t n_tokens = request.n_tokens();
  return {{"prompt_tokens", n_tokens}, {"total_tokens", n_tokens}};
}

std::variant<VectorRequest, ApiError> read_embeddings(const Json& body,
                                                      const WireContext& context) {
  const ServedModel& model = context.model;
  Fields fields(body);
  check_model(fields, model);
  if (model.ranks()) {
    fields.fail(
        "model",
        fmt::format("'{}' ranks texts and gives no embeddings; ask it at /v1/rerank", model.id));
  } else if (!model.embeds()) {
    fields.fail("model", fmt::format("'{}' writes text and gives no embeddings; serve a model made "
                                     "for them, or this one with --pooling last or mean",
                                     model.id));
  }
  if (fields.error()) return *fields.error();
  const Json* const texts = fields.find("input");
  const bool has_empty =
      texts != nullptr &&
      (*texts == "" || (texts->is_array() && std::ranges::find(*texts, Json("")) != texts->end()));
  if (has_empty) fields.fail("input", "an empty text has no embedding; leave it out");
  VectorRequest request;
  VectorForm form{.dimensions = model.vector_width};
  request.texts = read_prompts(fields, "input", kMostTexts, model);
  for (const std::vector<TokenId>& text : request.texts) {
    if (text.size() > model.window_tokens) {
      fields.fail(context_exceeded("input", text.size(), model.window_tokens));
    }
  }
  fields.read("dimensions", form.dimensions, 1, std::max(model.vector_width, 1u));
  std::string format = "float";
  fields.read("encoding_format", format);
  form.base64 = format == "base64";
  if (format != "float" && !form.base64) {
    fields.fail("encoding_format", "must be float or base64");
  }
  fields.refuse("truncate_prompt_tokens", "texts are never cut");
  fields.refuse("messages", "use input");
  fields.ignore({"user", "priority"});
  if (fields.error()) return *fields.error();
  warn_of_unknown(fields, context);
  request.answer = [form, id = model.id,
                    usage = usage_of(request)](std::vector<std::vector<float>> vectors) {
    return answer_of(std::move(vectors), form, id, usage);
  };
  return request;
}

}  // namespace pumice::serve
