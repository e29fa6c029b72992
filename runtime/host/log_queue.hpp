// What the library has to say, until a host asks.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "base/log.hpp"

namespace pumice::host {

/// The newest lines. Any thread.
class LogQueue {
 public:
  static constexpr size_t kMostLines = 256;

  struct Line {
    LogLevel level = LogLevel::kInfo;
    std::string text;
    uint32_t n_dropped = 0;  ///< before it
  };

  /// A logger that fills the queue and keeps it alive.
  static Logger logger(const std::shared_ptr<LogQueue>& queue, LogLevel minimum);

  void add(LogLevel level, std::string_view text);
  /// The oldest line. False: there is none.
  bool take(Line& line);

 private:
  std::mutex mutex_;
  std::deque<Line> lines_;
  uint32_t n_dropped_ = 0;
};

}  // namespace pumice::host
