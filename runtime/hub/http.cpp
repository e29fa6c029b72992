#include "hub/http.hpp"

#include <curl/curl.h>
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <system_error>
#include <utility>
#include <vector>

#include "base/ascii.hpp"
#include "base/dynamic_library.hpp"
#include "base/printable.hpp"
#include "base/process.hpp"

namespace pumice {
namespace {

constexpr int kMaxRedirections = 8;
constexpr long kLeastBytesPerSecond = 100;  // slower than that is standing still
constexpr size_t kMaxHeaderBytes = 4096;    // of those that are kept
constexpr size_t kMaxIgnoredBytes = 1 << 20;

struct Functions {
  decltype(&::curl_global_init) global_init = nullptr;
  decltype(&::curl_easy_init) easy_init = nullptr;
  decltype(&::curl_easy_reset) easy_reset = nullptr;
  decltype(&::curl_easy_setopt) easy_setopt = nullptr;
  decltype(&::curl_easy_perform) easy_perform = nullptr;
  decltype(&::curl_easy_getinfo) easy_getinfo = nullptr;
  decltype(&::curl_easy_cleanup) easy_cleanup = nullptr;
  decltype(&::curl_easy_strerror) easy_strerror = nullptr;
  decltype(&::curl_slist_append) slist_append = nullptr;
  decltype(&::curl_slist_free_all) slist_free_all = nullptr;
};

template <typename Signature>
bool load(const DynamicLibrary& library, const char* name, Signature*& function) {
  function = library.function<Signature>(name);
  return function != nullptr;
}

bool load_all(const DynamicLibrary& library, Functions& f) {
  return load(library, "curl_global_init", f.global_init) &&
         load(library, "curl_easy_init", f.easy_init) &&
         load(library, "curl_easy_reset", f.easy_reset) &&
         load(library, "curl_easy_setopt", f.easy_setopt) &&
         load(library, "curl_easy_perform", f.easy_perform) &&
         load(library, "curl_easy_getinfo", f.easy_getinfo) &&
         load(library, "curl_easy_cleanup", f.easy_cleanup) &&
         load(library, "curl_easy_strerror", f.easy_strerror) &&
         load(library, "curl_slist_append", f.slist_append) &&
         load(library, "curl_slist_free_all", f.slist_free_all);
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const size_t first = text.find_first_not_of(kSpace);
  if (first == text.npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

/// "https://host:port" of a URL, with the port that its scheme implies; empty for other URLs.
/// The same text for two URLs means the same server. Also empty for URLs that programs read
/// differently (with a user, backslashes or control characters).
std::string origin_of(std::string_view url) {
  const size_t scheme_end = url.find("://");
  if (scheme_end == url.npos) return {};
  const std::string scheme = lower_case(url.substr(0, scheme_end));
  if (scheme != "http" && scheme != "https") return {};
  const std::string_view behind_scheme = url.substr(scheme_end + 3);
  const std::string_view host = behind_scheme.substr(0, behind_scheme.find_first_of("/?#"));
  const bool is_clear = std::ranges::all_of(
      host, [](char c) { return c > 0x20 && c < 0x7F && c != '@' && c != '\\'; });
  if (host.empty() || !is_clear) return {};
  const size_t colon = host.rfind(':');
  const bool has_port = colon != host.npos && host.find(']', colon) == host.npos;
  const std::string implied = scheme == "https" ? ":443" : ":80";
  return fmt::format("{}://{}{}", scheme, lower_case(host), has_port ? "" : implied);
}

/// What one transfer leaves, filled by libcurl's callbacks.
struct Transfer {
  const std::function<bool(const HttpResponse&)>& begin;
  const std::function<bool(std::span<const std::byte>)>& body;
  HttpResponse response;
  bool begun = false;
  bool refused = false;  ///< by begin
  size_t n_ignored = 0;

  bool wanted() const { return response.status >= 200 && response.status < 300; }

  bool begin_once() {
    if (!begun) refused = !begin(response);
    begun = true;
    return !refused;
  }

  void add_header(std::string_view line) {
    if (line.starts_with("HTTP/")) {  // the answer proper follows those of proxies and 100
      std::string linked_etag = std::move(response.linked_etag);
      response = {};
      response.linked_etag = std::move(linked_etag);
      const size_t space = line.find(' ');
      const std::string_view code = space == line.npos ? "" : line.substr(space + 1, 3);
      response.status = static_cast<int>(parse_whole<uint64_t>(code).value_or(0));
      return;
    }
    const size_t colon = line.find(':');
    if (colon == line.npos || line.size() > kMaxHeaderBytes) return;
    const std::string name = lower_case(line.substr(0, colon));
    const std::string_view value = trimmed(line.substr(colon + 1));
    if (name == "content-length") response.content_length = parse_whole<uint64_t>(value);
    if (name == "content-range") response.content_range = value;
    if (name == "etag") response.etag = value;
    if (name == "x-linked-etag") response.linked_etag = value;
    if (name == "retry-after") {
      const std::optional<uint64_t> seconds =
          parse_whole<uint64_t>(value);  // dates are not used by hubs
      if (seconds) response.retry_after_s = static_cast<double>(*seconds);
    }
  }

  bool add_body(std::span<const std::byte> bytes) {
    if (!wanted()) {
      n_ignored += bytes.size();
      return n_ignored <= kMaxIgnoredBytes;
    }
    return begin_once() && body(bytes);
  }
};

size_t on_header(char* data, size_t size, size_t n, void* transfer) {
  static_cast<Transfer*>(transfer)->add_header({data, size * n});
  return size * n;
}

size_t on_body(char* data, size_t size, size_t n, void* transfer) {
  const std::span<const char> bytes(data, size * n);
  return static_cast<Transfer*>(transfer)->add_body(std::as_bytes(bytes)) ? size * n : 0;
}

bool is_redirection(int status) {
  return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

bool is_certificate_error(CURLcode code) {
  return code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_SSL_CACERT_BADFILE ||
         code == CURLE_SSL_ISSUER_ERROR || code == CURLE_SSL_CERTPROBLEM;
}

bool is_unreachable(CURLcode code) {
  return code == CURLE_COULDNT_RESOLVE_HOST || code == CURLE_COULDNT_RESOLVE_PROXY ||
         code == CURLE_COULDNT_CONNECT;
}

}  // namespace

/// The library stays open to the end of the process: what it started may need it there.
struct HttpClient::Curl {
  Functions f;
  CURL* handle = nullptr;
  char error_text[CURL_ERROR_SIZE] = {};

  Curl() = default;
  Curl(const Curl&) = delete;
  Curl& operator=(const Curl&) = delete;
  ~Curl() {
    if (handle != nullptr) f.easy_cleanup(handle);
  }

  template <typename T>
  bool set(CURLoption option, T value) {
    return f.easy_setopt(handle, option, value) == CURLE_OK;
  }

  bool set_request(const HttpRequest& request, const std::string& url, Transfer& transfer) {
    f.easy_reset(handle);
    error_text[0] = '\0';
    const auto milliseconds = [](double seconds) { return std::lround(seconds * 1e3); };
    bool ok = set(CURLOPT_URL, url.c_str()) && set(CURLOPT_PROTOCOLS_STR, "http,https") &&
              set(CURLOPT_NOSIGNAL, 1L) && set(CURLOPT_ERRORBUFFER, error_text) &&
              set(CURLOPT_USERAGENT, "pumice") &&
              set(CURLOPT_CONNECTTIMEOUT_MS, milliseconds(request.stall_s)) &&
              set(CURLOPT_LOW_SPEED_LIMIT, kLeastBytesPerSecond) &&
              set(CURLOPT_LOW_SPEED_TIME, std::max(1L, std::lround(request.stall_s))) &&
              set(CURLOPT_TIMEOUT_MS, milliseconds(request.limit_s)) &&
              set(CURLOPT_HEADERFUNCTION, &on_header) && set(CURLOPT_HEADERDATA, &transfer) &&
              set(CURLOPT_WRITEFUNCTION, &on_body) && set(CURLOPT_WRITEDATA, &transfer);
    if (!request.range.empty()) ok = ok && set(CURLOPT_RANGE, request.range.c_str());
    return ok;
  }

  /// Headers live until libcurl has read them.
  CURLcode perform(const std::vector<std::string>& headers) {
    curl_slist* list = nullptr;
    for (const std::string& header : headers) {
      curl_slist* const longer = f.slist_append(list, header.c_str());
      if (longer != nullptr) list = longer;
    }
    set(CURLOPT_HTTPHEADER, list);
    const WithoutBrokenPipes no_signal;
    const CURLcode code = f.easy_perform(handle);
    f.slist_free_all(list);
    return code;
  }

  std::string describe(CURLcode code) const {
    return printable(error_text[0] != '\0' ? error_text : f.easy_strerror(code), 160);
  }

  std::string redirection() const {
    char* url = nullptr;
    f.easy_getinfo(handle, CURLINFO_REDIRECT_URL, &url);
    return url != nullptr ? url : "";
  }
};

HttpClient::HttpClient(std::unique_ptr<Curl> curl) : curl_(std::move(curl)) {}
HttpClient::HttpClient(HttpClient&&) noexcept = default;
HttpClient& HttpClient::operator=(HttpClient&&) noexcept = default;
HttpClient::~HttpClient() = default;

Result<HttpClient> HttpClient::open() {
  DynamicLibrary library = DynamicLibrary::open(
      {"libcurl.so.4", "libcurl-gnutls.so.4", "libcurl-x64.dll", "libcurl.dll"});
  if (!library.is_open()) {
    return make_error(ErrorCode::kInternal,
                      "downloads need libcurl, which is not installed (libcurl.so.4; on Windows "
                      "libcurl-x64.dll beside the program)");
  }
  auto curl = std::make_unique<Curl>();
  const bool is_whole = load_all(library, curl->f);
  library.keep_open();
  if (!is_whole || curl->f.global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK ||
      (curl->handle = curl->f.easy_init()) == nullptr) {
    return make_error(ErrorCode::kInternal, "libcurl cannot be used: it lacks functions");
  }
  return HttpClient(std::move(curl));
}

Result<HttpResponse> HttpClient::get(const HttpRequest& request,
                                     const std::function<bool(const HttpResponse&)>& begin,
                                     const std::function<bool(std::span<const std::byte>)>& body) {
  const std::string own_origin = origin_of(request.url);
  std::string url = request.url;
  Transfer transfer{.begin = begin, .body = body, .response = {}};
  for (int i = 0; i <= kMaxRedirections; ++i) {
    const std::string origin = origin_of(url);
    if (!curl_->set_request(request, url, transfer)) {
      return make_error(ErrorCode::kInternal, "libcurl is older than 7.85");
    }
    std::vector<std::string> headers;
    if (!request.token.empty() && origin == own_origin) {
      headers.push_back("Authorization: Bearer " + request.token);
    }
    if (!request.if_range.empty()) headers.push_back("If-Range: " + request.if_range);
    const CURLcode code = curl_->perform(headers);
    HttpResponse& response = transfer.response;
    if (is_certificate_error(code)) {
      return make_error(ErrorCode::kBadFile,
                        "{}: {}; are certificates installed (ca-certificates) and the clock right?",
                        printable(origin), curl_->describe(code));
    }
    if (code != CURLE_OK) {
      response.failure = fmt::format("{}: {}", printable(origin), curl_->describe(code));
      response.unreachable = is_unreachable(code);
      return response;
    }
    if (!is_redirection(response.status)) {
      if (transfer.wanted() && !transfer.begin_once()) response.failure = "refused";
      return response;
    }
    url = curl_->redirection();
    const std::string next = origin_of(url);
    if (next.empty() || (origin.starts_with("https:") && !next.starts_with("https:"))) {
      return make_error(ErrorCode::kBadFile, "{}: redirects to {}, which is not followed",
                        printable(origin), next.empty() ? "not an http address" : printable(next));
    }
  }
  return make_error(ErrorCode::kBadFile, "{}: more than {} redirections", printable(own_origin),
                    kMaxRedirections);
}

std::string escape_url_path(std::string_view text) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~/";
  std::string escaped;
  for (const char c : text) {
    if (kPlain.find(c) != kPlain.npos) {
      escaped += c;
    } else {
      escaped += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
  return escaped;
}

bool is_plain_http_url(std::string_view url) {
  return !origin_of(url).empty() && url.find_first_of("@?#\\ ") == url.npos &&
         std::ranges::all_of(url, [](char c) { return c > 0x20 && c < 0x7F; });
}

}  // namespace pumice
