// A client's connection: reads its requests one after the other, watches whether it leaves, and
// writes what it is to get without ever waiting. On the server's thread, kept alive by what it
// waits for.
#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "tools/serve/http/http.hpp"
#include "tools/serve/http/http_server.hpp"

namespace pumice::serve {

/// What connections of a server share.
struct ConnectionOwner {
  const HttpLimits limits;
  const HttpServer::Handlers handlers;
  size_t n_connections = 0;
  size_t n_exchanges = 0;
  uint64_t n_requests = 0;  ///< for ids
  std::string id_prefix;    ///< likewise
  std::function<void()> closed = {};
};

class Connection final : public Exchange {
 public:
  Connection(boost::asio::ip::tcp::socket socket, std::shared_ptr<ConnectionOwner> owner);
  ~Connection() override;

  void start() { read_request(); }

  const HttpRequest& request() const override { return request_; }
  void respond(HttpResponse response) override;
  void begin_stream(HttpResponse response, std::string keep_alive) override;
  void write(std::string_view bytes) override;
  void end_stream() override;
  void on_left(std::function<void()> left) override { left_ = std::move(left); }
  bool has_left() const override { return closed_; }

 private:
  using ErrorCode = boost::system::error_code;
  using Parser = boost::beast::http::request_parser<boost::beast::http::string_body>;

  std::shared_ptr<Connection> self() {
    return std::static_pointer_cast<Connection>(shared_from_this());
  }
  void read_request();
  void read_head();
  void take_head();
  void read_body();
  void refuse(ErrorCode error, bool in_body);
  void handle();
  void watch();
  void add_headers(HttpResponse& response);
  void send(std::string_view bytes);
  void flush();
  void ping();
  void finish_exchange();
  void leave();
  void linger();
  void close();
  void limit(double seconds, std::function<void()> late);

  boost::asio::ip::tcp::socket socket_;
  std::shared_ptr<ConnectionOwner> owner_;
  boost::asio::steady_timer read_timer_;
  boost::asio::steady_timer write_timer_;
  boost::asio::steady_timer ping_timer_;
  boost::beast::flat_buffer buffer_;
  std::optional<Parser> parser_;
  std::string peer_;
  HttpRequest request_;
  std::function<void()> left_;
  std::string keep_alive_text_;
  std::string unsent_;   // behind `sending_`
  std::string sending_;  // by the write under way
  size_t n_lingered_ = 0;
  bool closed_ = false;
  bool busy_ = false;     // a request was handed out whose answer has not ended
  bool keeps_ = false;    // the connection stays for another request
  bool chunked_ = false;  // the stream
  bool is_head_ = false;  // HEAD: no body
  bool ended_ = false;    // all of the answer was given
  bool watching_ = false;
  bool goes_on_ = false;  // with another request, once nothing is watched any more
  bool wrote_ = false;    // since the last ping
};

}  // namespace pumice::serve
