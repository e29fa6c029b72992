#include "bench/base_distributions.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <string_view>

#include "base/check.hpp"
#include "base/path.hpp"

namespace pumice::bench {
namespace {

static_assert(std::endian::native == std::endian::little, "the file is little-endian");

constexpr std::string_view kMagic = "_logits_";
constexpr float kRange = 16;  // of logits that are told apart
constexpr float kSteps = 65535;

struct Header {
  std::array<char, 8> magic = {};
  int32_t window_tokens = 0;
  int32_t n_vocab = 0;
  int32_t n_windows = 0;
};
static_assert(sizeof(Header) == 20);

struct RowHeader {
  float scale = 0;
  float least = 0;
};

uint64_t row_bytes(uint64_t n_vocab) { return sizeof(RowHeader) + (n_vocab + 1) / 2 * 4; }

}  // namespace

Result<BaseWriter> BaseWriter::create(const std::filesystem::path& path, const TextWindows& windows,
                                      uint32_t n_vocab) {
  PUMICE_TRY(OutputFile file, OutputFile::create(path, OutputFile::Existing::kRefuse));
  if (!file.is_regular()) {
    return make_error(ErrorCode::kInvalidArgument,
                      "{}: not a regular file, which distributions need", to_utf8(path));
  }
  Header header{.window_tokens = static_cast<int32_t>(windows.window_tokens),
                .n_vocab = static_cast<int32_t>(n_vocab),
                .n_windows = static_cast<int32_t>(windows.count())};
  std::ranges::copy(kMagic, header.magic.begin());
  const size_t n_tokens = size_t{windows.count()} * windows.window_tokens;
  const auto tokens = std::as_bytes(std::span(windows.tokens).first(n_tokens));
  PUMICE_TRY_STATUS(file.write(std::as_bytes(std::span(&header, 1))));
  PUMICE_TRY_STATUS(file.write(tokens));
  return BaseWriter(std::move(file), sizeof(header) + tokens.size());
}

Status BaseWriter::write(size_t row, std::span<const float> logits) {
  const LogSoftmax softmax(logits);
  const float least = std::max(*std::ranges::min_element(logits), softmax.max() - kRange);
  const RowHeader header{.scale = (softmax.max() - least) / kSteps,
                         .least = static_cast<float>(softmax.of(least))};
  std::vector<std::byte> bytes(row_bytes(logits.size()));
  std::memcpy(bytes.data(), &header, sizeof(header));
  for (size_t i = 0; i < logits.size(); ++i) {
    const float steps = header.scale > 0 ? (logits[i] - least) / header.scale : 0;
    const auto q = static_cast<uint16_t>(std::lround(std::clamp(steps, 0.0f, kSteps)));
    std::memcpy(&bytes[sizeof(header) + 2 * i], &q, sizeof(q));
  }
  const std::lock_guard lock(*mutex_);
  return file_.write_at(rows_at_ + row * bytes.size(), bytes);
}

Result<BaseReader> BaseReader::open(const std::filesystem::path& path) {
  PUMICE_TRY(InputFile file, InputFile::open(path));
  BaseReader reader(std::move(file), to_utf8(path));
  const auto bad = [&](std::string_view what) {
    return make_error(ErrorCode::kBadFile, "{}: {}", reader.name_, what);
  };
  Header header;
  const uint64_t n_bytes = reader.file_.size_bytes();
  if (n_bytes < sizeof(header)) return bad("is not a file of distributions (it is too short)");
  PUMICE_TRY_STATUS(reader.file_.read(0, std::as_writable_bytes(std::span(&header, 1))));
  if (std::string_view(header.magic.data(), header.magic.size()) != kMagic) {
    return bad("is not a file of distributions (it does not begin with \"_logits_\")");
  }
  if (header.window_tokens < static_cast<int32_t>(TextWindows::kLeastWindow) ||
      header.n_vocab <= 0 || header.n_windows <= 0) {
    return bad("has impossible sizes in its header");
  }
  TextWindows& windows = reader.windows_;
  windows.window_tokens = static_cast<uint32_t>(header.window_tokens);
  reader.n_vocab_ = static_cast<uint32_t>(header.n_vocab);
  const uint64_t n_tokens =
      uint64_t{windows.window_tokens} * static_cast<uint32_t>(header.n_windows);
  const uint64_t n_rows =
      uint64_t{windows.rows_per_window()} * static_cast<uint32_t>(header.n_windows);
  reader.rows_at_ = sizeof(header) + n_tokens * sizeof(TokenId);
  // Each factor is below 2^32, so only their product can be too large to count.
  const uint64_t a_row = row_bytes(reader.n_vocab_);
  if (n_bytes < reader.rows_at_ || (n_bytes - reader.rows_at_) / a_row < n_rows) {
    return bad("is shorter than its header says");
  }
  windows.tokens.resize(n_tokens);
  PUMICE_TRY_STATUS(
      reader.file_.read(sizeof(header), std::as_writable_bytes(std::span(windows.tokens))));
  if (std::ranges::any_of(windows.tokens, [&](TokenId id) { return id >= reader.n_vocab_; })) {
    return bad("has tokens outside its own vocabulary");
  }
  return reader;
}

Result<RowDivergence> BaseReader::compare(size_t row, std::span<const float> logits) const {
  PUMICE_CHECK(logits.size() == n_vocab_, "logits of another vocabulary");
  std::vector<std::byte> bytes(row_bytes(n_vocab_));
  PUMICE_TRY_STATUS(file_.read(rows_at_ + row * bytes.size(), bytes));
  RowHeader header;
  std::memcpy(&header, bytes.data(), sizeof(header));
  if (!std::isfinite(header.scale) || !std::isfinite(header.least) || header.scale < 0) {
    return make_error(ErrorCode::kBadFile, "{}: row {} is damaged", name_, row);
  }
  std::vector<uint16_t> quants(n_vocab_);
  std::memcpy(quants.data(), &bytes[sizeof(header)], quants.size() * sizeof(uint16_t));
  const auto base = [&](size_t i) {
    return static_cast<double>(header.least) + static_cast<double>(header.scale) * quants[i];
  };
  const LogSoftmax softmax(logits);
  RowDivergence row_divergence;
  for (size_t i = 0; i < quants.size(); ++i) {
    const double ln_base = base(i);
    if (ln_base > -kRange) {
      row_divergence.kl += std::exp(ln_base) * (ln_base - softmax.of(logits[i]));
    }
  }
  const TokenId target = windows_.target(row);
  row_divergence.base_nll = -base(target);
  row_divergence.delta_p = std::exp(softmax.of(logits[target])) - std::exp(base(target));
  // Tokens beyond the largest by less than a step are as likely to the base.
  const auto top = static_cast<size_t>(std::ranges::max_element(logits) - logits.begin());
  row_divergence.same_top = quants[top] == *std::ranges::max_element(quants);
  return row_divergence;
}

}  // namespace pumice::bench
