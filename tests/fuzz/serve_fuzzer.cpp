// Any body, to every wire of the server: a request or an error, never an exception; and its answer,
// whatever the model says, is JSON.
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/json.hpp"
#include "tests/answers/byte_tokens.hpp"
#include "tests/fuzz/fuzz.hpp"
#include "tools/serve/service/answer_reader.hpp"
#include "tools/serve/wires/embeddings.hpp"
#include "tools/serve/wires/ranking.hpp"
#include "tools/serve/wires/tokens.hpp"
#include "tools/serve/wires/wires.hpp"

namespace pumice::fuzz {
namespace {

using namespace serve;

constexpr std::string_view kTemplate =
    "{% for t in tools %}{{ t | tojson }}{% endfor %}"
    "{% for m in messages %}<{{ m.role }}>{{ m.reasoning_content or '' }}{{ m.content or '' }}"
    "{% for c in m.tool_calls %}<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}{% "
    "endfor %}"
    "{% if add_generation_prompt %}<assistant>{% if enable_thinking %}<think>\n{% endif %}{% endif "
    "%}";
constexpr std::string_view kAnswer =
    "<think>a</think>b<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1}}</tool_call>";

const ServedModel& model() {
  static const ServedModel kModel = [] {
    ServedModel model;
    model.id = "m";
    model.tokenizer = ByteTokens({"<end>"}).tokenizer();
    model.window_tokens = 1000;
    model.constraints =
        std::make_shared<ConstraintCache>(std::make_shared<ConstraintCompiler>(model.tokenizer));
    model.chat = std::make_shared<const Result<ChatPrompt>>(
        ChatPrompt::create(kTemplate, model.tokenizer->vocabulary(), "qwen3"));
    return model;
  }();
  return kModel;
}

void check_events(std::string_view stream) {
  for (size_t at = stream.find("data: "); at != std::string_view::npos;
       at = stream.find("\ndata: ", at)) {
    at = stream.find(": ", at) + 2;
    const std::string_view data = stream.substr(at, stream.find('\n', at) - at);
    promise(data == "[DONE]" || read_json(data, data.size()).ok(), "events are JSON");
  }
}

void answer(WireRequest request) {
  AnswerReader reader(model().tokenizer, request.form ? &*request.form : nullptr,
                      request.input.stops);
  ChoicePiece piece;
  reader.read({.kind = host::Event::Kind::kFinished, .text = std::string(kAnswer)}, piece.events);
  std::erase_if(piece.events,
                [](const AnswerEvent& event) { return event.kind == AnswerEvent::Kind::kFinish; });
  std::vector<ChoiceResult> results(request.input.n_all_choices());
  results[0].add(piece);
  std::string stream = request.writer->begin({});
  stream += request.writer->piece(piece);
  stream += request.writer->end_choice(0, {});
  stream += request.writer->end({});
  check_events(stream);
}

void run(std::string_view input) {
  const auto body = read_body(input);
  if (!std::holds_alternative<Json>(body)) return;
  const Json& json = std::get<Json>(body);
  FieldWarnings warnings{Logger()};
  const WireContext context{.model = model(), .warnings = &warnings};
  for (const Wire wire : {read_chat, read_completion, read_messages, read_response}) {
    ParsedRequest parsed = wire(json, context);
    if (auto* const request = std::get_if<WireRequest>(&parsed)) answer(std::move(*request));
  }
  for (const auto apart : {tokenize, detokenize_tokens, apply_template, render_completion,
                           render_chat, count_message_tokens, count_response_tokens}) {
    (void)apart(json, context);
  }
  static const ServedModel kEmbeds = [] {
    ServedModel model = fuzz::model();
    model.vector_width = 4;
    return model;
  }();
  static const ServedModel kRanks = [] {
    ServedModel model = kEmbeds;
    model.relevant_label = 1;
    return model;
  }();
  const auto answer_vectors = [&](const std::variant<VectorRequest, ApiError>& parsed) {
    const auto* const request = std::get_if<VectorRequest>(&parsed);
    if (request == nullptr) return;
    const std::vector<std::vector<float>> vectors(request->texts.size(), {1, 2, 3, 4});
    const std::string text = request->answer(vectors);
    promise(read_json(text, text.size()).ok(), "an answer from vectors is JSON");
  };
  answer_vectors(read_embeddings(json, {.model = kEmbeds, .warnings = &warnings}));
  answer_vectors(read_rerank(json, {.model = kRanks, .warnings = &warnings}));
  answer_vectors(read_score(json, {.model = kRanks, .warnings = &warnings}));
}

}  // namespace
}  // namespace pumice::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  pumice::fuzz::run({reinterpret_cast<const char*>(data), size});
  return 0;
}
