// The bytes of saved conversations: what is whole comes back, anything else is refused and says
// why. No device.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "engine/saved_sequence.hpp"

namespace pumice {
namespace {

constexpr uint32_t kVocabulary = 100;

class SavedBytes : public ::testing::Test {
 protected:
  SavedBytes() {
    binding_ = {.model = {1, 2},
                .n_vocab = kVocabulary,
                .state = {.model = {3, 4},
                          .layout = 5,
                          .block_tokens = 4,
                          .page_bytes = 16,
                          .n_kinds = kinds_.size(),
                          .kinds = kinds_.signature()}};
    sequence_ = {.tokens = {7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 99},
                 .n_prompt = 6,
                 .sampling = {.temperature = 0.75f,
                              .top_k = 40,
                              .top_p = 0.9f,
                              .min_p = 0.05f,
                              .repeat_penalty = 1.1f,
                              .frequency_penalty = 0.2f,
                              .presence_penalty = -0.5f,
                              .seed = 0x123456789abcdefull,
                              .logit_bias = {{3, 1.5f}, {4, -INFINITY}}},
                 .next_output_index = 5,
                 .salt = std::string("a\0lt", 4),
                 .note = std::string("n\0te", 4),
                 .state_tokens = 10};
  }
  std::vector<std::byte> written() const {
    const size_t n_pages = kinds_.prefix_entries(sequence_.state_tokens).size();
    std::vector<std::byte> bytes = write_saved_sequence(sequence_, binding_, n_pages);
    const size_t n_page_bytes = n_pages * binding_.state.page_bytes;
    for (size_t i = 0; i < n_page_bytes; ++i) {
      bytes[bytes.size() - n_page_bytes + i] = static_cast<std::byte>(i * 7 + 1);
    }
    seal_saved_sequence(bytes);
    return bytes;
  }
  Result<OpenedSequence> open(const std::vector<std::byte>& bytes,
                              const RestoreOptions& options = {}) const {
    return open_saved_sequence(bytes, binding_, kinds_, options);
  }
  void expect_refused(const std::vector<std::byte>& bytes, const std::string& why,
                      const RestoreOptions& options = {}) const {
    const auto opened = open(bytes, options);
    ASSERT_FALSE(opened.ok()) << why;
    EXPECT_EQ(opened.error().code, ErrorCode::kBadFile);
    EXPECT_NE(opened.error().message.find(why), std::string::npos) << opened.error().message;
  }

