// The C ABI: engines, sessions, requests and events.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "api/handles.hpp"
#include "api/options.hpp"
#include "api/structs.hpp"
#include "format/gguf.hpp"
#include "host/draft_model.hpp"
#include "host/load_model.hpp"

namespace pumice::api {
namespace {

/// What guesses for an engine is loaded before it is made.
Result<host::HostOptions> guessing_of(const host::ModelOwner& owner,
                                      const host::OpenedModel& opened, const EngineInput& input) {
  host::HostOptions options;
  const uint32_t context = std::min(input.engine.context_tokens, host::DraftModel::kMostContext);
  if (!input.draft_model.empty()) {
    PUMICE_TRY(options.draft_model,
               host::DraftModel::load(opened, owner.texts().tokenizer->vocabulary(),
                                      input.draft_model, context, owner.request().open_file));
  }
  if (!input.predicts) return options;
  if (!opened.model->program.gives_hidden) {
    return make_error(ErrorCode::kInvalidArgument,
                      "mtp: the model was loaded without its block that predicts: set mtp in "
                      "pumice_model_options.engine too");
  }
  PUMICE_TRY(const GgufFile file, GgufFile::open(owner.request().path, owner.request().open_file));
  PUMICE_TRY(options.prediction, host::load_prediction(opened, file, context));
  return options;
}

Result<std::unique_ptr<pumice_engine>> create(const pumice_model& model,
                                              const pumice_engine_options* given) {
  PUMICE_TRY(EngineInput input, read_engine_options(given, "options"));
  EngineOptions& engine_options = input.engine;
  if (engine_options.context_tokens == 0) {
    engine_options.context_tokens = host::default_context_tokens(model.info.trained_context_tokens);
  }
  PUMICE_TRY(const host::OpenedModel opened, model.owner->current());
  if (opened.model->program.pooling) {
    return make_error(ErrorCode::kInvalidArgument,
                      "the model was loaded to embed: leave pumice_model_options.embeds 0");
  }
  PUMICE_TRY(const host::HostOptions guessing, guessing_of(*model.owner, opened, input));
  PUMICE_TRY(std::unique_ptr<Engine> engine, opened.make_engine(engine_options));
  auto handle = std::make_unique<pumice_engine>();
  handle->host = std::make_unique<host::Host>(model.owner, std::move(engine), guessing);
  return handle;
}

std::span<const AdapterSource> adapters_of(const pumice_engine& engine) {
  return engine.host->model().request().adapters;
}

double seconds_of(uint64_t microseconds) {
  return microseconds == PUMICE_NO_LIMIT ? Submitter::kNoBudget
                                         : static_cast<double>(microseconds) * 1e-6;
}

// ---- what a host's numbers and events are here

host::ConversationId id_of(pumice_session session) {
  return static_cast<host::ConversationId>(session);
}
host::RequestId request_id_of(pumice_request request) {
  return static_cast<host::RequestId>(request);
}
pumice_session number_of(host::ConversationId id) { return static_cast<pumice_session>(id); }
pumice_request number_of(host::RequestId id) { return static_cast<pumice_request>(id); }

pumice_end_reason reason_of(EndReason reason) {
  // The last one does not come: nobody asks for a threshold of cached tokens here.
  constexpr pumice_end_reason kReasons[] = {
      PUMICE_END_NONE,   PUMICE_END_LENGTH,    PUMICE_END_STOP,    PUMICE_END_STOP_TEXT,
      PUMICE_END_WINDOW, PUMICE_END_CANCELLED, PUMICE_END_TIMEOUT, PUMICE_END_ERROR,
      PUMICE_END_STOP,   PUMICE_END_STOP};
  return kReasons[static_cast<size_t>(reason)];
}

pumice_event_kind kind_of(host::Event::Kind kind) {
  constexpr pumice_event_kind kKinds[] = {PUMICE_EVENT_PROGRESS,   PUMICE_EVENT_SCORE,
                                          PUMICE_EVENT_TOKEN,      PUMICE_EVENT_FINISHED,
                                          PUMICE_EVENT_BUDGET_MET, PUMICE_EVENT_DEVICE_LOST,
                                          PUMICE_EVENT_DEVICE_NEW};
  return kKinds[static_cast<size_t>(kind)];
}

pumice_string string_of(const std::string& text) { return {text.c_str(), text.size()}; }

/// Points to what `event` has. The end of an answer is an event's own kind.
void parts_of(const host::Event& event, std::vector<pumice_answer_part>& parts) {
  constexpr pumice_part_kind kKinds[] = {PUMICE_PART_REASONING, PUMICE_PART_TEXT,
                                         PUMICE_PART_CALL_BEGUN, PUMICE_PART_ARGUMENTS,
                                         PUMICE_PART_CALL_ENDED};
  parts.clear();
  for (const AnswerEvent& one : event.answer) {
    if (one.kind == AnswerEvent::Kind::kFinish) continue;
    pumice_answer_part part{};
    part.kind = kKinds[static_cast<size_t>(one.kind)];
    part.call = one.call;
    part.text = string_of(one.text);
    part.id = string_of(one.id);
    part.complete = one.complete;
    parts.push_back(part);
  }
}

uint64_t microseconds_of(std::chrono::steady_clock::duration time) {
  return static_cast<uint64_t>(
      std::max<int64_t>(std::chrono::duration_cast<std::chrono::microseconds>(time).count(), 1));
}

/// Points to what `event` has.
pumice_event event_of(const host::Event& event) {
  pumice_event out{sizeof out};
  out.kind = kind_of(event.kind);
  out.request = number_of(event.request);
  out.session = number_of(event.conversation);
  out.text = string_of(event.text);
  out.has_token = event.token.has_value();
  out.token = event.token.value_or(0);
  out.computed_tokens = event.computed_tokens;
  out.message = {"", 0};
  if (!event.status.ok()) {
    out.status = status_of(event.status.error().code);
    out.message = string_of(event.status.error().message);
  }
  if (!event.ending) return out;
  const RequestReport& report = event.ending->report;
  out.end_reason = reason_of(report.end_reason);
  out.prompt_tokens = report.prompt_tokens;
  out.cached_tokens = report.cache.cached_tokens;
  out.generated_tokens = report.generated_tokens;
  out.drafted_tokens = report.drafts.drafted;
  out.accepted_tokens = report.drafts.accepted;
  out.forgotten_questions = event.ending->n_forgotten;
  if (event.ending->first_token) out.first_token_us = microseconds_of(*event.ending->first_token);
  out.total_us = microseconds_of(event.ending->total);
  return out;
}

pumice_stats stats_of(const host::Stats& stats) {
  const MemoryStatus& memory = stats.memory;
  return {.struct_size = sizeof(pumice_stats),
          .steps = stats.steps,
          .failed_steps = stats.failed_steps,
          .prompt_tokens = stats.prompt_tokens,
          .cached_tokens = stats.cached_tokens,
          .generated_tokens = stats.generated_tokens,
          .preemptions = stats.preemptions,
          .kernels_compiled_after_prewarm = stats.kernels_compiled_after_prewarm,
          .allocations_after_prewarm = stats.allocations_after_prewarm,
          .open_requests = stats.open_requests,
          .open_sessions = stats.open_conversations,
          .device_bytes = stats.device_bytes,
          .weight_bytes = stats.weight_bytes,
          .kv_bytes = stats.kv_bytes,
          .kernels = stats.kernels,
          .memory_budget_bytes = memory.budget_bytes != UINT64_MAX ? memory.budget_bytes : 0,
          .memory_budget_met = memory.met,
          .n_overcommitted = memory.n_overcommitted,
          .driver_budget_bytes = memory.driver ? memory.driver->budget_bytes : 0,
          .driver_used_bytes = memory.driver ? memory.driver->used_bytes : 0,
          .budgeted_bytes = stats.budgeted_bytes,
          .weight_bytes_beside = memory.weight_bytes_beside,
          .n_lost_devices = stats.n_lost_devices,
          .is_lost = stats.is_lost,
          .drafted_tokens = stats.drafted_tokens,
          .accepted_tokens = stats.accepted_tokens,
          .running_requests = stats.running_requests,
          .waiting_requests = stats.waiting_requests};
}

pumice_latency latency_of(const Histogram& seconds) {
  const auto microseconds = [](double value) { return static_cast<uint64_t>(value * 1e6); };
  return {.struct_size = sizeof(pumice_latency),
          .count = seconds.count(),
          .sum_us = microseconds(seconds.sum()),
          .p50_us = microseconds(seconds.percentile(0.5)),
          .p90_us = microseconds(seconds.percentile(0.9)),
          .p99_us = microseconds(seconds.percentile(0.99)),
          .max_us = microseconds(seconds.max())};
}

}  // namespace

}  // namespace pumice::api

