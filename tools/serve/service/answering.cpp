#include "tools/serve/service/answering.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace pumice::serve {

std::string_view finish_name(Finish finish) {
  switch (finish) {
    case Finish::kLength:
      return "length";
    case Finish::kToolCalls:
      return "tool_calls";
    case Finish::kCacheThreshold:
      return "cache_threshold";
    default:
      return "stop";
  }
}

namespace {

Finish finish_of(EndReason reason, uint32_t n_calls) {
  if (n_calls > 0) return Finish::kToolCalls;
  if (reason == EndReason::kCacheThreshold) return Finish::kCacheThreshold;
  if (reason == EndReason::kStopString) return Finish::kStopString;
  const bool is_full = reason == EndReason::kLength || reason == EndReason::kWindow;
  return is_full ? Finish::kLength : Finish::kStop;
}

/// A request that had no more time.
ApiError too_late(const RequestReport& report) {
  if (!std::isnan(report.times.first_scheduled)) {
    return {.status = 408,
            .type = "timeout_error",
            .message =
                "the answer was not complete in the time that requests have "
                "(--request-timeout, or the request's timeout_s)",
            .code = "request_timeout"};
  }
  return {.status = 503,
          .type = "unavailable_error",
          .message =
              "too many requests were before this one: it waited as long as it may "
              "(--queue-timeout, or the time that it has in all); send it again later",
          .code = "queue_timeout",
          .retry_after_s = 1};
}

/// Seconds between two times of a report; 0 where one of them never came.
double between(double from_s, double to_s) {
  const double s = to_s - from_s;
  return s > 0 ? s : 0;
}

}  // namespace

void ChoiceResult::add(const ChoicePiece& piece) {
  for (const AnswerEvent& event : piece.events) {
    switch (event.kind) {
      case AnswerEvent::Kind::kReasoning:
        reasoning += event.text;
        break;
      case AnswerEvent::Kind::kText:
        text += event.text;
        break;
      case AnswerEvent::Kind::kCallBegun:
        calls.push_back({event.id, event.text, ""});
        break;
      case AnswerEvent::Kind::kArguments:
        calls.back().arguments += event.text;
        break;
      default:
        break;
    }
  }
  tokens.insert(tokens.end(), piece.tokens.begin(), piece.tokens.end());
  prompt.insert(prompt.end(), piece.prompt.begin(), piece.prompt.end());
}

void Answering::begin(std::shared_ptr<const AnswerContext> context,
                      std::shared_ptr<Exchange> exchange, WireRequest request,
                      ErrorWriter write_error) {
  if (exchange->has_left()) return;
  std::make_shared<Answering>(std::move(context), std::move(exchange), std::move(request),
                              write_error)
      ->submit();
}

Answering::Answering(std::shared_ptr<const AnswerContext> context,
                     std::shared_ptr<Exchange> exchange, WireRequest request,
                     ErrorWriter write_error)
    : context_(std::move(context)),
      exchange_(std::move(exchange)),
      request_(std::move(request)),
      write_error_(write_error) {
  const GenerationInput& input = request_.input;
  for (size_t i = 0; i < input.n_all_choices(); ++i) {
    AnswerForm* const form = request_.form ? &*request_.form : nullptr;
    if (form != nullptr) form->options.id_seed = input.sampling.seed + i;
    choices_.push_back({.reader = AnswerReader(context_->tokenizer, form, input.stops)});
  }
  for (const auto& prompt : input.prompts) {
    usage_.prompt_tokens += static_cast<uint32_t>(prompt.size());
  }
  summary_ = {.id = exchange_->request().id,
              .path = exchange_->request().path,
              .stream = request_.stream,
              .prompt_tokens = usage_.prompt_tokens,
              .max_tokens = input.max_tokens,
              .n_choices = static_cast<uint32_t>(input.n_all_choices())};
}

void Answering::submit() {
  std::variant<Ticket, ApiError> submitted =
      context_->service->submit(request_.input, shared_from_this(), context_);
  if (ApiError* const error = std::get_if<ApiError>(&submitted)) {
    if (error->code == "context_length_exceeded") error->param = request_.prompt_field;
    return fail(*error);
  }
  ticket_ = std::get<Ticket>(std::move(submitted));
  exchange_->on_left([me = shared_from_this()] { me->left(); });
  if (!request_.stream) return;
  exchange_->begin_stream({.content_type = "text/event-stream"}, request_.writer->keep_alive());
}

void Answering::on_event(uint32_t index, host::Event& event) {
  if (over_) return;
  if (event.kind == host::Event::Kind::kProgress) return;
  Choice& choice = choices_[index];
  const bool is_last = event.kind == host::Event::Kind::kFinished;
  if (is_last && !event.status.ok()) return fail(api_error_of(event.status.error()));
  if (is_last && event.ending->report.end_reason == EndReason::kCancelled && !choice.cut) {
    return fail(draining());
  }
  if (is_last && event.ending->report.end_reason == EndReason::kDeadline) {
    return fail(too_late(event.ending->report));
  }
  ChoicePiece piece{.choice = index};
  if (event.kind == host::Event::Kind::kScore) {
    piece.prompt.push_back({*event.token, std::move(event.log_probs)});
  } else {
    count(choice, event);
    const bool is_text = !is_last || event.ending->report.end_reason != EndReason::kStop;
    if (event.token && event.log_probs && is_text && !request_.no_tokens) {
      piece.tokens.push_back({*event.token, std::move(event.log_probs)});
    }
    if (!choice.cut && !request_.no_tokens) choice.reader.read(event, piece.events);
    if (event.token && choice.reader.reasons()) ++usage_.reasoning_tokens;
  }
  give(choice, std::move(piece));
  if (is_last) end_choice(index, event);
}

