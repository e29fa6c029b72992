#include "host/log_queue.hpp"

#include <utility>

namespace pumice::host {

Logger LogQueue::logger(const std::shared_ptr<LogQueue>& queue, LogLevel minimum) {
  return Logger([queue](LogLevel level, std::string_view line) { queue->add(level, line); },
                minimum);
}

void LogQueue::add(LogLevel level, std::string_view text) {
  const std::lock_guard lock(mutex_);
  if (lines_.size() == kMostLines) {
    n_dropped_ += lines_.front().n_dropped + 1;
    lines_.pop_front();
  }
  lines_.push_back({.level = level, .text = std::string(text)});
}

bool LogQueue::take(Line& line) {
  const std::lock_guard lock(mutex_);
  if (lines_.empty()) return false;
  line = std::move(lines_.front());
  lines_.pop_front();
  line.n_dropped = std::exchange(n_dropped_, 0);
  return true;
}

}  // namespace pumice::host
