#include "tools/serve/http/http_server.hpp"

#include <fmt/core.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <chrono>
#include <csignal>
#include <random>
#include <utility>

#include "tools/serve/http/connection.hpp"

namespace pumice::serve {

namespace asio = boost::asio;
using asio::ip::tcp;

struct HttpServer::Network {
  Network(const HttpLimits& limits, Handlers handlers, Logger logger_)
      : logger(std::move(logger_)),
        owner(std::make_shared<ConnectionOwner>(ConnectionOwner{limits, std::move(handlers)})),
        workers(limits.n_workers) {}

  boost::system::error_code open(const tcp::endpoint& endpoint);
  void accept();
  void accept_later();
  void wait_for_signal();

  Logger logger;
  asio::io_context io{1};
  tcp::acceptor acceptor{io};
  asio::steady_timer retry{io};
  asio::signal_set signals{io};
  std::shared_ptr<ConnectionOwner> owner;
  bool is_full = false;  // nobody is accepted for now
  int n_signals = 0;
  std::string url;
  asio::thread_pool workers;  // ends first: its tasks post to `io`
};

boost::system::error_code HttpServer::Network::open(const tcp::endpoint& endpoint) {
  boost::system::error_code error;
  acceptor.open(endpoint.protocol(), error);
  if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(asio::socket_base::max_listen_connections, error);
  return error;
}

void HttpServer::Network::accept() {
  is_full = owner->n_connections >= owner->limits.connections;
  if (is_full || !acceptor.is_open()) return;  // Connection::~Connection goes on
  acceptor.async_accept([this](boost::system::error_code error, tcp::socket socket) {
    if (error == asio::error::operation_aborted) return;
    if (error) {
      // Files may be used up; others will be closed.
      logger.warning("a connection was not accepted: {}", error.message());
      return accept_later();
    }
    std::make_shared<Connection>(std::move(socket), owner)->start();
    accept();
  });
}

void HttpServer::Network::accept_later() {
  retry.expires_after(std::chrono::milliseconds(100));
  retry.async_wait([this](boost::system::error_code error) {
    if (!error) accept();
  });
}

void HttpServer::Network::wait_for_signal() {
  signals.async_wait([this](boost::system::error_code error, int) {
    if (error) return;
    owner->handlers.signalled(++n_signals);
    wait_for_signal();
  });
}

HttpServer::HttpServer(std::unique_ptr<Network> network) : network_(std::move(network)) {}

HttpServer::~HttpServer() {
  network_->owner->closed = {};
  network_->workers.stop();
  network_->workers.join();
}

Result<std::unique_ptr<HttpServer>> HttpServer::listen(const std::string& host, uint16_t port,
                                                       const HttpLimits& limits, Handlers handlers,
                                                       Logger logger) {
  auto network = std::make_unique<Network>(limits, std::move(handlers), std::move(logger));
  boost::system::error_code error;
  tcp::resolver resolver(network->io);
  const auto found = resolver.resolve(host, std::to_string(port), tcp::resolver::passive, error);
  if (error || found.empty()) {
    return make_error(ErrorCode::kInvalidArgument, "--host {}: {}", host,
                      error ? error.message() : "there is no such address");
  }
  const tcp::endpoint wanted = found.begin()->endpoint();
  if (error = network->open(wanted); error) {
    return make_error(ErrorCode::kInvalidArgument, "--host {} --port {}: {}", host, port,
                      error.message());
  }
  const uint16_t taken = network->acceptor.local_endpoint(error).port();
  network->url = host.find(':') == std::string::npos ? fmt::format("http://{}:{}", host, taken)
                                                     : fmt::format("http://[{}]:{}", host, taken);
  network->owner->id_prefix = fmt::format("{:08x}", std::random_device{}());
  Network* const raw = network.get();
  network->owner->closed = [raw] {
    if (raw->is_full) asio::post(raw->io, [raw] { raw->is_full ? raw->accept() : void(); });
  };
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(network)));
}

const std::string& HttpServer::url() const { return network_->url; }

void HttpServer::run() {
  boost::system::error_code ignored;
  network_->signals.add(SIGINT, ignored);
  network_->signals.add(SIGTERM, ignored);
  network_->wait_for_signal();
  network_->accept();
  network_->io.run();
}

void HttpServer::stop() { network_->io.stop(); }

void HttpServer::post(std::function<void()> task) { asio::post(network_->io, std::move(task)); }

void HttpServer::work(std::function<void()> task) {
  asio::post(network_->workers, [network = network_.get(), task = std::move(task)]() mutable {
    task();
    // What it holds ends where it began: an exchange may be the last that holds its connection.
    asio::post(network->io, [ended = std::move(task)] {});
  });
}

void HttpServer::after(double s, std::function<void()> task) {
  auto timer = std::make_shared<asio::steady_timer>(network_->io);
  timer->expires_after(std::chrono::duration_cast<std::chrono::steady_clock::duration>(
      std::chrono::duration<double>(s)));
  timer->async_wait([timer, task = std::move(task)](boost::system::error_code error) {
    if (!error) task();
  });
}

size_t HttpServer::n_connections() const { return network_->owner->n_connections; }
size_t HttpServer::n_exchanges() const { return network_->owner->n_exchanges; }

}  // namespace pumice::serve