void Answering::count(Choice& choice, const host::Event& event) {
  if (!event.token) return;
  const Clock::time_point now = Clock::now();
  context_->metrics->add_token();
  if (choice.last_token) {
    context_->metrics->add_gap(std::chrono::duration<double>(now - *choice.last_token).count());
  }
  choice.last_token = now;
  ++choice.n_tokens;
}

void Answering::give(Choice& choice, ChoicePiece piece) {
  std::erase_if(piece.events,
                [](const AnswerEvent& e) { return e.kind == AnswerEvent::Kind::kFinish; });
  const auto ended =
      std::find_if(piece.events.begin(), piece.events.end(),
                   [](const AnswerEvent& e) { return e.kind == AnswerEvent::Kind::kCallEnded; });
  if (request_.one_call && ended != piece.events.end() && !choice.cut) {
    piece.events.erase(ended + 1, piece.events.end());
    choice.cut = true;
    context_->service->end_early(ticket_[piece.choice]);
  }
  if (piece.events.empty() && piece.tokens.empty() && piece.prompt.empty()) return;
  if (!request_.stream) return choice.result.add(piece);
  if (!std::exchange(begun_, true)) exchange_->write(request_.writer->begin(usage_));
  exchange_->write(request_.writer->piece(piece));
}

void Answering::end_choice(uint32_t index, const host::Event& event) {
  Choice& choice = choices_[index];
  const RequestReport& report = event.ending->report;
  add_usage(report, index % request_.input.n_choices == 0);
  context_->metrics->add_unparsed(choice.reader.n_unparsed());
  choice.result.end = {finish_of(report.end_reason, choice.reader.n_calls()),
                       choice.reader.stop_string()};
  if (request_.stream) {
    // Routers look for this one in the first chunk.
    const bool is_first_chunk = choice.result.end.finish == Finish::kCacheThreshold;
    if (!std::exchange(begun_, true) && !is_first_chunk) {
      exchange_->write(request_.writer->begin(usage_));
    }
    exchange_->write(request_.writer->end_choice(index, choice.result.end));
  }
  choice.ended = true;
  if (++n_ended_ == choices_.size()) end();
}

/// `is_first`: of the choices of its prompt.
void Answering::add_usage(const RequestReport& report, bool is_first) {
  const RequestTimes& times = report.times;
  if (!request_.no_tokens) usage_.completion_tokens += report.generated_tokens;
  const double prefill_s = between(times.first_scheduled, times.first_token);
  usage_.predicted_ms =
      std::max(usage_.predicted_ms, 1e3 * between(times.first_token, times.last_token));
  usage_.drafted_tokens += report.drafts.drafted;
  usage_.accepted_tokens += report.drafts.accepted;
  // What the choices share is the first one's.
  if (is_first) usage_.cached_tokens += report.cache.cached_tokens;
  if (std::exchange(summary_.ran, true)) return;
  usage_.prompt_ms = 1e3 * prefill_s;
  summary_.queue_s = between(times.arrived, times.first_scheduled);
  summary_.prefill_s = prefill_s;
  summary_.decode_s = between(times.first_token, times.last_token);
  summary_.ttft_s = between(times.arrived, times.first_token);
  summary_.preemptions = report.preemptions;
}

void Answering::end() {
  over_ = true;
  if (request_.stream) {
    exchange_->write(request_.writer->end(usage_));
    exchange_->end_stream();
  } else {
    std::vector<ChoiceResult> results;
    for (Choice& choice : choices_) results.push_back(std::move(choice.result));
    exchange_->respond({.body = request_.writer->whole(results, usage_)});
    choices_[0].result.end = results[0].end;
  }
  conclude(200, std::string(finish_name(choices_[0].result.end.finish)));
}

void Answering::fail(const ApiError& error) {
  over_ = true;
  context_->service->cancel(ticket_);
  const bool too_long = error.code == "context_length_exceeded" && request_.fails_in_stream;
  const bool in_stream = request_.stream && (!ticket_.empty() || too_long);
  if (in_stream && ticket_.empty())
    exchange_->begin_stream({.content_type = "text/event-stream"}, "");
  if (in_stream) {
    exchange_->write(request_.writer->fail(error));
    exchange_->end_stream();
  } else {
    exchange_->respond(error_response(error, write_error_(error, exchange_->request().id)));
  }
  conclude(error.status, "error");
}

void Answering::left() {
  if (std::exchange(over_, true)) return;
  context_->service->cancel(ticket_);
  conclude(499, "abort");
}

void Answering::conclude(unsigned status, std::string finish) {
  summary_.status = status;
  summary_.finish = std::move(finish);
  summary_.cached_tokens = usage_.cached_tokens;
  summary_.generated_tokens = usage_.completion_tokens;
  if (!summary_.ran) {  // of one that was broken off
    for (const Choice& choice : choices_) summary_.generated_tokens += choice.n_tokens;
  }
  summary_.total_s = std::chrono::duration<double>(Clock::now() - arrived_).count();
  context_->ended(summary_);
}

}  // namespace pumice::serve