using namespace pumice;
using namespace pumice::api;

pumice_status pumice_engine_create(pumice_model* model, const pumice_engine_options* options,
                                   pumice_engine** engine) {
  return guarded([&]() -> ApiStatus {
    if (engine == nullptr) return invalid("engine is NULL");
    *engine = nullptr;
    PUMICE_TRY_STATUS(check_handle(model, "model"));
    Result<std::unique_ptr<pumice_engine>> created = create(*model, options);
    if (!created.ok()) return created.error();
    *engine = created->release();
    return {};
  });
}

void pumice_engine_close(pumice_engine* engine) {
  if (engine == nullptr) return;
  (void)guarded([&]() -> ApiStatus {
    PUMICE_TRY_STATUS(check_handle(engine, "engine"));
    engine->host->keep_for_next_run();
    delete engine;
    return {};
  });
}

pumice_status pumice_prewarm(pumice_engine* engine, uint64_t microseconds, uint32_t* done,
                             uint32_t* total) {
  return guarded([&]() -> ApiStatus {
    if (done == nullptr || total == nullptr) return invalid("done or total is NULL");
    *done = *total = 0;
    PUMICE_TRY_STATUS(check_handle(engine, "engine"));
    PUMICE_TRY(const Engine::Readiness readiness, engine->host->prewarm(seconds_of(microseconds)));
    *done = static_cast<uint32_t>(readiness.done);
    *total = static_cast<uint32_t>(readiness.total);
    return {};
  });
}

