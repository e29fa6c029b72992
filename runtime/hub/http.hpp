// HTTP for downloads: GET, over libcurl, which is opened at run time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/result.hpp"

namespace pumice {

struct HttpRequest {
  std::string url;
  std::string token;     ///< bearer token; goes to the host of `url` and never to another
  std::string range;     ///< as "1000-"; empty: everything
  std::string if_range;  ///< entity tag that `range` counts for; empty: whatever there is now
  double stall_s = 30;   ///< without bytes for so long it has failed
  double limit_s = 0;    ///< for everything; 0: none
};

/// The headers of an answer that is no redirection.
struct HttpResponse {
  int status = 0;  ///< 0: there was no answer
  std::optional<uint64_t> content_length;
  std::string content_range;
  std::string etag;
  std::string linked_etag;  ///< X-Linked-Etag of the answer or of a redirection to it
  std::optional<double> retry_after_s;
  /// Why the connection failed or broke, if it did; then the body is not whole. One line.
  std::string failure;
  bool unreachable = false;  ///< `failure` is that there is no such host, or nobody listens there
};

/// One request at a time; connections are kept between them. Proxies are those of the environment
/// (https_proxy, no_proxy).
class HttpClient {
 public:
  /// Errors: kInternal where libcurl cannot be opened or is too old. Not thread-safe: libcurl's
  /// first initialisation.
  static Result<HttpClient> open();
  HttpClient(HttpClient&&) noexcept;
  HttpClient& operator=(HttpClient&&) noexcept;
  ~HttpClient();

  /// `begin` is called once for an answer of status 200 to 299, before its body comes through
  /// `body` in pieces; either ends the request by returning false, as a `failure`. Bodies of
  /// other answers are thrown away. Redirections are followed, never from https to http. Errors:
  /// kBadFile where a certificate cannot be verified or a redirection is refused: trying again
  /// would not help.
  Result<HttpResponse> get(const HttpRequest& request,
                           const std::function<bool(const HttpResponse&)>& begin,
                           const std::function<bool(std::span<const std::byte>)>& body);

 private:
  struct Curl;
  explicit HttpClient(std::unique_ptr<Curl> curl);
  std::unique_ptr<Curl> curl_;
};

/// `text` with everything escaped that is neither unreserved in URLs nor a slash.
std::string escape_url_path(std::string_view text);

/// Whether `url` is http:// or https:// with a host and without user, query or fragment.
bool is_plain_http_url(std::string_view url);

}  // namespace pumice
