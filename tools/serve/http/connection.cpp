#include "tools/serve/http/connection.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <boost/asio/write.hpp>
#include <cctype>
#include <chrono>
#include <utility>

namespace pumice::serve {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;

constexpr size_t kReadBytes = 4096;
/// Of requests that a client sends before it has the answer to the one before.
constexpr size_t kMostEarlyBytes = size_t{64} << 10;
/// A client that was refused in the midst of its body may send so much more before it looks.
constexpr size_t kMostLingeringBytes = size_t{4} << 20;
constexpr double kLinger_s = 2;
constexpr size_t kMostIdBytes = 128;
/// What the system keeps for a client that does not read, beside HttpLimits::unsent_bytes.
constexpr int kSystemsBytes = 256 << 10;

std::chrono::steady_clock::duration seconds(double s) {
  return std::chrono::duration_cast<std::chrono::steady_clock::duration>(
      std::chrono::duration<double>(s));
}

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

bool is_printable(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c < '\x7f'; });
}

template <typename View>
std::string_view view(const View& text) {
  return {text.data(), text.size()};
}

}  // namespace

Connection::Connection(asio::ip::tcp::socket socket, std::shared_ptr<ConnectionOwner> owner)
    : socket_(std::move(socket)),
      owner_(std::move(owner)),
      read_timer_(socket_.get_executor()),
      write_timer_(socket_.get_executor()),
      ping_timer_(socket_.get_executor()) {
  ++owner_->n_connections;
  ErrorCode ignored;
  peer_ = socket_.remote_endpoint(ignored).address().to_string();
  socket_.set_option(asio::ip::tcp::no_delay(true), ignored);
  socket_.set_option(asio::socket_base::send_buffer_size(kSystemsBytes), ignored);
}

Connection::~Connection() {
  --owner_->n_connections;
  if (busy_) --owner_->n_exchanges;
  if (owner_->closed) owner_->closed();
}

/// `late` after that time, unless the timer is set anew or cancelled.
void Connection::limit(double s, std::function<void()> late) {
  read_timer_.expires_after(seconds(s));
  read_timer_.async_wait([me = self(), late = std::move(late)](ErrorCode error) {
    if (!error && !me->closed_) late();
  });
}

// ---- a request in

void Connection::read_request() {
  request_ = {};
  request_.peer = peer_;
  left_ = {};
  ended_ = goes_on_ = false;
  parser_.emplace();
  parser_->header_limit(static_cast<std::uint32_t>(owner_->limits.header_bytes));
  parser_->body_limit(owner_->limits.body_bytes);
  if (buffer_.size() > 0) return read_head();
  limit(owner_->limits.idle_s, [me = this] { me->close(); });
  socket_.async_wait(asio::ip::tcp::socket::wait_read, [me = self()](ErrorCode error) {
    if (error) return me->close();
    me->read_head();
  });
}

void Connection::read_head() {
  limit(owner_->limits.header_s, [me = this] { me->close(); });
  http::async_read_header(socket_, buffer_, *parser_, [me = self()](ErrorCode error, size_t) {
    if (me->closed_) return;
    if (error) return me->refuse(error, false);
    me->take_head();
  });
}

void Connection::take_head() {
  const auto& message = parser_->get();
  request_.method = std::string(view(message.method_string()));
  const std::string_view target = view(message.target());
  const size_t question = target.find('?');
  request_.path = std::string(target.substr(0, question));
  if (question != std::string_view::npos) request_.query = std::string(target.substr(question + 1));
  for (const auto& field : message) {
    request_.headers.emplace_back(lower(view(field.name_string())),
                                  std::string(view(field.value())));
  }
  const std::string_view given = request_.header("x-request-id");
  const bool takes_id = !given.empty() && given.size() <= kMostIdBytes && is_printable(given);
  request_.id =
      takes_id ? std::string(given) : fmt::format("{}-{}", owner_->id_prefix, ++owner_->n_requests);
  keeps_ = message.keep_alive();
  chunked_ = message.version() >= 11;
  is_head_ = message.method() == http::verb::head;
  busy_ = true;
  ++owner_->n_exchanges;
  if (std::optional<HttpResponse> refusal = owner_->handlers.check(request_)) {
    read_timer_.cancel();
    keeps_ = keeps_ && parser_->is_done();
    return respond(*std::move(refusal));
  }
  if (parser_->is_done()) return handle();
  if (lower(request_.header("expect")) == "100-continue") send("HTTP/1.1 100 Continue\r\n\r\n");
  read_body();
}

