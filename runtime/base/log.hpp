// Logging without a global: the owner of an object hands it a Logger, which forwards lines to a
// callback. The default Logger discards everything, so a library user hears nothing unless asked.
#pragma once

#include <fmt/core.h>

#include <functional>
#include <string_view>
#include <utility>

namespace pumice {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

/// Cheap to copy. The callback may be called from any thread and must be thread-safe.
class Logger {
 public:
  using Sink = std::function<void(LogLevel, std::string_view line)>;

  Logger() = default;
  explicit Logger(Sink sink, LogLevel minimum = LogLevel::kInfo)
      : sink_(std::move(sink)), minimum_(minimum) {}

  bool enabled(LogLevel level) const { return sink_ && level >= minimum_; }

  template <typename... Args>
  void log(LogLevel level, fmt::format_string<Args...> format, Args&&... args) const {
    if (enabled(level)) sink_(level, fmt::format(format, std::forward<Args>(args)...));
  }
  template <typename... Args>
  void debug(fmt::format_string<Args...> format, Args&&... args) const {
    log(LogLevel::kDebug, format, std::forward<Args>(args)...);
  }
  template <typename... Args>
  void info(fmt::format_string<Args...> format, Args&&... args) const {
    log(LogLevel::kInfo, format, std::forward<Args>(args)...);
  }
  template <typename... Args>
  void warning(fmt::format_string<Args...> format, Args&&... args) const {
    log(LogLevel::kWarning, format, std::forward<Args>(args)...);
  }

 private:
  Sink sink_;
  LogLevel minimum_ = LogLevel::kInfo;
};

}  // namespace pumice
