// Misuse that needs no device: NULL everywhere, sizes that are none, strings that are none.
#include <cstddef>
#include <cstring>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include "api/handles.hpp"
#include "api/structs.hpp"
#include "host/conversation_note.hpp"
#include "tests/api/api_fixture.hpp"

namespace pumice {
namespace {

struct Case {
  const char* name;
  std::function<pumice_status()> call;
};

/// All refuse with a line that says something.
void expect_refused(const std::vector<Case>& cases,
                    pumice_status expected = PUMICE_INVALID_ARGUMENT) {
  for (const Case& row : cases) {
    EXPECT_EQ(row.call(), expected) << row.name << ": " << pumice_last_error();
    EXPECT_GT(std::strlen(pumice_last_error()), 0u) << row.name;
  }
}

constexpr uintptr_t kGarbage = 0xDEAD;

TEST(Misuse, NullHandlesAreRefusedAndOutputsAreCleared) {
  size_t count = kGarbage;
  uint32_t done = 1;
  uint32_t total = 1;
  pumice_session session = kGarbage;
  pumice_session restored = kGarbage;
  pumice_request request = kGarbage;
  const void* bytes = &count;
  size_t n_bytes = kGarbage;
  auto* model = reinterpret_cast<pumice_model*>(kGarbage);
  auto* engine = reinterpret_cast<pumice_engine*>(kGarbage);
  pumice_device_info device_info{sizeof device_info, "x"};
  pumice_model_info model_info{sizeof model_info, "x"};
  pumice_memory_estimate estimate{sizeof estimate, 1};
  pumice_log log{sizeof log, PUMICE_LOG_ERROR};
  pumice_event event{sizeof event, PUMICE_EVENT_TOKEN};
  pumice_stats stats{sizeof stats, 1};
  pumice_latency latency{sizeof latency, 1};
  auto* embedder = reinterpret_cast<pumice_embedder*>(kGarbage);
  pumice_embedder_info embedder_info{sizeof embedder_info, 1};
  pumice_model_options model_options{sizeof model_options};
  const pumice_request_options options = test::request_of("a", 1);
  auto* loading = reinterpret_cast<pumice_loading*>(kGarbage);
  pumice_load_progress progress{sizeof progress, PUMICE_LOAD_ENDED};
  pumice_self_test_result tested{sizeof tested, 1};
  expect_refused({
      {"model_load_begin",
       [&] { return pumice_model_load_begin(nullptr, &model_options, &loading); }},
      {"loading_wait", [&] { return pumice_loading_wait(nullptr, 0, &progress); }},
      {"loading_cancel", [&] { return pumice_loading_cancel(nullptr); }},
      {"loading_take", [&] { return pumice_loading_take(nullptr, &model); }},
      {"device_get_info", [&] { return pumice_device_get_info(nullptr, &device_info); }},
      {"self_test", [&] { return pumice_self_test(nullptr, nullptr, &tested); }},
      {"next_log", [&] { return pumice_next_log(nullptr, &log); }},
      {"model_load", [&] { return pumice_model_load(nullptr, &model_options, &model); }},
      {"model_get_info", [&] { return pumice_model_get_info(nullptr, &model_info); }},
      {"model_estimate", [&] { return pumice_model_estimate(nullptr, &model_options, &estimate); }},
      {"tokenize", [&] { return pumice_tokenize(nullptr, {}, 0, nullptr, 0, &count); }},
      {"detokenize", [&] { return pumice_detokenize(nullptr, nullptr, 0, nullptr, 0, &count); }},
      {"engine_create", [&] { return pumice_engine_create(nullptr, nullptr, &engine); }},
      {"prewarm", [&] { return pumice_prewarm(nullptr, 0, &done, &total); }},
      {"set_mode", [] { return pumice_set_mode(nullptr, PUMICE_MODE_FAST); }},
      {"set_memory_budget", [] { return pumice_set_memory_budget(nullptr, PUMICE_NO_LIMIT); }},
      {"session_open", [&] { return pumice_session_open(nullptr, nullptr, &session); }},
      {"session_close", [&] { return pumice_session_close(nullptr, 1); }},
      {"session_tokens", [&] { return pumice_session_tokens(nullptr, 1, nullptr, 0, &count); }},
      {"session_turns", [&] { return pumice_session_turns(nullptr, 1, &done); }},
      {"session_rollback", [] { return pumice_session_rollback(nullptr, 1, 0, 0); }},
      {"session_save", [&] { return pumice_session_save(nullptr, 1, &bytes, &n_bytes); }},
      {"session_restore",
       [&] { return pumice_session_restore(nullptr, "", 0, nullptr, &restored); }},
      {"submit", [&] { return pumice_submit(nullptr, 0, &options, &request); }},
      {"cancel", [&] { return pumice_cancel(nullptr, 1); }},
      {"poll", [&] { return pumice_poll(nullptr, 0); }},
      {"wait", [&] { return pumice_wait(nullptr, 0); }},
      {"next_event", [&] { return pumice_next_event(nullptr, &event); }},
      {"get_stats", [&] { return pumice_get_stats(nullptr, &stats); }},
      {"embedder_create", [&] { return pumice_embedder_create(nullptr, nullptr, &embedder); }},
      {"embedder_get_info", [&] { return pumice_embedder_get_info(nullptr, &embedder_info); }},
      {"embed", [&] { return pumice_embed(nullptr, nullptr, 0, nullptr, 0, &count); }},
      {"get_latency", [&] { return pumice_get_latency(nullptr, 0, &latency); }},
  });
  EXPECT_EQ(count, 0u);
  EXPECT_EQ(done + total, 0u);
  EXPECT_EQ(session, 0u);
  EXPECT_EQ(request, 0u);
  EXPECT_EQ(restored, 0u);
  EXPECT_EQ(bytes, nullptr);
  EXPECT_EQ(n_bytes, 0u);
  EXPECT_EQ(model, nullptr);
  EXPECT_EQ(loading, nullptr);
  EXPECT_EQ(tested.n_cases, 0u);
  EXPECT_EQ(progress.phase, PUMICE_LOAD_READING);
  EXPECT_EQ(engine, nullptr);
  EXPECT_EQ(device_info.name[0], '\0');
  EXPECT_EQ(model_info.name[0], '\0');
  EXPECT_EQ(log.level, PUMICE_LOG_NONE);
  EXPECT_EQ(event.kind, PUMICE_EVENT_NONE);
  EXPECT_EQ(stats.steps, 0u);
  EXPECT_EQ(latency.count, 0u);
  EXPECT_EQ(embedder, nullptr);
  EXPECT_EQ(embedder_info.width, 0u);
  pumice_engine_close(nullptr);
  pumice_loading_close(nullptr);
  pumice_embedder_close(nullptr);
  pumice_model_close(nullptr);
  pumice_device_close(nullptr);
}

TEST(Misuse, NowhereToPutAResultIsRefused) {
  pumice_device device;
  pumice_loading loading;
  pumice_model model;
  pumice_engine engine;
  uint32_t n = 0;
  size_t count = 0;
  uint32_t token = 0;
  const void* bytes = nullptr;
  pumice_session session = 0;
  pumice_latency latency{sizeof latency};
  pumice_embedder embedder;
  float number = 0;
  const pumice_model_options model_options{sizeof model_options};
  const pumice_request_options options = test::request_of("a", 1);
  expect_refused({
      {"device_list", [&] { return pumice_device_list(nullptr, 0, nullptr); }},
      {"device_list array", [&] { return pumice_device_list(nullptr, 3, &count); }},
      {"device_open", [&] { return pumice_device_open(nullptr, nullptr); }},
      {"device_get_info", [&] { return pumice_device_get_info(&device, nullptr); }},
      {"self_test", [&] { return pumice_self_test(&device, nullptr, nullptr); }},
      {"next_log", [&] { return pumice_next_log(&device, nullptr); }},
      {"model_load", [&] { return pumice_model_load(&device, &model_options, nullptr); }},
      {"model_load_begin",
       [&] { return pumice_model_load_begin(&device, &model_options, nullptr); }},
      {"loading_wait", [&] { return pumice_loading_wait(&loading, 0, nullptr); }},
      {"loading_take", [&] { return pumice_loading_take(&loading, nullptr); }},
      {"model_get_info", [&] { return pumice_model_get_info(&model, nullptr); }},
      {"model_estimate", [&] { return pumice_model_estimate(&device, &model_options, nullptr); }},
      {"tokenize", [&] { return pumice_tokenize(&model, {}, 0, &token, 1, nullptr); }},
      {"tokenize array", [&] { return pumice_tokenize(&model, {}, 0, nullptr, 1, &count); }},
      {"detokenize", [&] { return pumice_detokenize(&model, &token, 1, nullptr, 0, nullptr); }},
      {"engine_create", [&] { return pumice_engine_create(&model, nullptr, nullptr); }},
      {"prewarm", [&] { return pumice_prewarm(&engine, 0, nullptr, &n); }},
      {"prewarm total", [&] { return pumice_prewarm(&engine, 0, &n, nullptr); }},
      {"session_open", [&] { return pumice_session_open(&engine, nullptr, nullptr); }},
      {"session_tokens", [&] { return pumice_session_tokens(&engine, 1, nullptr, 0, nullptr); }},
      {"session_turns", [&] { return pumice_session_turns(&engine, 1, nullptr); }},
      {"session_rollback", [&] { return pumice_session_rollback(&engine, 1, 0, 2); }},
      {"session_save", [&] { return pumice_session_save(&engine, 1, nullptr, &count); }},
      {"session_save number", [&] { return pumice_session_save(&engine, 1, &bytes, nullptr); }},
      {"session_restore", [&] { return pumice_session_restore(&engine, "", 0, nullptr, nullptr); }},
      {"session_restore bytes",
       [&] { return pumice_session_restore(&engine, nullptr, 9, nullptr, &session); }},
      {"submit", [&] { return pumice_submit(&engine, 0, &options, nullptr); }},
      {"next_event", [&] { return pumice_next_event(&engine, nullptr); }},
      {"get_stats", [&] { return pumice_get_stats(&engine, nullptr); }},
      {"embedder_create", [&] { return pumice_embedder_create(&model, nullptr, nullptr); }},
      {"embedder_get_info", [&] { return pumice_embedder_get_info(&embedder, nullptr); }},
      {"embed", [&] { return pumice_embed(&embedder, nullptr, 0, &number, 1, nullptr); }},
      {"embed array", [&] { return pumice_embed(&embedder, nullptr, 0, nullptr, 1, &count); }},
      {"get_latency", [&] { return pumice_get_latency(&engine, 0, nullptr); }},
      {"get_latency kind", [&] { return pumice_get_latency(&engine, 4, &latency); }},
  });
}

TEST(Misuse, AHandleOfAnotherKindIsNoticed) {
  pumice_device device;
  pumice_engine engine;
  pumice_engine* created = nullptr;
  const pumice_model_options options{sizeof options};
  pumice_model* model = nullptr;
  expect_refused({
      {"a device for a model",
       [&] {
         return pumice_engine_create(reinterpret_cast<pumice_model*>(&device), nullptr, &created);
       }},
      {"an engine for a device",
       [&] {
         return pumice_model_load(reinterpret_cast<pumice_device*>(&engine), &options, &model);
       }},
      {"a device for an engine",
       [&] { return pumice_poll(reinterpret_cast<pumice_engine*>(&device), 0); }},
  });
}

TEST(Misuse, SizesOfNoStructAreRefused) {
  pumice_device device;
  for (const size_t size : {size_t{0}, size_t{4}, size_t{7}, size_t{12}, sizeof(pumice_log) + 1,
                            size_t{1} << 13, SIZE_MAX}) {
    pumice_device_options options{size};
    pumice_device* opened = nullptr;
    EXPECT_STATUS(PUMICE_INVALID_ARGUMENT, pumice_device_open(&options, &opened));
    pumice_log log{size, PUMICE_LOG_ERROR};
    EXPECT_STATUS(PUMICE_INVALID_ARGUMENT, pumice_next_log(&device, &log));
    EXPECT_EQ(log.level, PUMICE_LOG_ERROR) << "nothing is written to what is no struct";
  }
}

/// A struct as it may be in five years.
struct LaterOptions {
  pumice_model_options now;
  uint64_t more;
};

TEST(Misuse, StructsOfOtherVersionsAreUnderstood) {
  LaterOptions later{{sizeof later, pumice_str("x")}, 0};
  EXPECT_TRUE(api::read_struct(&later.now, "options").ok());
  later.more = uint64_t{1} << 63;
  const auto refused = api::read_struct(&later.now, "options");
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("newer"), std::string::npos) << refused.error().message;
  // One that ended after its first member.
  pumice_model_options earlier{sizeof(size_t), {"no such file", 12}};
  const auto read = api::read_struct(&earlier, "options");
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read->path.data, nullptr) << "what lies behind the struct is not read";

