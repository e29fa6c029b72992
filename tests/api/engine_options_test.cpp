// What embedders say of an engine's service, of what guesses for it and of what it shares, and of
// requests without a session.
#include <filesystem>
#include <string>
#include <vector>

#include "api/handles.hpp"
#include "models/synthetic.hpp"
#include "tests/api/api_fixture.hpp"
#include "tests/api/archive.hpp"
#include "tests/paths.hpp"
#include "tests/temporary_folder.hpp"

namespace pumice {
namespace {

using test::Answer;

constexpr const char* kPrompt =
    "Once upon a time there was a little girl who had a dog. The dog was big and brown, and the "
    "girl";

struct Drafted {
  std::vector<uint32_t> tokens;
  uint32_t drafted = 0;
  uint32_t accepted = 0;
};

class ApiEngineOptions : public test::ApiTest {
 protected:
  static pumice_engine_options options_of() {
    pumice_engine_options options{sizeof options};
    options.context_tokens = 256;
    return options;
  }
  pumice_engine* make(const pumice_engine_options& options, pumice_model* model = nullptr) {
    return test::create_engine(model != nullptr ? model : model_, options);
  }
  std::string refusal(const pumice_engine_options& options,
                      pumice_status expected = PUMICE_INVALID_ARGUMENT) {
    pumice_engine* engine = nullptr;
    EXPECT_STATUS(expected, pumice_engine_create(model_, &options, &engine));
    EXPECT_EQ(engine, nullptr);
    return pumice_last_error();
  }
  static Drafted draft(pumice_engine* engine, pumice_request_options options,
                       pumice_speculation speculation) {
    options.max_new_tokens = 24;
    options.ignore_end = 1;
    options.speculation = speculation;
    pumice_request request = 0;
    EXPECT_OK(pumice_submit(engine, 0, &options, &request));
    Drafted drafted;
    while (request != 0) {
      EXPECT_OK(pumice_poll(engine, PUMICE_NO_LIMIT));
      pumice_event event{sizeof event};
      while (pumice_next_event(engine, &event) == PUMICE_OK && event.kind != PUMICE_EVENT_NONE) {
        if (event.has_token) drafted.tokens.push_back(event.token);
        if (event.kind != PUMICE_EVENT_FINISHED) continue;
        drafted.drafted = event.drafted_tokens;
        drafted.accepted = event.accepted_tokens;
        request = 0;
      }
      EXPECT_OK(pumice_wait(engine, 1000));
    }
    return drafted;
  }
};

TEST_F(ApiEngineOptions, WhatIsSaidOfClassesArrives) {
  pumice_engine_options options = options_of();
  options.aging_us = 1'500'000;
  options.reserved_interactive_tokens = 8;
  options.reserved_normal_tokens = 4;
  options.reserved_batch_tokens = 2;
  pumice_engine* engine = make(options);
  const EngineOptions& used = engine->host->engine().options();
  EXPECT_EQ(used.aging_s, 1.5);
  EXPECT_EQ(used.reserved_decode_tokens, (std::array<uint32_t, 3>{8, 4, 2}));
  EXPECT_EQ(test::ask(engine, 0, test::request_of(kPrompt, 4)).tokens.size(), 4u);
  pumice_engine_close(engine);
  options.aging_us = PUMICE_NO_LIMIT;
  engine = make(options);
  EXPECT_EQ(engine->host->engine().options().aging_s, 0);
  pumice_engine_close(engine);
  engine = make(options_of());
  EXPECT_EQ(engine->host->engine().options().aging_s, 60);
  pumice_engine_close(engine);
  options.reserved_batch_tokens = 1000;
  EXPECT_EQ(refusal(options),
            "the classes have 1012 tokens of a step reserved, of 512 (token_budget)");
}

TEST_F(ApiEngineOptions, EnginesShareAFolderOfPrefixes) {
  const test::TemporaryFolder folder;
  const std::string path = (folder.path() / "store").string();
  pumice_engine_options options = options_of();
  options.cache_host_bytes = 16 << 20;
  options.prefix_store = pumice_str(path.c_str());
  options.prefix_store_bytes = 64 << 20;
  pumice_engine* engine = make(options);
  EXPECT_EQ(test::ask(engine, 0, test::request_of(kPrompt, 4)).cached_tokens, 0u);
  pumice_engine_close(engine);
  engine = make(options);
  EXPECT_GE(test::ask(engine, 0, test::request_of(kPrompt, 4)).cached_tokens, 16u);
  pumice_engine_close(engine);
}

TEST_F(ApiEngineOptions, AFolderOfPrefixesNeedsItsMemory) {
  pumice_engine_options options = options_of();
  options.prefix_store = pumice_str("store");
  EXPECT_NE(refusal(options).find("prefix_store needs cache_host_bytes"), std::string::npos);
  options.cache_host_bytes = 1 << 20;
  options.no_prefix_cache = 1;
  EXPECT_NE(refusal(options).find("leave no_prefix_cache unset"), std::string::npos);
  options = options_of();
  options.prefix_store_bytes = 1;
  EXPECT_EQ(refusal(options), "prefix_store_bytes is set, but prefix_store is empty");
}

TEST_F(ApiEngineOptions, ADraftModelGuesses) {
  const std::string path = test::source_path("models/pumice-stories.gguf").string();
  pumice_engine_options options = options_of();
  options.draft_model = pumice_str(path.c_str());
  pumice_engine* engine = make(options);
  const pumice_request_options request = test::request_of(kPrompt, 24);
  const Drafted plain = draft(engine, request, PUMICE_SPECULATION_OFF);
  const Drafted guessed = draft(engine, request, PUMICE_SPECULATION_DRAFT);
  EXPECT_EQ(guessed.tokens, plain.tokens);
  EXPECT_EQ(plain.drafted, 0u);
  EXPECT_GT(guessed.accepted, 12u);
  pumice_request number = 0;
  pumice_request_options wrong = request;
  wrong.speculation = PUMICE_SPECULATION_MTP;
  EXPECT_STATUS(PUMICE_INVALID_ARGUMENT, pumice_submit(engine, 0, &wrong, &number));
  EXPECT_STREQ(pumice_last_error(), "this engine was made without the model's block that predicts");
  wrong.speculation = 5;
  EXPECT_STATUS(PUMICE_INVALID_ARGUMENT, pumice_submit(engine, 0, &wrong, &number));
  pumice_engine_close(engine);
  engine = make(options_of());
  wrong.speculation = PUMICE_SPECULATION_DRAFT;
  EXPECT_STATUS(PUMICE_INVALID_ARGUMENT, pumice_submit(engine, 0, &wrong, &number));
  EXPECT_STREQ(pumice_last_error(), "this engine was made without a draft model");
  pumice_engine_close(engine);
  options.draft_model = pumice_str("/nowhere/draft.gguf");
  EXPECT_NE(refusal(options, PUMICE_BAD_FILE).find("/nowhere/draft.gguf"), std::string::npos);
}

TEST_F(ApiEngineOptions, ADraftModelComesFromWhereTheModelDid) {
  test::Archive archive{.files = {{"a.gguf", test::stories()}, {"draft.gguf", test::stories()}}};
  const pumice_files files = archive.functions();
  const pumice_model_options load = test::options_of("a.gguf", files);
  pumice_model* model = nullptr;
  ASSERT_EQ(pumice_model_load(device_, &load, &model), PUMICE_OK) << pumice_last_error();
  pumice_engine_options options = options_of();
  options.draft_model = pumice_str("draft.gguf");
  pumice_engine* engine = make(options, model);
  EXPECT_GT(draft(engine, test::request_of(kPrompt, 24), PUMICE_SPECULATION_DRAFT).accepted, 12u);
  EXPECT_EQ(archive.n_opened, 2);
  EXPECT_EQ(archive.n_closed, 2);
  pumice_engine_close(engine);
  pumice_model_close(model);
}

TEST_F(ApiEngineOptions, AModelsOwnBlockGuesses) {
  const test::TemporaryFolder folder;
  SyntheticShape shape = find_synthetic_preset("qwen35").value();
  shape.predicts = true;
  const std::string path = (folder.path() / "predicts.gguf").string();
  ASSERT_TRUE(write_synthetic_model(
                  SyntheticModel::create(shape, {.type = &weight_type("F16")}).value(), path)
                  .ok());
  pumice_engine_options options = options_of();
  options.mtp = 1;
  pumice_model_options load{sizeof load};
  load.path = pumice_str(path.c_str());
  pumice_model* model = nullptr;
  ASSERT_EQ(pumice_model_load(device_, &load, &model), PUMICE_OK) << pumice_last_error();
  pumice_engine* engine = nullptr;
  EXPECT_STATUS(PUMICE_INVALID_ARGUMENT, pumice_engine_create(model, &options, &engine));
  EXPECT_NE(std::string(pumice_last_error()).find("set mtp in pumice_model_options.engine too"),
            std::string::npos);
  pumice_model_close(model);
  load.engine = &options;
  ASSERT_EQ(pumice_model_load(device_, &load, &model), PUMICE_OK) << pumice_last_error();
  engine = make(options, model);
  const std::vector<uint32_t> prompt = {100, 130, 165, 204, 247, 294, 345, 400};
  pumice_request_options request{sizeof request};
  request.tokens = prompt.data();
  request.n_tokens = prompt.size();
  const Drafted plain = draft(engine, request, PUMICE_SPECULATION_OFF);
  const Drafted guessed = draft(engine, request, PUMICE_SPECULATION_MTP);
  EXPECT_EQ(guessed.tokens, plain.tokens);
  EXPECT_GT(guessed.drafted, 0u);
  pumice_engine_close(engine);
  pumice_model_close(model);
}

TEST_F(ApiEngineOptions, ARequestAloneHasItsOwnSalt) {
  pumice_engine* engine = make(options_of());
  pumice_session_options alone{sizeof alone};
  alone.salt = pumice_str("one");
  alone.service_class = PUMICE_SERVICE_INTERACTIVE;
  pumice_request_options request = test::request_of(kPrompt, 4);
  EXPECT_EQ(test::ask(engine, 0, request).cached_tokens, 0u);
  EXPECT_GE(test::ask(engine, 0, request).cached_tokens, 16u);
  request.alone = &alone;
  EXPECT_EQ(test::ask(engine, 0, request).cached_tokens, 0u);
  EXPECT_GE(test::ask(engine, 0, request).cached_tokens, 16u);
  const pumice_session session = test::open_session(engine);
  pumice_request number = 0;
  EXPECT_STATUS(PUMICE_INVALID_ARGUMENT, pumice_submit(engine, session, &request, &number));
  EXPECT_EQ(std::string(pumice_last_error()).find("alone is of a request without a session"), 0u);
  alone.service_class = 9;
  EXPECT_STATUS(PUMICE_INVALID_ARGUMENT, pumice_submit(engine, 0, &request, &number));
  pumice_engine_close(engine);
}

}  // namespace
}  // namespace pumice