void Connection::read_body() {
  limit(owner_->limits.body_s, [me = this] { me->close(); });
  http::async_read(socket_, buffer_, *parser_, [me = self()](ErrorCode error, size_t) {
    if (me->closed_) return;
    if (error) return me->refuse(error, true);
    me->handle();
  });
}

/// What was read is no request, or there is none.
void Connection::refuse(ErrorCode error, bool in_body) {
  read_timer_.cancel();
  const bool is_of_http = error.category() == make_error_code(http::error::bad_method).category();
  const bool ended = error == http::error::end_of_stream || error == http::error::partial_message;
  if (!is_of_http || ended) return close();
  keeps_ = false;
  if (!in_body) {
    busy_ = true;
    ++owner_->n_exchanges;
    chunked_ = true;
  }
  if (error == http::error::header_limit) {
    return respond(owner_->handlers.refuse(
        431, fmt::format("the headers have more than {} bytes", owner_->limits.header_bytes)));
  }
  if (error == http::error::body_limit) {
    return respond(owner_->handlers.refuse(
        413, fmt::format("the body has more than {} bytes", owner_->limits.body_bytes)));
  }
  respond(owner_->handlers.refuse(400, fmt::format("this is not a request: {}", error.message())));
}

void Connection::handle() {
  read_timer_.cancel();
  request_.body = std::move(parser_->get().body());
  parser_.reset();
  watch();
  owner_->handlers.handle(shared_from_this());
}

/// What a client sends while it waits is the beginning of its next request, or that it leaves.
void Connection::watch() {
  if (closed_ || buffer_.size() >= kMostEarlyBytes) return;
  watching_ = true;
  socket_.async_read_some(buffer_.prepare(kReadBytes), [me = self()](ErrorCode error, size_t n) {
    me->watching_ = false;
    if (me->closed_) return;
    if (error && error != asio::error::operation_aborted) return me->leave();
    me->buffer_.commit(n);
    if (me->goes_on_) return me->read_request();
    if (!error) me->watch();
  });
}

// ---- an answer out

void Connection::add_headers(HttpResponse& response) {
  if (!owner_->handlers.headers) return;
  for (auto& header : owner_->handlers.headers(request_)) {
    response.headers.push_back(std::move(header));
  }
}

void Connection::respond(HttpResponse response) {
  if (closed_ || ended_) return;
  ended_ = true;
  add_headers(response);
  std::string extra =
      fmt::format("Content-Length: {}\r\nX-Request-Id: {}\r\n", response.body.size(), request_.id);
  if (request_.id.empty()) extra = fmt::format("Content-Length: {}\r\n", response.body.size());
  extra += keeps_ ? "Connection: keep-alive\r\n" : "Connection: close\r\n";
  std::string all = head_of(response, extra);
  if (!is_head_) all += response.body;
  send(all);
}

void Connection::begin_stream(HttpResponse response, std::string keep_alive) {
  if (closed_ || ended_) return;
  std::string extra = fmt::format(
      "X-Request-Id: {}\r\nCache-Control: no-cache\r\nX-Accel-Buffering: no\r\n", request_.id);
  if (!chunked_) keeps_ = false;
  if (chunked_) extra += "Transfer-Encoding: chunked\r\n";
  extra += keeps_ ? "Connection: keep-alive\r\n" : "Connection: close\r\n";
  keep_alive_text_ = std::move(keep_alive);
  add_headers(response);
  send(head_of(response, extra));
  if (!keep_alive_text_.empty() && owner_->limits.ping_s > 0) ping();
}

