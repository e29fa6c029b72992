#include "bench/perplexity.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <numeric>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "base/output_file.hpp"
#include "bench/base_distributions.hpp"
#include "tests/temporary_folder.hpp"

namespace pumice::bench {
namespace {

TextWindows counted_windows(uint32_t n_tokens, uint32_t window_tokens) {
  TextWindows windows{.tokens = std::vector<TokenId>(n_tokens), .window_tokens = window_tokens};
  std::iota(windows.tokens.begin(), windows.tokens.end(), 0);
  return windows;
}

TEST(TextWindows, TheSecondHalfOfEachIsScored) {
  const TextWindows windows = counted_windows(27, 8);
  EXPECT_EQ(windows.count(), 3u);  // the last three tokens make no window
  EXPECT_EQ(windows.first_scored(), 4u);
  EXPECT_EQ(windows.rows_per_window(), 3u);
  EXPECT_EQ(windows.n_rows(), 9u);
  EXPECT_EQ(windows.target(0), 5u);  // what follows position 4
  EXPECT_EQ(windows.target(2), 7u);
  EXPECT_EQ(windows.target(3), 13u);
}

TEST(TextWindows, BosStandsInPlaceOfTheFirstToken) {
  TextWindows windows = counted_windows(16, 8);
  EXPECT_EQ(windows.prompt(1).front(), 8u);
  windows.bos = 100;
  EXPECT_EQ(windows.prompt(1), (std::vector<TokenId>{100, 9, 10, 11, 12, 13, 14, 15}));
}

TEST(LogSoftmax, ProbabilitiesAddUpWhereExponentialsOverflow) {
  const std::vector<float> logits = {1000, 999, -1000};
  const LogSoftmax softmax(logits);
  EXPECT_NEAR(softmax.of(1000), -std::log1p(std::exp(-1.0)), 1e-7);
  EXPECT_NEAR(softmax.of(-1000), -2000 - std::log1p(std::exp(-1.0)), 1e-4);
}

TEST(Perplexity, TheErrorIsThatOfTheMean) {
  const Perplexity perplexity = perplexity_of(std::vector<double>{1, 2, 3});
  EXPECT_DOUBLE_EQ(perplexity.nll, 2);
  EXPECT_DOUBLE_EQ(perplexity.value, std::exp(2.0));
  EXPECT_DOUBLE_EQ(perplexity.error, std::exp(2.0) / std::sqrt(3.0));
}

class BaseDistributions : public testing::Test {
 protected:
  static constexpr uint32_t kVocabulary = 27;  // odd: rows have two bytes more

  std::vector<float> random_row() {
    std::normal_distribution<float> normal(0, 4);
    std::vector<float> row(kVocabulary);
    for (float& logit : row) logit = normal(random_);
    return row;
  }
  void write(const std::vector<std::vector<float>>& rows) {
    Result<BaseWriter> writer = BaseWriter::create(path_, windows_, kVocabulary);
    ASSERT_TRUE(writer.ok()) << writer.error().message;
    for (size_t row = rows.size(); row-- > 0;) ASSERT_TRUE(writer->write(row, rows[row]).ok());
    ASSERT_TRUE(writer->finish().ok());
  }

  std::mt19937 random_{7};
  pumice::test::TemporaryFolder folder_;
  std::filesystem::path path_ = folder_.path() / "base.kld";
  TextWindows windows_ = counted_windows(26, 8);
};

TEST_F(BaseDistributions, ComeBackWithinAStepOfTheirScale) {
  std::vector<std::vector<float>> rows(windows_.n_rows());
  for (std::vector<float>& row : rows) row = random_row();
  write(rows);
  const Result<BaseReader> reader = BaseReader::open(path_);
  ASSERT_TRUE(reader.ok()) << reader.error().message;
  EXPECT_EQ(reader->n_vocab(), kVocabulary);
  EXPECT_EQ(reader->windows().count(), 3u);
  EXPECT_EQ(reader->windows().tokens.back(), 23u);
  for (size_t row = 0; row < rows.size(); ++row) {
    const Result<RowDivergence> same = reader->compare(row, rows[row]);
    ASSERT_TRUE(same.ok());
    EXPECT_NEAR(same->kl, 0, 2e-4);  // half a step is 1.2e-4 of a logarithm
    EXPECT_NEAR(same->base_nll, -LogSoftmax(rows[row]).of(rows[row][windows_.target(row)]), 3e-4);
    EXPECT_NEAR(same->delta_p, 0, 2e-4);
    EXPECT_TRUE(same->same_top);
  }
}

TEST_F(BaseDistributions, TheDivergenceIsThatOfTheBase) {
  std::vector<std::vector<float>> rows(windows_.n_rows(), std::vector<float>(kVocabulary, -40.0f));
  for (std::vector<float>& row : rows) row[3] = row[4] = 0;  // one half each
  write(rows);
  const Result<BaseReader> reader = BaseReader::open(path_);
  ASSERT_TRUE(reader.ok());
  std::vector<float> other(kVocabulary, -40.0f);
  other[3] = std::log(0.9f);
  other[4] = std::log(0.1f);
  const Result<RowDivergence> row = reader->compare(1, other);
  ASSERT_TRUE(row.ok());
  EXPECT_NEAR(row->kl, 0.5 * std::log(0.5 / 0.9) + 0.5 * std::log(0.5 / 0.1), 1e-5);
  EXPECT_TRUE(row->same_top);  // both are the base's likeliest
  other[5] = 1;
  EXPECT_FALSE(reader->compare(1, other)->same_top);
}

TEST_F(BaseDistributions, AFileThatIsNoneOrTooShortIsRefused) {
  write(std::vector<std::vector<float>>(windows_.n_rows(), random_row()));
  std::ifstream file(path_, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  const auto refused = [&](const std::string& content, std::string_view says) {
    const std::filesystem::path path = folder_.path() / "bad.kld";
    ASSERT_TRUE(write_file(path, content).ok());
    const Result<BaseReader> reader = BaseReader::open(path);
    ASSERT_FALSE(reader.ok());
    EXPECT_EQ(reader.error().code, ErrorCode::kBadFile);
    EXPECT_NE(reader.error().message.find(says), std::string::npos) << reader.error().message;
  };
  refused(bytes.substr(0, 19), "too short");
  refused(bytes.substr(0, bytes.size() - 1), "shorter than its header");
  refused("x" + bytes.substr(1), "_logits_");
  const auto with = [&](size_t offset, int32_t value) {
    std::string changed = bytes;
    std::memcpy(&changed[offset], &value, sizeof(value));
    return changed;
  };
  refused(with(8, 3), "impossible");
  refused(with(12, -1), "impossible");
  refused(with(16, 0), "impossible");
  refused(with(16, 0x7fffffff), "shorter than its header");
  refused(with(12, 0x7fffffff), "shorter than its header");
  refused(with(20, 27), "outside its own vocabulary");
}

}  // namespace
}  // namespace pumice::bench
