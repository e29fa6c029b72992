// LoRA adapters: sessions and requests name one, and say what the engine says with it.
#include <array>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/path.hpp"
#include "host/opened_model.hpp"
#include "models/synthetic_adapter.hpp"
#include "tests/api/api_fixture.hpp"
#include "tests/api/archive.hpp"
#include "tests/paths.hpp"
#include "tests/temporary_folder.hpp"

namespace pumice {
namespace {

using test::Answer;
using test::Answers;
using test::Archive;
using test::Bytes;

constexpr const char* kAskedOfAdapters = "Once upon a time";
constexpr uint32_t kSaid = 16;

class ApiAdapters : public test::ApiTest {
 protected:
  void SetUp() override {
    ApiTest::SetUp();
    if (IsSkipped()) return;
    const auto base = ModelSource::open(test::source_path("models/pumice-stories.gguf"));
    ASSERT_TRUE(base.ok());
    for (size_t i = 0; i < 2; ++i) {
      const auto path = folder_.path() / (std::to_string(i) + ".gguf");
      ASSERT_TRUE(write_synthetic_adapter(*base, {.rank = 4, .seed = i + 1}, path).ok());
      paths_.push_back(to_utf8(path));
    }
    model_with_ = load({named("fox", 0), named("owl", 1)});
    engine_ = test::create_invariant_engine(model_with_, 4);
  }
  void TearDown() override {
    pumice_engine_close(engine_);
    pumice_model_close(model_with_);
  }

  /// `name` and one of the files.
  pumice_adapter named(const char* name, size_t i) const {
    pumice_adapter adapter{};
    adapter.name = pumice_str(name);
    adapter.path = pumice_str(paths_[i].c_str());
    return adapter;
  }
  static pumice_model_options options_with(const std::vector<pumice_adapter>& adapters) {
    static const std::string path = test::source_path("models/pumice-stories.gguf").string();
    pumice_model_options options{sizeof options};
    options.path = {path.data(), path.size()};
    options.adapters = adapters.data();
    options.n_adapters = adapters.size();
    return options;
  }
  static pumice_model* load(const std::vector<pumice_adapter>& adapters) {
    const pumice_model_options options = options_with(adapters);
    pumice_model* model = nullptr;
    EXPECT_OK(pumice_model_load(device_, &options, &model));
    return model;
  }
  static std::string error_of(const std::vector<pumice_adapter>& adapters, pumice_status expected) {
    const pumice_model_options options = options_with(adapters);
    pumice_model* model = nullptr;
    EXPECT_STATUS(expected, pumice_model_load(device_, &options, &model));
    EXPECT_EQ(model, nullptr);
    return pumice_last_error();
  }
  static pumice_session open(pumice_engine* engine, const char* adapter) {
    pumice_session_options options{sizeof options};
    options.adapter = pumice_str(adapter);
    return test::open_session(engine, &options);
  }
  /// What a request alone says; `adapter` may be NULL.
  static std::vector<uint32_t> said(pumice_engine* engine, const char* adapter) {
    pumice_session_options alone{sizeof alone};
    alone.adapter = pumice_str(adapter);
    auto options = test::request_of(kAskedOfAdapters, kSaid);
    options.alone = &alone;
    return test::ask(engine, 0, options).tokens;
  }
  std::vector<uint32_t> said(const char* adapter) { return said(engine_, adapter); }
  /// The same of an engine in C++.
  std::vector<uint32_t> engine_says(size_t i, float scale) {
    const auto base = ModelSource::open(test::source_path("models/pumice-stories.gguf"));
    const auto adapter = AdapterSource::open("a", from_utf8(paths_[i]), scale);
    const char* selector = std::getenv("PUMICE_DEVICE");
    const auto opened = host::OpenedModel::open(
        {.device = {.selector = selector != nullptr ? selector : ""}, .remember_costs = false},
        base->with_adapters({*adapter}));
    EXPECT_TRUE(opened.ok()) << opened.error().message;
    const auto engine = opened->make_engine({.context_tokens = 128, .invariant = true});
    EXPECT_TRUE(engine.ok()) << engine.error().message;
    size_t n = 0;
    EXPECT_OK(pumice_tokenize(model_, pumice_str(kAskedOfAdapters), 1, nullptr, 0, &n));
    std::vector<uint32_t> prompt(n);
    EXPECT_OK(pumice_tokenize(model_, pumice_str(kAskedOfAdapters), 1, prompt.data(), n, &n));
    const auto id = (*engine)->submit({.prompt = prompt, .max_new_tokens = kSaid, .adapter = 1});
    EXPECT_TRUE(id.ok()) << id.error().message;
    std::vector<uint32_t> tokens;
    while (!(*engine)->idle()) {
      const auto events = (*engine)->step();
      EXPECT_TRUE(events.ok()) << events.error().message;
      if (!events.ok()) break;
      for (const StepEvent& event : *events) {
        if (event.token) tokens.push_back(*event.token);
      }
    }
    return tokens;
  }