pumice_status pumice_set_mode(pumice_engine* engine, pumice_mode mode) {
  return guarded([&]() -> ApiStatus {
    PUMICE_TRY_STATUS(check_handle(engine, "engine"));
    PUMICE_TRY(const EngineMode engine_mode, read_mode(mode));
    return engine->host->set_mode(engine_mode);
  });
}

pumice_status pumice_set_memory_budget(pumice_engine* engine, uint64_t bytes) {
  return guarded([&]() -> ApiStatus {
    PUMICE_TRY_STATUS(check_handle(engine, "engine"));
    return engine->host->set_memory_budget(bytes);
  });
}

pumice_status pumice_session_open(pumice_engine* engine, const pumice_session_options* options,
                                  pumice_session* session) {
  return guarded([&]() -> ApiStatus {
    if (session == nullptr) return invalid("session is NULL");
    *session = 0;
    PUMICE_TRY_STATUS(check_handle(engine, "engine"));
    PUMICE_TRY(host::ConversationDefaults defaults,
               read_session_options(options, adapters_of(*engine)));
    PUMICE_TRY(const host::ConversationId id, engine->host->open_conversation(std::move(defaults)));
    *session = number_of(id);
    return {};
  });
}

pumice_status pumice_session_close(pumice_engine* engine, pumice_session session) {
  return guarded([&]() -> ApiStatus {
    PUMICE_TRY_STATUS(check_handle(engine, "engine"));
    return engine->host->close_conversation(id_of(session));
  });
}

pumice_status pumice_session_tokens(pumice_engine* engine, pumice_session session, uint32_t* tokens,
                                    size_t capacity, size_t* n_tokens) {
  return guarded([&]() -> ApiStatus {
    PUMICE_TRY_STATUS(check_output_array(tokens, capacity, n_tokens));
    PUMICE_TRY_STATUS(check_handle(engine, "engine"));
    PUMICE_TRY(const std::vector<TokenId> held, engine->host->conversation_tokens(id_of(session)));
    return write_array(std::span<const uint32_t>(held), tokens, capacity, n_tokens);
  });
}

pumice_status pumice_session_turns(pumice_engine* engine, pumice_session session,
                                   uint32_t* n_turns) {
  return guarded([&]() -> ApiStatus {
    if (n_turns == nullptr) return invalid("n_turns is NULL");
    *n_turns = 0;
    PUMICE_TRY_STATUS(check_handle(engine, "engine"));
    PUMICE_TRY(*n_turns, engine->host->n_turns(id_of(session)));
    return {};
  });
}

pumice_status pumice_session_rollback(pumice_engine* engine, pumice_session session,
                                      uint32_t n_turns, pumice_bool keep_question) {
  return guarded([&]() -> ApiStatus {
    PUMICE_TRY_STATUS(check_handle(engine, "engine"));
    PUMICE_TRY(const bool keep, read_bool(keep_question, "keep_question"));
    return engine->host->roll_back(id_of(session), n_turns, keep);
  });
}

