#include "hub/download.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <span>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/file.hpp"
#include "base/file_error.hpp"
#include "base/path.hpp"
#include "base/printable.hpp"
#include "hub/sha256.hpp"

namespace pumice {
namespace {

namespace fs = std::filesystem;

constexpr int kMaxAttempts = 4;         // in a row that bring nothing
constexpr double kFirstDelay_s = 0.25;  // doubled each time
constexpr double kMaxDelay_s = 120;     // what a server may ask for
constexpr double kTextTimeouts = 4;     // all of a small document within so many timeouts
constexpr uint64_t kSomeBytes = 1 << 20;
constexpr size_t kReadBytes = 1 << 20;
constexpr size_t kDigitsInName = 12;
constexpr std::string_view kUnchecked = "unchecked";
constexpr std::string_view kUnfinished = ".part";

/// Counts failed attempts and waits between them.
class Attempts {
 public:
  void brought_something() { n_failed_ = 0; }

  /// Waits until it is time for the next one. Errors (kBadFile, with `reason`): too many failed.
  Status wait(const HttpResponse& response, const std::string& reason) {
    const double delay_s = response.retry_after_s.value_or(kFirstDelay_s * (1 << n_failed_));
    if (++n_failed_ >= kMaxAttempts) {
      return make_error(ErrorCode::kBadFile, "{} ({} attempts)", reason, n_failed_);
    }
    if (delay_s > kMaxDelay_s) {
      return make_error(ErrorCode::kBadFile, "{}; the server asks to try again in {} s", reason,
                        delay_s);
    }
    std::this_thread::sleep_for(std::chrono::duration<double>(delay_s));
    return {};
  }

 private:
  int n_failed_ = 0;
};

bool is_success(int status) { return status >= 200 && status < 300; }

/// Whether the same request may get another answer later.
bool is_transient(int status) { return status == 408 || status == 429 || status >= 500; }

std::string reason_of(const HttpResponse& response) {
  if (!response.failure.empty()) return response.failure;
  if (response.status == 429) return "too many requests (HTTP 429)";
  return fmt::format("the server answered HTTP {}", response.status);
}

bool is_sha256(std::string_view text) {
  return text.size() == 64 && text.find_first_not_of("0123456789abcdef") == text.npos;
}

/// The content of an entity tag, "abc" of "\"abc\"".
std::string_view unquoted(std::string_view etag) {
  if (etag.size() < 2 || etag.front() != '"' || etag.back() != '"') return etag;
  return etag.substr(1, etag.size() - 2);
}

/// Where the piece that a Content-Range describes begins and of how much it is.
struct Piece {
  uint64_t first = 0;
  uint64_t total = 0;
};
bool describes(std::string_view content_range, const Piece& piece) {
  return content_range == fmt::format("bytes {}-{}/{}", piece.first, piece.total - 1, piece.total);
}

class FileDownload {
 public:
  FileDownload(const DownloadSource& source, const std::string& url, const RemoteFile& file,
               const fs::path& target, const std::function<void(uint64_t)>& progress)
      : source_(source),
        url_(url),
        file_(file),
        target_(target),
        path_(unfinished_path(target, file)),
        progress_(progress),
        sha256_(file.sha256) {}
  FileDownload(const FileDownload&) = delete;
  FileDownload& operator=(const FileDownload&) = delete;

  Status run() {
    PUMICE_TRY_STATUS(open());
    bool may_begin_anew = done_ > 0;  // what was there before may be what is wrong
    for (;;) {
      PUMICE_TRY_STATUS(complete());
      const std::string found = Sha256(hash_).finish();
      if (sha256_.empty() && source_.unchecked) source_.unchecked(file_.path);
      if (sha256_.empty() || found == sha256_) return finish();
      PUMICE_TRY_STATUS(begin_anew());
      if (!std::exchange(may_begin_anew, false)) {
        remove_file(path_);
        return make_error(ErrorCode::kBadFile,
                          "{}: the checksum of the download is not the server's ({}… instead of "
                          "{}…), so it was deleted; try again later",
                          name(), found.substr(0, kDigitsInName), sha256_.substr(0, kDigitsInName));
      }
    }
  }

