// Downloads that go on after failures.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "base/result.hpp"
#include "hub/http.hpp"
#include "hub/selection.hpp"

namespace pumice {

/// Where downloads come from, and how patient they are.
struct DownloadSource {
  HttpClient* client = nullptr;
  std::string token;      ///< empty: none
  double timeout_s = 30;  ///< without bytes for so long a connection is given up
  /// What an answer that another attempt would not change (401, 404 …) means.
  std::function<Error(int status)> refusal;
  /// Told the file's name where the server named no checksum, so that only its size was compared.
  std::function<void(const std::string& file)> unchecked = {};
};

/// A small document, at most `max_bytes` of it. Overloaded servers (429, 5xx) and broken
/// connections are tried again a few times, as late as the server asks for. Errors: `refusal`'s,
/// else kBadFile.
Result<std::string> download_text(const DownloadSource& source, const std::string& url,
                                  size_t max_bytes);

/// `file` to `target`, whose folder exists; one process at a time for one target. What comes is
/// written to a file beside it, which takes its name when all of it is there and its checksum is
/// right, and which a later call continues: its name has the checksum, so what continues is the
/// same content. Without a checksum nothing is continued from an earlier call. Attempts are
/// repeated as in download_text, and begin anew after those that brought something.
/// `progress(done_bytes)` is called often, and may go back where a server cannot continue.
/// Errors: kDoesNotFit where the disk is full; `refusal`'s; else kBadFile.
Status download_file(const DownloadSource& source, const std::string& url, const RemoteFile& file,
                     const std::filesystem::path& target,
                     const std::function<void(uint64_t)>& progress);

/// What download_file writes to until it is done.
std::filesystem::path unfinished_path(const std::filesystem::path& target, const RemoteFile& file);

/// The target of an unfinished_path; empty for any other path.
std::filesystem::path target_of_unfinished(const std::filesystem::path& path);

}  // namespace pumice
