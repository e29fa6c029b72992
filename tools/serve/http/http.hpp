// HTTP as the rest of the server sees it: requests that were read whole, answers written whole or
// piece by piece. What carries them is http_server.hpp.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace pumice::serve {

struct HttpRequest {
  std::string method;                                        ///< "GET"
  std::string path;                                          ///< "/v1/models", without the query
  std::string query;                                         ///< what stands behind "?"
  std::vector<std::pair<std::string, std::string>> headers;  ///< names in lower case
  std::string body;
  std::string peer;  ///< the client's address, without its port
  /// The client's x-request-id if it is short and printable, else one of ours.
  std::string id;

  /// Empty: there is none of that name (in lower case).
  std::string_view header(std::string_view name) const;
};

struct HttpResponse {
  unsigned status = 200;
  std::string content_type = "application/json";
  std::string body = {};
  std::vector<std::pair<std::string, std::string>> headers = {};
};

/// One request and the way back to its client. All on the server's thread (HttpServer::post). Either
/// `respond` is called once, or `begin_stream`, `write` any number of times and `end_stream`. After
/// the client has left all of them do nothing.
class Exchange : public std::enable_shared_from_this<Exchange> {
 public:
  Exchange() = default;
  virtual ~Exchange() = default;
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  virtual const HttpRequest& request() const = 0;
  virtual void respond(HttpResponse response) = 0;
  /// `response`: without a body. `keep_alive`: what is written when nothing else was for a while
  /// (HttpLimits::ping_s); empty: nothing.
  virtual void begin_stream(HttpResponse response, std::string keep_alive) = 0;
  virtual void write(std::string_view bytes) = 0;
  virtual void end_stream() = 0;
  /// Called once, if the client leaves or is cut off before all was given to `respond` or
  /// `end_stream` was called.
  virtual void on_left(std::function<void()> left) = 0;
  virtual bool has_left() const = 0;
};

/// "Not Found".
std::string_view reason_phrase(unsigned status);
/// The head of an answer, with `extra` lines of headers ("Connection: close\r\n").
std::string head_of(const HttpResponse& response, std::string_view extra);

}  // namespace pumice::serve