  const PageKinds kinds_{{{"kv", StateForm::kFull, 0}, {"w", StateForm::kWindow, 3}}, 4, 0};
  SavedBinding binding_;
  SavedSequence sequence_;
};

void expect_equal(const SavedSequence& got, const SavedSequence& expected) {
  EXPECT_EQ(got.tokens, expected.tokens);
  EXPECT_EQ(got.n_prompt, expected.n_prompt);
  EXPECT_EQ(got.next_output_index, expected.next_output_index);
  EXPECT_EQ(got.salt, expected.salt);
  EXPECT_EQ(got.note, expected.note);
  EXPECT_EQ(got.state_tokens, expected.state_tokens);
  const SamplerOptions& a = got.sampling;
  const SamplerOptions& b = expected.sampling;
  EXPECT_EQ(std::tie(a.temperature, a.top_k, a.top_p, a.min_p, a.repeat_penalty,
                     a.frequency_penalty, a.presence_penalty, a.seed, a.logit_bias),
            std::tie(b.temperature, b.top_k, b.top_p, b.min_p, b.repeat_penalty,
                     b.frequency_penalty, b.presence_penalty, b.seed, b.logit_bias));
}

TEST_F(SavedBytes, ComeBackWhole) {
  const std::vector<std::byte> bytes = written();
  const auto opened = open(bytes);
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  expect_equal(opened->sequence, sequence_);
  ASSERT_EQ(opened->pages.size(), (3 + 1) * 16u);  // of the window only the last block
  for (size_t i = 0; i < opened->pages.size(); ++i) {
    ASSERT_EQ(opened->pages[i], static_cast<std::byte>(i * 7 + 1));
  }
}

TEST_F(SavedBytes, OfAConversationThatHasNotBegunComeBackToo) {
  sequence_ = {};
  const auto opened = open(written());
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  expect_equal(opened->sequence, sequence_);
}

TEST_F(SavedBytes, WithAnyBitFlippedOrCutOffAnywhereAreRefused) {
  const std::vector<std::byte> whole = written();
  for (size_t at = 0; at < whole.size(); ++at) {
    for (const int bit : {0, 3, 7}) {
      std::vector<std::byte> bytes = whole;
      bytes[at] ^= static_cast<std::byte>(1 << bit);
      for (const bool tokens_only : {false, true}) {
        const auto opened = open(bytes, {.tokens_only = tokens_only});
        ASSERT_FALSE(opened.ok()) << "byte " << at << " bit " << bit;
        ASSERT_EQ(opened.error().code, ErrorCode::kBadFile);
      }
    }
    const auto cut = open({whole.begin(), whole.begin() + static_cast<ptrdiff_t>(at)});
    ASSERT_FALSE(cut.ok()) << at << " bytes";
    ASSERT_EQ(cut.error().code, ErrorCode::kBadFile);
  }
  std::vector<std::byte> longer = whole;
  longer.resize(whole.size() + 16);
  expect_refused(longer, "bytes are there");
}

TEST_F(SavedBytes, SayWhyTheyAreRefused) {
  const std::vector<std::byte> whole = written();
  expect_refused({}, "not a saved session");
  expect_refused(std::vector<std::byte>(1000), "not a saved session");
  std::vector<std::byte> bytes = whole;
  bytes[8] = std::byte{9};
  expect_refused(bytes, "version 9, this program reads 1");
  bytes = whole;
  bytes.back() ^= std::byte{1};
  expect_refused(bytes, "damaged");
  bytes = whole;
  bytes.pop_back();
  expect_refused(bytes, "bytes are there");
}

TEST_F(SavedBytes, OfAnotherModelAreRefusedEvenAsTokens) {
  const std::vector<std::byte> bytes = written();
  binding_.model = {1, 3};
  expect_refused(bytes, "another model");
  expect_refused(bytes, "another model", {.tokens_only = true});
}

TEST_F(SavedBytes, OfAnotherStateAreTokensForWhoAsks) {
  const std::vector<std::byte> bytes = written();
  const SavedBinding mine = binding_;
  for (int what = 0; what < 6; ++what) {
    binding_ = mine;
    PromptCacheBinding& state = binding_.state;
    if (what == 0) state.model.low ^= 1;
    if (what == 1) state.layout ^= 1;
    if (what == 2) state.block_tokens = 16;
    if (what == 3) state.page_bytes = 32;
    if (what == 4) state.n_kinds = 1;
    if (what == 5) state.kinds ^= 1;
    expect_refused(bytes, "another KV type");
    const auto opened = open(bytes, {.tokens_only = true});
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    EXPECT_TRUE(opened->pages.empty());
    SavedSequence tokens = sequence_;
    tokens.state_tokens = 0;
    expect_equal(opened->sequence, tokens);
  }
}

/// What a checksum does not find: bytes that were made to be wrong.
TEST_F(SavedBytes, MadeByOthersAreCheckedNumberByNumber) {
  const std::vector<std::byte> whole = written();
  const auto with = [&](size_t at, uint32_t value) {
    std::vector<std::byte> bytes = whole;
    std::memcpy(bytes.data() + at, &value, sizeof(value));
    seal_saved_sequence(bytes);
    return bytes;
  };
  const auto bits = [](float value) { return std::bit_cast<uint32_t>(value); };
  constexpr size_t kCounts = 92;  // tokens, prompt, state, biases, salt
  for (const uint32_t value : {0u, 1u, 12u, 1000u, 0x40000000u, 0xffffffffu}) {
    for (size_t field = 0; field < 5; ++field) {
      const auto opened = open(with(kCounts + 4 * field, value));
      if (field == 1 && value <= 11) continue;  // another prompt
      ASSERT_FALSE(opened.ok()) << field << " " << value;
      EXPECT_EQ(opened.error().code, ErrorCode::kBadFile);
    }
  }
  expect_refused(with(176, kVocabulary), "outside the vocabulary");
  expect_refused(with(128, bits(std::numeric_limits<float>::quiet_NaN())), "temperature");
  expect_refused(with(136, bits(2.0f)), "top_p");
  expect_refused(with(176 + 11 * 4, 3 + kVocabulary), "logit_bias");
}

TEST_F(SavedBytes, ThatAreNoiseUnderAGoodChecksumNeverCrash) {
  std::mt19937 random(5);
  const std::vector<std::byte> whole = written();
  int n_opened = 0;
  for (int i = 0; i < 3000; ++i) {
    std::vector<std::byte> bytes = whole;
    for (int n = 1 + static_cast<int>(random() % 4); n > 0; --n) {
      bytes[24 + random() % (bytes.size() - 24)] = static_cast<std::byte>(random());
    }
    if (random() % 4 == 0) bytes.resize(176 + random() % (bytes.size() - 176));
    const uint64_t n_bytes = bytes.size();
    std::memcpy(bytes.data() + 16, &n_bytes, sizeof(n_bytes));
    seal_saved_sequence(bytes);
    const auto opened = open(bytes, {.tokens_only = random() % 2 == 0});
    if (!opened.ok()) {
      EXPECT_EQ(opened.error().code, ErrorCode::kBadFile);
      continue;
    }
    ++n_opened;
    EXPECT_TRUE(check_saved_sequence(opened->sequence, kVocabulary).ok());
    EXPECT_EQ(opened->pages.size(),
              kinds_.prefix_entries(opened->sequence.state_tokens).size() * 16);
  }
  EXPECT_GT(n_opened, 100);
}

TEST_F(SavedBytes, BecomeARequestThatGoesOn) {
  const GenerationRequest request = continuation(sequence_, 12);
  EXPECT_EQ(request.prompt, sequence_.tokens);
  EXPECT_EQ(request.max_new_tokens, 12u);
  EXPECT_EQ(request.n_output_in_prompt, 5u);
  EXPECT_EQ(request.first_output_index, 5u);
  EXPECT_EQ(request.salt, sequence_.salt);
  EXPECT_EQ(request.sampling.seed, sequence_.sampling.seed);
}

}  // namespace
}  // namespace pumice