 private:
  std::string name() const { return printable(file_.path); }
  Error cannot_write(std::error_code error) const {
    return pumice::cannot_write(to_utf8(path_), error);
  }

  /// What an earlier call left counts, if its content is known to be this file's.
  Status open() {
    remove_other_versions();
    std::error_code error;
    part_ = File::open(path_, File::Mode::kReadWrite, error);
    if (error) return cannot_write(error);
    const uint64_t n_bytes = part_.info(error).size_bytes;
    if (error) return cannot_write(error);
    if (sha256_.empty() || n_bytes > file_.size_bytes) return begin_anew();
    std::vector<std::byte> piece(kReadBytes);
    while (done_ < n_bytes) {
      const size_t n = part_.read_at(done_, piece, error);
      if (error || n == 0) return begin_anew();
      add(std::span(piece).first(n));
    }
    return {};
  }

  /// Of versions of the file that the server no longer has.
  void remove_other_versions() const {
    std::error_code error;
    for (fs::directory_iterator entry(target_.parent_path(), error), end; !error && entry != end;
         entry.increment(error)) {
      const bool is_ours = target_of_unfinished(entry->path()) == target_;
      if (is_ours && entry->path() != path_) remove_file(entry->path());
    }
  }

  void add(std::span<const std::byte> bytes) {
    hash_.add(bytes);
    done_ += bytes.size();
    progress_(done_);
  }

  Status begin_anew() {
    hash_ = {};
    done_ = 0;
    if (const std::error_code error = part_.resize(0)) return cannot_write(error);
    return {};
  }

  /// Attempts until all bytes are there.
  Status complete() {
    Attempts attempts;
    uint64_t most = done_;
    while (done_ < file_.size_bytes) {
      if (sha256_.empty() && etag_.empty() && done_ > 0) PUMICE_TRY_STATUS(begin_anew());
      complaint_.clear();
      const HttpRequest request{.url = url_,
                                .token = source_.token,
                                .range = done_ > 0 ? fmt::format("{}-", done_) : "",
                                .if_range = done_ > 0 && sha256_.empty() ? etag_ : "",
                                .stall_s = source_.timeout_s};
      Result<HttpResponse> got = source_.client->get(
          request, [this](const HttpResponse& response) { return begin(response); },
          [this](std::span<const std::byte> bytes) { return write(bytes); });
      PUMICE_TRY_STATUS(failed_);
      PUMICE_TRY(const HttpResponse response, std::move(got));
      if (done_ == file_.size_bytes) return {};
      if (done_ >= most + kSomeBytes) attempts.brought_something();
      most = std::max(most, done_);
      PUMICE_TRY_STATUS(next_attempt(response, attempts));
    }
    return {};
  }

  Status next_attempt(const HttpResponse& response, Attempts& attempts) {
    std::string reason = complaint_.empty() ? reason_of(response) : complaint_;
    if (response.failure.empty() && complaint_.empty()) {
      if (response.status == 416) {
        PUMICE_TRY_STATUS(begin_anew());  // it has less than it listed, or cannot continue
      } else if (is_success(response.status)) {
        reason = "the server closed the connection early";
      } else if (!is_transient(response.status)) {
        return source_.refusal(response.status);
      }
    }
    const Status status = attempts.wait(response, reason);
    if (status.ok()) return {};
    return make_error(status.error().code,
                      "{}: {} of {} bytes arrived: {}; run the same command to continue", name(),
                      done_, file_.size_bytes, status.error().message);
  }