  pumice_stats out{offsetof(pumice_stats, failed_steps), 1, 77};
  api::write_struct(pumice_stats{sizeof(pumice_stats), 5, 6}, &out);
  EXPECT_EQ(out.steps, 5u);
  EXPECT_EQ(out.failed_steps, 77u) << "nothing is written behind the struct";
  EXPECT_EQ(out.struct_size, offsetof(pumice_stats, failed_steps));
}

TEST(Misuse, StringsAreCheckedBeforeTheyAreRead) {
  EXPECT_EQ(*api::read_string({}, "s"), "");
  EXPECT_EQ(*api::read_string({"abc", 2}, "s"), "ab");
  EXPECT_EQ(*api::read_string({"abc", PUMICE_NUL}, "s"), "abc");
  EXPECT_EQ(*api::read_string(pumice_str(nullptr), "s"), "");
  EXPECT_FALSE(api::read_string({nullptr, 1}, "s").ok());
  EXPECT_FALSE(api::read_string({nullptr, PUMICE_NUL}, "s").ok());
  EXPECT_FALSE(api::read_string({"abc", SIZE_MAX - 1}, "s").ok());
  EXPECT_EQ(*api::read_path({"a b", 3}, "p"), "a b");
  EXPECT_FALSE(api::read_path({"a\0b", 3}, "p").ok()) << "the system would open a";
  EXPECT_FALSE(api::read_array<uint32_t>(nullptr, 1, "a").ok());
  const uint32_t one = 1;
  EXPECT_FALSE(api::read_array(&one, SIZE_MAX / 2, "a").ok());
  EXPECT_FALSE(api::read_bool(2, "b").ok());
}