void Connection::write(std::string_view bytes) {
  if (closed_ || ended_ || bytes.empty()) return;
  wrote_ = true;
  if (!chunked_) return send(bytes);
  send(fmt::format("{:x}\r\n{}\r\n", bytes.size(), bytes));
}

void Connection::end_stream() {
  if (closed_ || ended_) return;
  ended_ = true;
  ping_timer_.cancel();
  if (chunked_) return send("0\r\n\r\n");
  if (sending_.empty()) finish_exchange();
}

void Connection::ping() {
  wrote_ = false;
  ping_timer_.expires_after(seconds(owner_->limits.ping_s));
  ping_timer_.async_wait([me = self()](ErrorCode error) {
    if (error || me->closed_ || me->ended_) return;
    if (!me->wrote_) me->write(me->keep_alive_text_);
    me->ping();
  });
}

void Connection::send(std::string_view bytes) {
  // An answer that is given at once may be of any size; it is there already.
  const bool lags = !ended_ && unsent_.size() + sending_.size() > owner_->limits.unsent_bytes;
  if (lags) return leave();
  unsent_ += bytes;
  if (sending_.empty()) flush();
}

void Connection::flush() {
  std::swap(sending_, unsent_);
  write_timer_.expires_after(seconds(owner_->limits.send_s));
  write_timer_.async_wait([me = self()](ErrorCode error) {
    if (!error && !me->closed_) me->leave();
  });
  asio::async_write(socket_, asio::buffer(sending_), [me = self()](ErrorCode error, size_t) {
    me->write_timer_.cancel();
    me->sending_.clear();
    if (me->closed_) return;
    if (error) return me->leave();
    if (!me->unsent_.empty()) return me->flush();
    if (me->ended_) me->finish_exchange();
  });
}

void Connection::finish_exchange() {
  left_ = {};
  if (std::exchange(busy_, false)) --owner_->n_exchanges;
  if (!keeps_) return linger();
  if (!watching_) return read_request();
  // One read at a time: the watching one ends first, with or without bytes.
  goes_on_ = true;
  ErrorCode ignored;
  socket_.cancel(ignored);
}

// ---- the end

void Connection::leave() {
  if (closed_) return;
  const std::function<void()> left = std::exchange(left_, {});
  close();
  if (left && !ended_) left();
}

/// A connection that is closed while the client still sends may lose the answer on its way.
void Connection::linger() {
  ErrorCode error;
  socket_.shutdown(asio::ip::tcp::socket::shutdown_send, error);
  if (error || watching_) return close();
  limit(kLinger_s, [me = this] { me->close(); });
  n_lingered_ = 0;
  const auto read = [me = self()](const auto& again) -> void {
    me->buffer_.clear();
    me->socket_.async_read_some(me->buffer_.prepare(kReadBytes),
                                [me, again](ErrorCode failed, size_t n) {
                                  me->n_lingered_ += n;
                                  const bool over = me->n_lingered_ > kMostLingeringBytes;
                                  if (failed || over || me->closed_) return me->close();
                                  again(again);
                                });
  };
  read(read);
}

void Connection::close() {
  if (std::exchange(closed_, true)) return;
  left_ = {};
  read_timer_.cancel();
  write_timer_.cancel();
  ping_timer_.cancel();
  // The last of what waits for the socket closes it. Closed under a write it would give its number to
  // the next client at once, and wine sends what is left of a write by that number.
  ErrorCode ignored;
  socket_.shutdown(asio::ip::tcp::socket::shutdown_both, ignored);
  socket_.cancel(ignored);
}

}  // namespace pumice::serve
