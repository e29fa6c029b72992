#include "tools/hub_options.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <utility>

#include "base/ascii.hpp"
#include "base/folders.hpp"
#include "base/path.hpp"
#include "base/process.hpp"
#include "tools/terminal.hpp"

namespace pumice::tools {
namespace {

std::string environment(const char* name) { return environment_variable(name).value_or(""); }

/// As huggingface_hub reads its switches.
bool is_on(const std::string& text) {
  const std::string value = upper_case(text);
  return value == "1" || value == "ON" || value == "YES" || value == "TRUE";
}

/// PUMICE_NETWORK_TIMEOUT, in seconds: how long a connection may be silent.
Result<double> network_timeout_s(double otherwise) {
  const std::string text = environment("PUMICE_NETWORK_TIMEOUT");
  if (text.empty()) return otherwise;
  char* end = nullptr;
  const double seconds = std::strtod(text.c_str(), &end);
  if (*end == '\0' && seconds >= 1 && seconds <= 3600) return seconds;
  return make_error(ErrorCode::kInvalidArgument,
                    "PUMICE_NETWORK_TIMEOUT takes seconds, from 1 to 3600");
}

}  // namespace

std::string format_bytes(uint64_t bytes) {
  const auto value = static_cast<double>(bytes);
  if (value < 1e6) return fmt::format("{:.1f} kB", value / 1e3);
  if (value < 1e9) return fmt::format("{:.1f} MB", value / 1e6);
  return fmt::format("{:.2f} GB", value / 1e9);
}

void HubFlags::add_to(CLI::App& app) {
  app.add_flag("--offline", offline, "Ask no server: models come from the cache only")
      ->envname("PUMICE_OFFLINE");
}

Result<Hub> HubFlags::hub() const {
  HubOptions options;
  const std::string endpoint = environment("HF_ENDPOINT");
  if (!endpoint.empty()) options.endpoint = endpoint;
  options.token = environment("HF_TOKEN");
  options.offline = offline || is_on(environment("HF_HUB_OFFLINE"));
  PUMICE_TRY(options.timeout_s, network_timeout_s(options.timeout_s));
  const std::filesystem::path cache = cache_directory();
  if (!cache.empty()) options.directory = cache / "models";
  return Hub::create(std::move(options));
}

void HubModelFlags::add_to(CLI::App& app) {
  app.add_option("--hf,--hf-repo", name,
                 "A model from Hugging Face instead of a file, pulled when it is not in the cache: "
                 "user/repo[:quant]")
      ->type_name("NAME");
  hub.add_to(app);
}

Status HubModelFlags::resolve(std::string& model) const {
  if (name.empty()) return {};
  if (!model.empty() && model != environment("PUMICE_MODEL")) {
    return make_error(ErrorCode::kInvalidArgument,
                      "-hf and -m: there can be one model at a time; leave one out");
  }
  PUMICE_TRY(const ModelName parsed, ModelName::parse(name));
  PUMICE_TRY(const Hub opened, hub.hub());
  PullDisplay display;
  PUMICE_TRY(const CachedModel found, opened.get(parsed, display.events()));
  display.finish();
  model = to_utf8(found.files[0]);
  return {};
}

class PullDisplay::Progress {
 public:
  Progress() = default;
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  void begin(const ModelName& name, uint64_t total_bytes) {
    name_ = name.text();
    total_bytes_ = total_bytes;
  }

  ~Progress() { clear(); }

  void update(uint64_t done_bytes, uint64_t total_bytes) {
    const Clock::time_point now = Clock::now();
    if (!std::exchange(downloads_, true)) base_ = recent_ = {now, done_bytes};
    if (!is_terminal(Stream::kError)) return;
    if (now - drawn_ < kDrawInterval) return;  // pieces come much faster than anybody reads
    drawn_ = now;
    if (now - recent_.time > kRateInterval) base_ = std::exchange(recent_, {now, done_bytes});
    draw_message(fmt::format("\r\033[Kpulling {} {}", name_, note(now, done_bytes, total_bytes)));
  }

  void unchecked(const std::string& file) {
    clear();
    print_message("{}: the server names no checksum; only the size was compared\n", file);
  }

  void wait() const { print_message("{} is being pulled by another process; waiting\n", name_); }

  void finish() {
    if (!downloads_) return;
    clear();
    print_message("pulled {} ({})\n", name_, format_bytes(total_bytes_));
  }

 private:
  void clear() {
    if (drawn_ != Clock::time_point()) draw_message("\r\033[K");
    drawn_ = {};
  }

  using Clock = std::chrono::steady_clock;
  static constexpr auto kDrawInterval = std::chrono::milliseconds(100);
  static constexpr auto kRateInterval = std::chrono::seconds(3);

  struct Sample {
    Clock::time_point time;
    uint64_t done_bytes = 0;
  };

  /// The rate is that of the last seconds: what was there before is read much faster.
  std::string note(Clock::time_point now, uint64_t done_bytes, uint64_t total_bytes) const {
    const double share = static_cast<double>(done_bytes) / static_cast<double>(total_bytes);
    std::string text = fmt::format("{:3.0f}%  {} of {}", 100 * share, format_bytes(done_bytes),
                                   format_bytes(total_bytes));
    const double passed_s = std::chrono::duration<double>(now - base_.time).count();
    if (passed_s < 1 || done_bytes <= base_.done_bytes) return text;
    const double rate = static_cast<double>(done_bytes - base_.done_bytes) / passed_s;
    const double left_s = static_cast<double>(total_bytes - done_bytes) / rate;
    return text + fmt::format(", {}/s, {} left", format_bytes(static_cast<uint64_t>(rate)),
                              format_seconds(left_s));
  }

  static std::string format_seconds(double seconds) {
    const auto n = static_cast<uint64_t>(seconds + 0.5);
    if (n < 60) return fmt::format("{} s", n);
    if (n < 3600) return fmt::format("{} min {:02} s", n / 60, n % 60);
    return fmt::format("{} h {:02} min", n / 3600, n / 60 % 60);
  }

  std::string name_;
  uint64_t total_bytes_ = 0;
  bool downloads_ = false;  // not all was in the cache
  Clock::time_point drawn_;
  Sample base_;    // the rate counts from here,
  Sample recent_;  // and from here next
};

PullDisplay::PullDisplay() : progress_(std::make_unique<Progress>()) {}
PullDisplay::~PullDisplay() = default;

PullEvents PullDisplay::events() {
  Progress* const progress = progress_.get();
  return {
      .begun = [progress](const ModelName& name, uint64_t total) { progress->begin(name, total); },
      .progress = [progress](uint64_t done, uint64_t total) { progress->update(done, total); },
      .waiting = [progress] { progress->wait(); },
      .unchecked = [progress](const std::string& file) { progress->unchecked(file); }};
}

void PullDisplay::finish() { progress_->finish(); }

}  // namespace pumice::tools