pumice_status pumice_session_save(pumice_engine* engine, pumice_session session, const void** bytes,
                                  size_t* n_bytes) {
  return guarded([&]() -> ApiStatus {
    if (bytes == nullptr || n_bytes == nullptr) return invalid("bytes or n_bytes is NULL");
    *bytes = nullptr;
    *n_bytes = 0;
    PUMICE_TRY_STATUS(check_handle(engine, "engine"));
    PUMICE_TRY(const std::span<const std::byte> saved, engine->host->save(id_of(session)));
    *bytes = saved.data();
    *n_bytes = saved.size();
    return {};
  });
}

pumice_status pumice_session_restore(pumice_engine* engine, const void* bytes, size_t n_bytes,
                                     const pumice_restore_options* options,
                                     pumice_session* session) {
  return guarded([&]() -> ApiStatus {
    if (session == nullptr) return invalid("session is NULL");
    *session = 0;
    PUMICE_TRY_STATUS(check_handle(engine, "engine"));
    if (bytes == nullptr) return invalid("bytes is NULL");
    PUMICE_TRY(const RestoreOptions restore, read_restore_options(options));
    PUMICE_TRY(const host::Restored restored,
               engine->host->restore({static_cast<const std::byte*>(bytes), n_bytes}, restore));
    *session = number_of(restored.id);
    return {};
  });
}

pumice_status pumice_submit(pumice_engine* engine, pumice_session session,
                            const pumice_request_options* options, pumice_request* request) {
  return guarded([&]() -> ApiStatus {
    if (request == nullptr) return invalid("request is NULL");
    *request = 0;
    PUMICE_TRY_STATUS(check_handle(engine, "engine"));
    PUMICE_TRY(host::RequestInput input,
               read_request_options(options, session != 0, adapters_of(*engine)));
    PUMICE_TRY(const host::Submitted submitted,
               engine->host->submit(id_of(session), std::move(input)));
    *request = number_of(submitted.id);
    return {};
  });
}

pumice_status pumice_cancel(pumice_engine* engine, pumice_request request) {
  return guarded([&]() -> ApiStatus {
    PUMICE_TRY_STATUS(check_handle(engine, "engine"));
    return engine->host->cancel(request_id_of(request));
  });
}

pumice_status pumice_poll(pumice_engine* engine, uint64_t microseconds) {
  return guarded([&]() -> ApiStatus {
    PUMICE_TRY_STATUS(check_handle(engine, "engine"));
    return engine->host->poll(seconds_of(microseconds));
  });
}

pumice_status pumice_wait(pumice_engine* engine, uint64_t microseconds) {
  return guarded([&]() -> ApiStatus {
    PUMICE_TRY_STATUS(check_handle(engine, "engine"));
    return engine->host->wait(duration_of(microseconds));
  });
}

pumice_status pumice_next_event(pumice_engine* engine, pumice_event* event) {
  return guarded([&]() -> ApiStatus {
    PUMICE_TRY_STATUS(check_struct(event, "event"));
    write_struct(pumice_event{}, event);
    PUMICE_TRY_STATUS(check_handle(engine, "engine"));
    PUMICE_TRY(const host::Event* next, engine->host->next_event());
    if (next == nullptr) return {};
    pumice_event out = event_of(*next);
    if (next->log_probs) {
      engine->top_log_probs.clear();
      for (const TokenLogProb& one : next->log_probs->best) {
        engine->top_log_probs.push_back({one.token, one.log_prob});
      }
      out.log_prob = next->log_probs->log_prob;
      out.top_log_probs = engine->top_log_probs.data();
      out.n_top_log_probs = engine->top_log_probs.size();
    }
    parts_of(*next, engine->parts);
    out.parts = engine->parts.data();
    out.n_parts = engine->parts.size();
    write_struct(out, event);
    return {};
  });
}

pumice_status pumice_get_stats(pumice_engine* engine, pumice_stats* stats) {
  return guarded([&]() -> ApiStatus {
    PUMICE_TRY_STATUS(check_struct(stats, "stats"));
    write_struct(pumice_stats{}, stats);
    PUMICE_TRY_STATUS(check_handle(engine, "engine"));
    write_struct(stats_of(engine->host->stats()), stats);
    return {};
  });
}

pumice_status pumice_get_latency(pumice_engine* engine, pumice_latency_kind kind,
                                 pumice_latency* latency) {
  return guarded([&]() -> ApiStatus {
    PUMICE_TRY_STATUS(check_struct(latency, "latency"));
    write_struct(pumice_latency{}, latency);
    PUMICE_TRY_STATUS(check_handle(engine, "engine"));
    PUMICE_TRY(const host::LatencyKind which, read_latency_kind(kind));
    write_struct(latency_of(engine->host->latency(which)), latency);
    return {};
  });
}