  test::TemporaryFolder folder_;
  std::vector<std::string> paths_;
  pumice_model* model_with_ = nullptr;
  pumice_engine* engine_ = nullptr;
};

TEST_F(ApiAdapters, SayWhatTheEngineSaysWithThem) {
  pumice_engine* base = test::create_invariant_engine(model_, 4);
  EXPECT_EQ(said(nullptr), said(base, nullptr)) << "without one";
  pumice_engine_close(base);
  EXPECT_EQ(said("fox"), engine_says(0, 1));
  EXPECT_EQ(said("owl"), engine_says(1, 1));
  EXPECT_NE(said("fox"), said(nullptr));
  EXPECT_NE(said("owl"), said("fox"));
  pumice_adapter half = named("half", 0);
  half.scale = 0.5f;
  pumice_model* model = load({half});
  pumice_engine* engine = test::create_invariant_engine(model, 4);
  EXPECT_EQ(said(engine, "half"), engine_says(0, 0.5f));
  pumice_engine_close(engine);
  pumice_model_close(model);
}

TEST_F(ApiAdapters, ShareTheStepsOfABatch) {
  const std::array<const char*, 4> names = {"fox", nullptr, "owl", "fox"};
  std::vector<std::vector<uint32_t>> alone;
  for (const char* name : names) alone.push_back(said(name));
  Answers answers;
  std::vector<pumice_request> requests;
  for (const char* name : names) {
    const auto options = test::request_of(kAskedOfAdapters, kSaid);
    EXPECT_OK(pumice_submit(engine_, open(engine_, name), &options, &requests.emplace_back()));
  }
  test::run_until(engine_, answers, static_cast<int>(names.size()));
  for (size_t i = 0; i < names.size(); ++i) EXPECT_EQ(answers[requests[i]].tokens, alone[i]) << i;
}

TEST_F(ApiAdapters, StayWithTheirSessions) {
  const pumice_session session = open(engine_, "owl");
  (void)test::ask(engine_, session, test::request_of(kAskedOfAdapters, kSaid));
  const void* data = nullptr;
  size_t n = 0;
  EXPECT_OK(pumice_session_save(engine_, session, &data, &n));
  const Bytes bytes(static_cast<const char*>(data), n);
  const auto more = test::request_of(" Then", kSaid);
  const Answer expected = test::ask(engine_, session, more);

  // By its file, not by its name or place.
  pumice_model* model = load({named("bird", 1), named("fox", 0)});
  pumice_engine* engine = test::create_invariant_engine(model, 4);
  pumice_session restored = 0;
  EXPECT_OK(pumice_session_restore(engine, bytes.data(), n, nullptr, &restored));
  const Answer answer = test::ask(engine, restored, more);
  EXPECT_EQ(answer.tokens, expected.tokens);
  EXPECT_GT(answer.cached_tokens, kSaid);
  pumice_engine_close(engine);
  pumice_model_close(model);

  for (const bool scaled : {false, true}) {
    pumice_adapter other = named("owl", scaled ? 1 : 0);
    if (scaled) other.scale = 0.5f;
    model = load({other});
    engine = test::create_invariant_engine(model, 4);
    EXPECT_STATUS(PUMICE_BAD_FILE,
                  pumice_session_restore(engine, bytes.data(), n, nullptr, &restored));
    EXPECT_NE(std::string(pumice_last_error()).find("belongs to another model"), std::string::npos);
    EXPECT_EQ(restored, 0u);
    pumice_engine_close(engine);
    pumice_model_close(model);
  }
}

TEST_F(ApiAdapters, ThatTheModelLacksAreRefusedByName) {
  pumice_session_options session_options{sizeof session_options};
  session_options.adapter = pumice_str("wolf");
  pumice_session session = 1;
  EXPECT_STATUS(PUMICE_INVALID_ARGUMENT, pumice_session_open(engine_, &session_options, &session));
  EXPECT_STREQ(pumice_last_error(), "unknown adapter \"wolf\": expected fox, owl");
  EXPECT_EQ(session, 0u);
  auto options = test::request_of(kAskedOfAdapters, 1);
  options.alone = &session_options;
  pumice_request request = 1;
  EXPECT_STATUS(PUMICE_INVALID_ARGUMENT, pumice_submit(engine_, 0, &options, &request));
  EXPECT_EQ(request, 0u);
  session_options.adapter = {nullptr, 3};
  EXPECT_STATUS(PUMICE_INVALID_ARGUMENT, pumice_submit(engine_, 0, &options, &request));
  EXPECT_STREQ(pumice_last_error(), "adapter is NULL, but its length is not 0");
  pumice_engine* base = test::create_invariant_engine(model_, 4);
  session_options.adapter = pumice_str("fox");
  EXPECT_STATUS(PUMICE_INVALID_ARGUMENT, pumice_submit(base, 0, &options, &request));
  EXPECT_STREQ(pumice_last_error(),
               "unknown adapter \"fox\": the model was loaded without adapters");
  pumice_engine_close(base);
  pumice_stats stats{sizeof stats};
  EXPECT_OK(pumice_get_stats(engine_, &stats));
  EXPECT_EQ(stats.open_requests + stats.open_sessions, 0u);
}

TEST_F(ApiAdapters, ThatCannotBeTheModelsAreErrors) {
  const auto says = [](const std::string& message, const char* what) {
    EXPECT_NE(message.find(what), std::string::npos) << message;
  };
  constexpr pumice_status kWrong = PUMICE_INVALID_ARGUMENT;
  pumice_stats before{sizeof before}, after{sizeof after};
  EXPECT_OK(pumice_get_stats(engine_, &before));
  says(error_of({named("fox", 0), named("fox", 1)}, kWrong), "two adapters have the name fox");
  says(error_of({named("", 0)}, kWrong), "an adapter needs a name");
  pumice_adapter adapter = named("fox", 0);
  adapter.scale = std::strtof("nan", nullptr);
  says(error_of({adapter}, kWrong), "adapter fox: its scale must be finite");
  adapter = named("fox", 0);
  adapter.memory_bytes = 3;
  says(error_of({adapter}, kWrong), "adapter fox: memory is not set, but memory_bytes is");
  adapter = named("fox", 0);
  adapter.path = {};
  says(error_of({adapter}, kWrong), "adapter fox: path is empty");
  adapter.path = pumice_str("/nowhere/fox.gguf");
  says(error_of({adapter}, PUMICE_BAD_FILE), "/nowhere/fox.gguf");
  const std::string model = test::source_path("models/pumice-stories.gguf").string();
  adapter.path = pumice_str(model.c_str());
  says(error_of({adapter}, PUMICE_BAD_FILE), "adapter fox: not a LoRA file");
  adapter = {};
  adapter.name = pumice_str("fox");
  Bytes other = test::bytes_of_file(from_utf8(paths_[0]));
  for (size_t at = 0; (at = other.find("blk.0.", at)) != Bytes::npos;) other[at + 4] = '9';
  adapter.memory = other.data();
  adapter.memory_bytes = other.size();
  says(error_of({adapter}, PUMICE_BAD_FILE), "the model does not have this tensor");
  adapter.memory_bytes /= 2;
  says(error_of({adapter}, PUMICE_BAD_FILE), "adapter in memory: ");

  pumice_model_options options = options_with({});
  options.adapters = nullptr;
  options.n_adapters = 1;
  pumice_model* none = nullptr;
  EXPECT_STATUS(kWrong, pumice_model_load(device_, &options, &none));
  EXPECT_STREQ(pumice_last_error(), "adapters is NULL, but its count is 1");
  const pumice_adapter fox = named("fox", 0);
  options.adapters = &fox;
  options.embeds = 1;
  options.pooling = pumice_str("mean");
  EXPECT_STATUS(kWrong, pumice_model_load(device_, &options, &none));
  EXPECT_STREQ(pumice_last_error(), "a model that embeds gets no adapters: leave `n_adapters` 0");
  EXPECT_OK(pumice_get_stats(engine_, &after));
  EXPECT_EQ(after.device_bytes, before.device_bytes);
}

TEST_F(ApiAdapters, ComeFromWhereTheModelDoes) {
  const std::vector<uint32_t> fox = said("fox");
  const std::vector<uint32_t> owl = said("owl");
  const Bytes in_memory = test::bytes_of_file(from_utf8(paths_[1]));
  Archive archive{.files = {{"pak/a.gguf", test::stories()},
                            {"pak/fox", test::bytes_of_file(from_utf8(paths_[0]))}}};
  const pumice_files files = archive.functions();
  std::array<pumice_adapter, 2> adapters = {};
  adapters[0].name = pumice_str("fox");
  adapters[0].path = pumice_str("pak/fox");
  adapters[1].name = pumice_str("owl");
  adapters[1].memory = in_memory.data();
  adapters[1].memory_bytes = in_memory.size();
  pumice_model_options options = test::options_of("pak/a.gguf", files);
  options.adapters = adapters.data();
  options.n_adapters = adapters.size();
  pumice_loading* loading = nullptr;
  EXPECT_OK(pumice_model_load_begin(device_, &options, &loading));
  pumice_load_progress progress{sizeof progress};
  EXPECT_OK(pumice_loading_wait(loading, PUMICE_NO_LIMIT, &progress));
  pumice_model* model = nullptr;
  EXPECT_OK(pumice_loading_take(loading, &model));
  pumice_loading_close(loading);
  pumice_engine* engine = test::create_invariant_engine(model, 4);
  EXPECT_EQ(said(engine, "fox"), fox);
  EXPECT_EQ(said(engine, "owl"), owl);
  pumice_model_close(model);
  pumice_engine_close(engine);
  // The host may forget them now, though the device is open.
  EXPECT_EQ(archive.n_opened, 2);
  EXPECT_EQ(archive.n_closed, 2);
  archive.files.erase("pak/fox");
  EXPECT_STATUS(PUMICE_BAD_FILE, pumice_model_load(device_, &options, &model));
  EXPECT_NE(std::string(pumice_last_error()).find("pak/fox"), std::string::npos);
  EXPECT_EQ(archive.n_opened, archive.n_closed);
}

TEST_F(ApiAdapters, AreInAnEstimate) {
  pumice_memory_estimate without{sizeof without}, with{sizeof with};
  pumice_model_options options = options_with({});
  EXPECT_OK(pumice_model_estimate(device_, &options, &without));
  const std::vector<pumice_adapter> adapters = {named("fox", 0), named("owl", 1)};
  options = options_with(adapters);
  EXPECT_OK(pumice_model_estimate(device_, &options, &with));
  EXPECT_GT(with.total_bytes, without.total_bytes);
}

}  // namespace
}  // namespace pumice