TEST(Misuse, TextIsCutBetweenCharacters) {
  char room[4] = {};
  api::write_text("ab\xC3\xA9", room);
  EXPECT_EQ(std::string_view(room), "ab");
  api::write_text("abc", room);
  EXPECT_EQ(std::string_view(room), "abc");
}

TEST(Statuses, HaveNamesAndMessagesAreTheThreads) {
  for (pumice_status status = PUMICE_OK; status <= PUMICE_TOO_SMALL; ++status) {
    EXPECT_TRUE(std::string_view(pumice_status_name(status)).starts_with("PUMICE_")) << status;
  }
  EXPECT_NE(pumice_status_name(-1), nullptr);
  EXPECT_NE(pumice_status_name(1 << 20), nullptr);
  EXPECT_EQ(
      std::string_view(pumice_version()),
      fmt::format("{}.{}.{}", PUMICE_VERSION_MAJOR, PUMICE_VERSION_MINOR, PUMICE_VERSION_PATCH));
}

TEST(Statuses, NoExceptionLeavesACall) {
  using api::ApiStatus;
  EXPECT_EQ(api::guarded([]() -> ApiStatus { throw std::bad_alloc(); }), PUMICE_OUT_OF_MEMORY);
  EXPECT_EQ(api::guarded([]() -> ApiStatus {
              PUMICE_CHECK(false, "a bug");
              return {};
            }),
            PUMICE_INTERNAL);
  EXPECT_NE(std::string_view(pumice_last_error()).find("a bug"), std::string_view::npos);
  EXPECT_EQ(api::guarded([]() -> ApiStatus { throw 1; }), PUMICE_INTERNAL);
  const std::string endless(5000, 'x');
  EXPECT_EQ(api::guarded([&]() -> ApiStatus { return {PUMICE_BUSY, endless}; }), PUMICE_BUSY);
  EXPECT_EQ(std::strlen(pumice_last_error()), 1023u);
  // Cut before a character of two bytes, and one line whatever a file was named.
  const std::string cut = std::string("a\nb") + '\0' + std::string(1018, 'x') + "\u00E9";
  EXPECT_EQ(api::guarded([&]() -> ApiStatus { return {PUMICE_BUSY, cut}; }), PUMICE_BUSY);
  EXPECT_EQ(std::string_view(pumice_last_error()), "a?b?" + std::string(1018, 'x'));
}

