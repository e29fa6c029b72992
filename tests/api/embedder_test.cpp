// Vectors of texts through the C ABI: those of the host's embedder, and what is refused.
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "api/handles.hpp"
#include "models/embedding.hpp"
#include "tests/api/api_fixture.hpp"
#include "tests/paths.hpp"

namespace pumice {
namespace {

using Floats = std::vector<float>;

class ApiEmbedder : public test::ApiTest {
 protected:
  void SetUp() override {
    test::ApiTest::SetUp();
    if (IsSkipped()) return;
    options_.path = pumice_str(path_.c_str());
    options_.embeds = 1;
    options_.pooling = pumice_str("mean");
    ASSERT_EQ(pumice_model_load(device_, &options_, &embedding_), PUMICE_OK) << pumice_last_error();
  }
  void TearDown() override { pumice_model_close(embedding_); }

  pumice_embedder* create(const pumice_embedder_options* options = nullptr) {
    pumice_embedder* embedder = nullptr;
    EXPECT_OK(pumice_embedder_create(embedding_, options, &embedder));
    return embedder;
  }
  static Floats embed(pumice_embedder* embedder, const std::vector<pumice_string>& texts) {
    size_t n = 0;
    EXPECT_OK(pumice_embed(embedder, texts.data(), texts.size(), nullptr, 0, &n));
    Floats vectors(n);
    EXPECT_OK(pumice_embed(embedder, texts.data(), texts.size(), vectors.data(), n, &n));
    return vectors;
  }

  const std::string path_ = test::source_path("models/pumice-stories.gguf").string();
  const pumice_string dog_ = pumice_str("The dog ran home.");
  const pumice_string cat_ = pumice_str("A cat slept in the sun all day.");
  pumice_model_options options_{sizeof options_};
  pumice_model* embedding_ = nullptr;
};

TEST_F(ApiEmbedder, VectorsAreThoseOfTheHostsEmbedder) {
  pumice_embedder_options options{sizeof options};
  options.text_tokens = 64;
  options.invariant = 1;
  pumice_embedder* embedder = create(&options);
  pumice_embedder_info info{sizeof info};
  EXPECT_OK(pumice_embedder_get_info(embedder, &info));
  EXPECT_EQ(info.text_tokens, 64u);
  const Floats both = embed(embedder, {dog_, cat_});
  ASSERT_EQ(both.size(), 2 * info.width);
  const auto own =
      embedding_->owner->current().value().make_embedder({.text_tokens = 64, .invariant = true});
  ASSERT_TRUE(own.ok()) << own.error().message;
  const auto tokens =
      embedding_->owner->texts().tokenizer->encode(std::string_view(cat_.data), {}).value();
  Floats expected = (*own)->embed(std::vector<std::vector<TokenId>>{tokens}).value()[0];
  normalise(expected, info.width);
  EXPECT_EQ(Floats(both.begin() + info.width, both.end()), expected);
  double squares = 0;
  for (const float value : expected) squares += double{value} * value;
  EXPECT_NEAR(squares, 1, 1e-5);
  // Alone as beside another.
  EXPECT_EQ(embed(embedder, {cat_}), expected);
  EXPECT_TRUE(embed(embedder, {}).empty());
  pumice_embedder_close(embedder);
}

TEST_F(ApiEmbedder, LengthsAreTheModelsWhereThatIsAskedFor) {
  pumice_embedder_options options{sizeof options};
  options.not_normalized = 1;
  pumice_embedder* as_it_is = create(&options);
  pumice_embedder* normalized = create();
  Floats vector = embed(as_it_is, {dog_});
  const Floats unit = embed(normalized, {dog_});
  EXPECT_NE(vector, unit);
  normalise(vector, vector.size());
  EXPECT_EQ(vector, unit);
  pumice_embedder_close(as_it_is);
  pumice_embedder_close(normalized);
}

TEST_F(ApiEmbedder, TextsThatCannotBeAreNamed) {
  pumice_embedder_options options{sizeof options};
  options.text_tokens = 16;
  pumice_embedder* embedder = create(&options);
  const std::string long_text(400, 'x');
  const pumice_string texts[] = {dog_, pumice_str(long_text.c_str()), pumice_str("\xff")};
  Floats vectors(4096);
  size_t n = 0;
  EXPECT_STATUS(PUMICE_DOES_NOT_FIT, pumice_embed(embedder, texts, 2, vectors.data(), 4096, &n));
  EXPECT_NE(std::string(pumice_last_error()).find("text 2"), std::string::npos)
      << pumice_last_error();
  EXPECT_EQ(n, 0u);
  EXPECT_STATUS(PUMICE_INVALID_ARGUMENT,
                pumice_embed(embedder, texts, 3, vectors.data(), 4096, &n));
  EXPECT_NE(std::string(pumice_last_error()).find("text 3 is not valid UTF-8"), std::string::npos);
  EXPECT_STATUS(PUMICE_TOO_SMALL, pumice_embed(embedder, texts, 1, vectors.data(), 1, &n));
  EXPECT_GT(n, 1u);
  // All the same it goes on.
  EXPECT_EQ(embed(embedder, {dog_}).size(), n);
  pumice_embedder_close(embedder);
}

TEST_F(ApiEmbedder, ASecondThreadIsRefused) {
  pumice_embedder* embedder = create();
  Floats vectors(4096);
  size_t n = 0;
  std::thread other([&] {
    const std::lock_guard lock(embedder->mutex);  // as a call holds it
    std::thread([&] {
      EXPECT_STATUS(PUMICE_BUSY, pumice_embed(embedder, &dog_, 1, vectors.data(), 4096, &n));
    }).join();
  });
  other.join();
  EXPECT_EQ(n, 0u);
  EXPECT_FALSE(embed(embedder, {dog_}).empty());
  pumice_embedder_close(embedder);
}

TEST_F(ApiEmbedder, ModelsAreForOneOrTheOther) {
  pumice_engine* engine = nullptr;
  EXPECT_STATUS(PUMICE_INVALID_ARGUMENT, pumice_engine_create(embedding_, nullptr, &engine));
  EXPECT_STREQ(pumice_last_error(),
               "the model was loaded to embed: leave pumice_model_options.embeds 0");
  pumice_embedder* embedder = nullptr;
  EXPECT_STATUS(PUMICE_INVALID_ARGUMENT, pumice_embedder_create(model_, nullptr, &embedder));
  EXPECT_STREQ(pumice_last_error(),
               "the model was loaded to write text: set pumice_model_options.embeds");
  pumice_memory_estimate estimate{sizeof estimate};
  EXPECT_STATUS(PUMICE_INVALID_ARGUMENT, pumice_model_estimate(device_, &options_, &estimate));
  pumice_model* model = nullptr;
  const auto refused = [&](const char* message) {
    EXPECT_STATUS(PUMICE_INVALID_ARGUMENT, pumice_model_load(device_, &options_, &model));
    EXPECT_NE(std::string(pumice_last_error()).find(message), std::string::npos)
        << pumice_last_error();
  };
  const pumice_engine_options engine_options{sizeof engine_options};
  options_.engine = &engine_options;
  refused("leave `engine` NULL");
  options_.engine = nullptr;
  options_.pooling = pumice_str("none");
  refused("must become one");
  options_.pooling = pumice_str("median");
  refused("pooling must be one of none, mean, cls, last");
  options_.pooling = {};
  refused("not an embedding model");
  options_.embeds = 0;
  options_.pooling = pumice_str("mean");
  refused("set `embeds` to 1");
}

}  // namespace
}  // namespace pumice
