// The server's network: one thread that accepts, reads and writes, and a few for work that takes
// longer. Plain HTTP/1.1; encryption is a proxy's business.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/log.hpp"
#include "base/result.hpp"
#include "tools/serve/http/http.hpp"

namespace pumice::serve {

/// What a client may take. Times in seconds.
struct HttpLimits {
  size_t connections = 4096;  ///< further ones wait to be accepted
  size_t header_bytes = size_t{32} << 10;
  size_t body_bytes = size_t{32} << 20;
  double header_s = 10;  ///< for the head of a request, from its first byte
  double body_s = 60;    ///< for its body
  double idle_s = 75;    ///< for a connection between two requests
  double send_s = 30;    ///< for the client to take what is being sent, piece by piece
  /// Written and not taken yet: a client that lags behind by more is cut off.
  size_t unsent_bytes = size_t{1} << 20;
  double ping_s = 15;    ///< of silence in a stream, until its keep_alive is written; 0: never
  size_t n_workers = 2;  ///< threads for `work`
};

class HttpServer {
 public:
  struct Handlers {
    /// Called when the head of a request was read, before its body: what refuses it, if anything.
    std::function<std::optional<HttpResponse>(const HttpRequest&)> check;
    /// A request that was read whole. May answer at any later time.
    std::function<void(std::shared_ptr<Exchange>)> handle;
    /// What is wrong on the level of HTTP, as the body of an answer.
    std::function<HttpResponse(unsigned status, std::string_view message)> refuse;
    /// Headers that its answer gets besides its own. Null: none.
    std::function<std::vector<std::pair<std::string, std::string>>(const HttpRequest&)> headers =
        {};
    /// SIGINT or SIGTERM came: the how manieth. Until `run` they end the program.
    std::function<void(int count)> signalled;
  };

  /// Listens; connections wait until `run`. `port` 0: a free one. Errors: kInvalidArgument for an
  /// address that is none or cannot be taken.
  static Result<std::unique_ptr<HttpServer>> listen(const std::string& host, uint16_t port,
                                                    const HttpLimits& limits, Handlers handlers,
                                                    Logger logger);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  /// "http://127.0.0.1:8080".
  const std::string& url() const;
  /// Serves on the caller's thread until `stop`.
  void run();

  // Any thread.
  void stop();
  /// On the server's thread, soon.
  void post(std::function<void()> task);
  /// On a thread of its own, as soon as one is free. It is not to throw.
  void work(std::function<void()> task);

  // On the server's thread.
  void after(double seconds, std::function<void()> task);
  size_t n_connections() const;
  /// Requests that were read and whose answer was not sent to its end.
  size_t n_exchanges() const;

 private:
  struct Network;
  explicit HttpServer(std::unique_ptr<Network> network);

  std::unique_ptr<Network> network_;
};

}  // namespace pumice::serve