  /// Before the body: whether it continues what is there, or everything comes again.
  bool begin(const HttpResponse& response) {
    const std::string_view linked = unquoted(response.linked_etag);
    if (sha256_.empty() && is_sha256(linked)) sha256_ = linked;
    const bool continues = response.status == 206;
    if (continues &&
        (done_ == 0 || !describes(response.content_range, {done_, file_.size_bytes}))) {
      complaint_ = "the server sent a different part than requested";
      failed_ = begin_anew();  // perhaps it can send everything
      return false;
    }
    const uint64_t expected = file_.size_bytes - (continues ? done_ : 0);
    if (response.content_length && *response.content_length != expected) {
      complaint_ = fmt::format("the server sent {} bytes, its list says {}",
                               *response.content_length, expected);
      return false;
    }
    if (!continues && done_ > 0) failed_ = begin_anew();
    etag_ = response.etag;
    return failed_.ok();
  }

  bool write(std::span<const std::byte> bytes) {
    if (bytes.size() > file_.size_bytes - done_) {
      complaint_ = "the server sent more than its list says";
      failed_ = begin_anew();
      return false;
    }
    std::error_code error;
    part_.write_at(done_, bytes, error);
    if (error) {
      failed_ = cannot_write(error);
      return false;
    }
    add(bytes);
    return true;
  }

  Status finish() {
    std::error_code error = part_.sync();
    if (!error) error = replace_file(path_, target_);
    if (error) return cannot_write(error);
    return {};
  }

  const DownloadSource& source_;
  const std::string& url_;
  const RemoteFile& file_;
  const fs::path& target_;
  const fs::path path_;
  const std::function<void(uint64_t)>& progress_;
  File part_;
  Sha256 hash_;  // of the first done_ bytes
  uint64_t done_ = 0;
  std::string sha256_;     // empty: not known (yet)
  std::string etag_;       // of what the last attempt brought
  std::string complaint_;  // why the last attempt was ended by us
  Status failed_;          // what no attempt would mend
};

}  // namespace

Result<std::string> download_text(const DownloadSource& source, const std::string& url,
                                  size_t max_bytes) {
  const HttpRequest request{.url = url,
                            .token = source.token,
                            .stall_s = source.timeout_s,
                            .limit_s = kTextTimeouts * source.timeout_s};
  for (Attempts attempts;;) {
    std::string text;
    bool too_large = false;
    const auto begin = [](const HttpResponse&) { return true; };
    const auto body = [&](std::span<const std::byte> bytes) {
      too_large = bytes.size() > max_bytes - text.size();
      if (!too_large) text.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
      return !too_large;
    };
    PUMICE_TRY(const HttpResponse response, source.client->get(request, begin, body));
    if (too_large) {
      return make_error(ErrorCode::kBadFile, "the server's answer is larger than {} MiB",
                        max_bytes >> 20);
    }
    if (response.unreachable) {
      return make_error(ErrorCode::kBadFile, "{}; is there a network (or a proxy: https_proxy)?",
                        response.failure);
    }
    if (response.failure.empty() && is_success(response.status)) return text;
    if (response.failure.empty() && !is_transient(response.status)) {
      return source.refusal(response.status);
    }
    PUMICE_TRY_STATUS(attempts.wait(response, reason_of(response)));
  }
}

Status download_file(const DownloadSource& source, const std::string& url, const RemoteFile& file,
                     const fs::path& target, const std::function<void(uint64_t)>& progress) {
  return FileDownload(source, url, file, target, progress).run();
}

fs::path unfinished_path(const fs::path& target, const RemoteFile& file) {
  const std::string version =
      file.sha256.empty() ? std::string(kUnchecked) : file.sha256.substr(0, kDigitsInName);
  return from_utf8(to_utf8(target) + "." + version + std::string(kUnfinished));
}

fs::path target_of_unfinished(const fs::path& path) {
  const std::string text = to_utf8(path);
  if (!text.ends_with(kUnfinished)) return {};
  const std::string versioned = text.substr(0, text.size() - kUnfinished.size());
  const size_t dot = versioned.rfind('.');
  if (dot == versioned.npos) return {};
  const std::string version = versioned.substr(dot + 1);
  const bool is_digits = version.size() == kDigitsInName &&
                         version.find_first_not_of("0123456789abcdef") == version.npos;
  return is_digits || version == kUnchecked ? from_utf8(versioned.substr(0, dot)) : fs::path();
}

}  // namespace pumice
