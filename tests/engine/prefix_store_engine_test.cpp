// What one engine has computed, another takes from a folder: the tokens stay the same and are not
// computed again.
#include "tests/engine/synthetic_fixture.hpp"
#include "tests/temporary_folder.hpp"

namespace pumice {
namespace {

class StoredPrefixes : public test::SyntheticEngineTest {
 protected:
  std::unique_ptr<Engine> open(EngineOptions options = {}) {
    options.context_tokens = 256;
    options.greedy_only = true;
    options.cache_host_bytes = uint64_t{16} << 20;
    options.prefix_store = folder_.path();
    options.prefix_store_bytes = uint64_t{64} << 20;
    auto engine = Engine::create(pipelines_, model_, options);
    EXPECT_TRUE(engine.ok()) << engine.error().message;
    return engine.ok() ? *std::move(engine) : nullptr;
  }
  /// As a host does before it submits. How many pages the store brought.
  static size_t fetch(Engine& engine, const std::vector<TokenId>& prompt) {
    const auto reading = engine.read_stored(prompt, "");
    if (reading == nullptr) return 0;
    while (!reading->done()) EXPECT_TRUE(engine.wait(10).ok());
    const size_t n_pages = reading->prefix().pages.size();
    engine.adopt_stored(prompt, *reading);
    EXPECT_TRUE(engine.check_integrity().ok());
    return n_pages;
  }

  const test::TemporaryFolder folder_;
};

TEST_F(StoredPrefixes, AreTakenByAnotherEngineAndNotComputed) {
  const std::vector<TokenId> prompt = tokens(150, 1);
  std::vector<TokenId> expected;
  {
    const auto engine = open();
    EXPECT_EQ(fetch(*engine, prompt), 0u);
    expected = greedy(*engine, prompt, 20);
    ASSERT_TRUE(engine->finish_storing().ok());
    EXPECT_EQ(engine->prefix_store()->stats().written_pages, (150u + 19) / 16);
    EXPECT_EQ(engine->allocations_after_prewarm(), 0u);
  }
  const auto engine = open();
  EXPECT_EQ(fetch(*engine, prompt), 149u / 16);
  EXPECT_EQ(fetch(*engine, prompt), 0u) << "it is there now";
  const uint64_t rows = engine->dispatched_rows();
  EXPECT_EQ(greedy(*engine, prompt, 20), expected);
  EXPECT_EQ(engine->dispatched_rows() - rows, 150u - 144 + 19);
  EXPECT_EQ(engine->scheduler().cache().stats().host_tokens, 144u);
  ASSERT_TRUE(engine->finish_storing().ok());
  EXPECT_EQ(engine->prefix_store()->stats().written_pages, 0u) << "all of it was there";
}

TEST_F(StoredPrefixes, AreWrittenBesideStepsWhileRequestsRun) {
  const auto engine = open({.n_sequences = 4});
  for (uint32_t i = 0; i < 4; ++i) {
    ASSERT_TRUE(engine->submit({.prompt = tokens(90, 10 + i), .max_new_tokens = 40}).ok());
  }
  bool wrote_meanwhile = false;
  while (!engine->idle()) {
    const auto events = engine->poll(1e-3);
    ASSERT_TRUE(events.ok()) << events.error().message;
    ASSERT_TRUE(engine->check_integrity().ok());
    wrote_meanwhile |= !engine->idle() && engine->prefix_store()->stats().written_pages > 0;
    ASSERT_TRUE(engine->wait(1).ok());
  }
  EXPECT_TRUE(wrote_meanwhile);
  ASSERT_TRUE(engine->finish_storing().ok());
  EXPECT_EQ(engine->prefix_store()->stats().written_pages, 4u * (129 / 16));
}

TEST_F(StoredPrefixes, AreThoseOfOneModelAndArithmeticAndOfNoSalt) {
  const std::vector<TokenId> prompt = tokens(100, 2);
  {
    const auto engine = open();
    greedy(*engine, prompt, 2);
    auto salted = engine->submit({.prompt = tokens(100, 3), .max_new_tokens = 2, .salt = "mine"});
    ASSERT_TRUE(salted.ok());
    while (!engine->idle()) ASSERT_TRUE(engine->step().ok());
    ASSERT_TRUE(engine->finish_storing().ok());
    EXPECT_EQ(engine->prefix_store()->stats().written_pages, 6u);
    EXPECT_EQ(engine->read_stored(prompt, "mine"), nullptr);
  }
  EXPECT_EQ(fetch(*open({.kv_type = KvType::kF32}), prompt), 0u);
  EXPECT_EQ(fetch(*open({.invariant = true}), prompt), 0u);
  EXPECT_EQ(fetch(*open(), prompt), 6u);
  const test::TemporaryFile other = test::write_synthetic_model({.seed = 2});
  model_ = load(other.path());
  EXPECT_EQ(fetch(*open(), prompt), 0u);
}

TEST_F(StoredPrefixes, AreNotThoseOfPagesThatWereGivenToOthers) {
  const std::vector<TokenId> prompt = tokens(100, 2);
  std::vector<TokenId> expected;
  {
    // One prompt at a time fits: pages change hands while they are still to be stored.
    const auto engine = open({.kv_blocks = 8});
    for (uint32_t i = 0; i < 6; ++i) greedy(*engine, tokens(100, 20 + i), 2);
    expected = greedy(*engine, prompt, 8);
    ASSERT_TRUE(engine->finish_storing().ok());
  }
  const auto engine = open();
  for (uint32_t i = 0; i < 6; ++i) {
    const auto alone = make_engine(model_, {.context_tokens = 256, .greedy_only = true});
    (void)fetch(*engine, tokens(100, 20 + i));
    EXPECT_EQ(greedy(*engine, tokens(100, 20 + i), 8), greedy(*alone, tokens(100, 20 + i), 8)) << i;
  }
  EXPECT_EQ(fetch(*engine, prompt), 6u);
  EXPECT_EQ(greedy(*engine, prompt, 8), expected);
}

TEST_F(StoredPrefixes, NeedHostMemory) {
  const auto engine = Engine::create(pipelines_, model_, {.prefix_store = folder_.path()});
  ASSERT_FALSE(engine.ok());
  EXPECT_EQ(engine.error().code, ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace pumice
