#include "tools/serve/wires/ranking.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "models/ranking.hpp"
#include "tools/serve/wires/openai_common.hpp"

namespace pumice::serve {
namespace {

constexpr size_t kMostDocuments = 2048;

void check_ranker(Fields& fields, const ServedModel& model) {
  check_model(fields, model);
  if (model.ranks()) return;
  fields.fail("model", fmt::format("'{}' does not rank texts; serve a reranker, whose file says "
                                   "pooling_type 4",
                                   model.id));
}

/// A text, or an object with a `text`.
void add_document(const Json& json, std::string_view name, Fields& fields,
                  std::vector<std::string>& texts) {
  const bool has_text = json.is_object() && json.contains("text") && json["text"].is_string();
  if (!json.is_string() && !has_text) {
    return fields.fail(name, "must be texts, or objects with a text");
  }
  texts.push_back((has_text ? json["text"] : json).get<std::string>());
}

std::vector<std::string> read_documents(Fields& fields, std::string_view name) {
  std::vector<std::string> texts;
  const Json* const json = fields.find(name);
  if (json == nullptr) {
    fields.fail(name, "is missing");
  } else if (!json->is_array()) {
    add_document(*json, name, fields, texts);
  } else if (json->empty() || json->size() > kMostDocuments) {
    fields.fail(name, fmt::format("must have from 1 to {} texts", kMostDocuments));
  } else {
    for (const Json& one : *json) add_document(one, name, fields, texts);
  }
  return texts;
}

void add_pair(const std::string& query, const std::string& text, std::string_view name,
              Fields& fields, const ServedModel& model, VectorRequest& request) {
  Result<std::vector<TokenId>> tokens = model.ranking.encode(*model.tokenizer, query, text);
  if (!tokens.ok()) return fields.fail(name, tokens.error().message);
  if (tokens->empty()) return fields.fail(name, "is empty");
  if (tokens->size() > model.window_tokens) {
    return fields.fail(context_exceeded(std::string(name), tokens->size(), model.window_tokens));
  }
  request.texts.push_back(std::move(tokens).value());
}

std::vector<double> scores_of(const std::vector<std::vector<float>>& vectors, uint32_t label) {
  std::vector<double> scores;
  for (const std::vector<float>& vector : vectors) scores.push_back(relevance(vector, label));
  return scores;
}

void refuse_cuts(Fields& fields) {
  for (const char* const name : {"truncate_prompt_tokens", "max_tokens_per_doc"}) {
    fields.refuse(name, "texts are never cut");
  }
}

}  // namespace

std::variant<VectorRequest, ApiError> read_rerank(const Json& body, const WireContext& context) {
  const ServedModel& model = context.model;
  Fields fields(body);
  check_ranker(fields, model);
  if (fields.error()) return *fields.error();
  std::string query;
  if (!fields.has("query")) fields.fail("query", "is missing");
  fields.read("query", query);
  std::vector<std::string> documents = read_documents(fields, "documents");
  auto n_best = static_cast<uint32_t>(documents.size());
  fields.read("top_n", n_best, 1, UINT32_MAX);
  bool with_texts = false;
  fields.read("return_documents", with_texts);
  refuse_cuts(fields);
  fields.refuse("rank_fields", "documents have a text each");
  fields.ignore({"user", "priority", "max_chunks_per_doc"});
  VectorRequest request;
  for (const std::string& document : documents) {
    if (fields.error()) return *fields.error();
    add_pair(query, document, "documents", fields, model, request);
  }
  if (fields.error()) return *fields.error();
  warn_of_unknown(fields, context);
  if (!with_texts) documents.clear();
  request.answer = [documents = std::move(documents), n_best, label = *model.relevant_label,
                    id = model.id,
                    usage = usage_of(request)](const std::vector<std::vector<float>>& vectors) {
    const std::vector<double> scores = scores_of(vectors, label);
    std::vector<size_t> order(scores.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::ranges::stable_sort(order, [&](size_t a, size_t b) { return scores[a] > scores[b]; });
    order.resize(std::min<size_t>(order.size(), n_best));
    Json results = Json::array();
    for (const size_t i : order) {
      Json& one = results.emplace_back(Json{{"index", i}, {"relevance_score", scores[i]}});
      if (!documents.empty()) one["document"] = {{"text", documents[i]}};
    }
    return dumped(
        {{"object", "list"}, {"model", id}, {"usage", usage}, {"results", std::move(results)}});
  };
  return request;
}

std::variant<VectorRequest, ApiError> read_score(const Json& body, const WireContext& context) {
  const ServedModel& model = context.model;
  Fields fields(body);
  check_ranker(fields, model);
  if (fields.error()) return *fields.error();
  const std::vector<std::string> first = read_documents(fields, "text_1");
  const std::vector<std::string> second = read_documents(fields, "text_2");
  refuse_cuts(fields);
  fields.ignore({"user", "priority"});
  if (!fields.error() && first.size() != 1 && first.size() != second.size()) {
    fields.fail("text_2", fmt::format("must have as many texts as text_1, {}", first.size()));
  }
  VectorRequest request;
  for (size_t i = 0; i < second.size(); ++i) {
    if (fields.error()) return *fields.error();
    add_pair(first[first.size() == 1 ? 0 : i], second[i], "text_2", fields, model, request);
  }
  if (fields.error()) return *fields.error();
  warn_of_unknown(fields, context);
  request.answer = [label = *model.relevant_label, id = model.id,
                    usage = usage_of(request)](const std::vector<std::vector<float>>& vectors) {
    Json data = Json::array();
    for (const double score : scores_of(vectors, label)) {
      data.push_back({{"index", data.size()}, {"object", "score"}, {"score", score}});
    }
    return dumped({{"object", "list"},
                   {"created", std::time(nullptr)},
                   {"model", id},
                   {"data", std::move(data)},
                   {"usage", usage}});
  };
  return request;
}

}  // namespace pumice::serve