TEST(ConversationNotes, ComeBackWholeOrNotAtAll) {
  host::ConversationNote note{.service_class = ServiceClass::kBatch,
                              .priority = -3,
                              .max_tokens_per_s = 2.5,
                              .delivery = GenerationRequest::Delivery::kSentence,
                              .held_bytes = 5};
  note.conversation.set_system("You are a fox.");
  note.conversation.ask(std::string("a\0b", 3));
  note.conversation.answer("");
  note.conversation.ask("and \xFF?");
  note.conversation.answer("so it is");
  const std::string bytes = host::write_conversation_note(note);
  const auto read = host::read_conversation_note(bytes);
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read->service_class, note.service_class);
  EXPECT_EQ(read->priority, note.priority);
  EXPECT_EQ(read->max_tokens_per_s, note.max_tokens_per_s);
  EXPECT_EQ(read->delivery, note.delivery);
  EXPECT_EQ(read->held_bytes, note.held_bytes);
  EXPECT_EQ(read->conversation.messages(), note.conversation.messages());
  for (size_t n = 0; n < bytes.size(); ++n) {
    EXPECT_FALSE(host::read_conversation_note(std::string_view(bytes).substr(0, n)).ok()) << n;
  }
  EXPECT_FALSE(host::read_conversation_note(bytes + "x").ok());
  note.max_tokens_per_s = -1;
  EXPECT_FALSE(host::read_conversation_note(host::write_conversation_note(note)).ok());
  for (size_t at = 0; at < bytes.size(); ++at) {
    std::string changed = bytes;
    changed[at] ^= '\x40';
    (void)host::read_conversation_note(changed);  // whatever comes of it
  }
}

TEST(Logs, AreKeptUntilTakenAndTheOldestAreLost) {
  const auto queue = std::make_shared<host::LogQueue>();
  const Logger logger = host::LogQueue::logger(queue, LogLevel::kInfo);
  logger.debug("not asked for");
  for (size_t i = 0; i < host::LogQueue::kMostLines + 3; ++i) logger.info("line {}", i);
  host::LogQueue::Line line;
  ASSERT_TRUE(queue->take(line));
  EXPECT_EQ(line.text, "line 3");
  EXPECT_EQ(line.n_dropped, 3u);
  for (size_t i = 1; i < host::LogQueue::kMostLines; ++i) ASSERT_TRUE(queue->take(line));
  EXPECT_EQ(line.n_dropped, 0u);
  EXPECT_FALSE(queue->take(line));
}

}  // namespace
}  // namespace pumice
