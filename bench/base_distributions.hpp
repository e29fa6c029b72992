// What a model predicted at every scored position of a text, kept in a file so that other
// quantisations of it can be compared: the file that llama.cpp's perplexity tool writes with
// --kl-divergence-base and reads with --kl-divergence, so either may have made it.
//
// Little-endian: "_logits_", three int32 (window_tokens, n_vocab, number of windows), the windows'
// tokens as int32, then for each scored row a float scale, a float ln of the least probability
// kept, n_vocab uint16 q and, for an odd n_vocab, two bytes: ln p = least + scale q. Logits more
// than 16 below the row's largest count as that.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>

#include "base/output_file.hpp"
#include "base/result.hpp"
#include "bench/perplexity.hpp"
#include "format/input_file.hpp"

namespace pumice::bench {

/// Threads: any number may write rows at once.
class BaseWriter {
 public:
  /// Errors: OutputFile's; kInvalidArgument for what is no regular file. Nothing is there before
  /// `finish`.
  static Result<BaseWriter> create(const std::filesystem::path& path, const TextWindows& windows,
                                   uint32_t n_vocab);
  Status write(size_t row, std::span<const float> logits);
  Status finish() { return file_.finish(); }

 private:
  BaseWriter(OutputFile file, uint64_t rows_at)
      : file_(std::move(file)), rows_at_(rows_at), mutex_(std::make_unique<std::mutex>()) {}

  OutputFile file_;
  uint64_t rows_at_;
  std::unique_ptr<std::mutex> mutex_;  // of file_
};

/// How far a row is from the base's.
struct RowDivergence {
  double kl = 0;         ///< Σ p_base ln(p_base / p), in nats
  double base_nll = 0;   ///< of the target
  double delta_p = 0;    ///< probability of the target less the base's
  bool same_top = true;  ///< the likeliest token is the same
};

/// Threads: any number may compare rows at once.
class BaseReader {
 public:
  /// Errors (kBadFile): the file is no such file, or is not as long as it says.
  static Result<BaseReader> open(const std::filesystem::path& path);

  /// Of the text that it was made from, without BOS.
  const TextWindows& windows() const { return windows_; }
  uint32_t n_vocab() const { return n_vocab_; }
  Result<RowDivergence> compare(size_t row, std::span<const float> logits) const;

 private:
  BaseReader(InputFile file, std::string name) : file_(std::move(file)), name_(std::move(name)) {}

  InputFile file_;
  std::string name_;
  TextWindows windows_;
  uint32_t n_vocab_ = 0;
  uint64_t rows_at_ = 0;
};

}  // namespace pumice::bench
