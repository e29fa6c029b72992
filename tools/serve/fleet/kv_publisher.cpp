#include "tools/serve/fleet/kv_publisher.hpp"

#include <zmq.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "base/dynamic_library.hpp"
#include "base/printable.hpp"

namespace pumice::serve {

/// Of libzmq.
struct ZmqFunctions {
  decltype(zmq_ctx_new)* ctx_new = nullptr;
  decltype(zmq_ctx_term)* ctx_term = nullptr;
  decltype(zmq_socket)* socket = nullptr;
  decltype(zmq_close)* close = nullptr;
  decltype(zmq_setsockopt)* setsockopt = nullptr;
  decltype(zmq_getsockopt)* getsockopt = nullptr;
  decltype(zmq_bind)* bind = nullptr;
  decltype(zmq_send)* send = nullptr;
  decltype(zmq_recv)* recv = nullptr;
  decltype(zmq_poll)* poll = nullptr;
  decltype(zmq_errno)* error_number = nullptr;
  decltype(zmq_strerror)* strerror = nullptr;
};

namespace {

using EventJson = nlohmann::ordered_json;

constexpr long kInterval_ms = 20;  // that new batches wait at most
constexpr uint64_t kEndOfReplay = ~uint64_t{0};
constexpr size_t kMostFrameBytes = 256;  // of what is asked

template <typename Signature>
bool find_function(const DynamicLibrary& library, const char* name, Signature*& function) {
  function = library.function<Signature>(name);
  return function != nullptr;
}

bool find_all(const DynamicLibrary& library, ZmqFunctions& f) {
  return find_function(library, "zmq_ctx_new", f.ctx_new) &&
         find_function(library, "zmq_ctx_term", f.ctx_term) &&
         find_function(library, "zmq_socket", f.socket) &&
         find_function(library, "zmq_close", f.close) &&
         find_function(library, "zmq_setsockopt", f.setsockopt) &&
         find_function(library, "zmq_getsockopt", f.getsockopt) &&
         find_function(library, "zmq_bind", f.bind) && find_function(library, "zmq_send", f.send) &&
         find_function(library, "zmq_recv", f.recv) && find_function(library, "zmq_poll", f.poll) &&
         find_function(library, "zmq_errno", f.error_number) &&
         find_function(library, "zmq_strerror", f.strerror);
}

std::array<uint8_t, 8> big_endian(uint64_t number) {
  std::array<uint8_t, 8> bytes;
  for (size_t i = 0; i < 8; ++i) bytes[i] = static_cast<uint8_t>(number >> (8 * (7 - i)));
  return bytes;
}

EventJson event_json(const KvEvent& event, bool as_map) {
  EventJson map = EventJson::object();
  const EventJson medium = event.on_device ? "GPU" : "cpu";
  switch (event.kind) {
    case KvEvent::Kind::kStored:
      map = {{"type", "BlockStored"},
             {"block_hashes", event.blocks},
             {"parent_block_hash", event.has_parent ? EventJson(event.parent) : EventJson()},
             {"token_ids", event.tokens},
             {"block_size", event.block_tokens},
             {"lora_id", event.adapter == 0 ? EventJson() : EventJson(event.adapter)},
             {"medium", medium}};
      if (event.adapter != 0) map["lora_name"] = event.adapter_name;
      break;
    case KvEvent::Kind::kRemoved:
      map = {{"type", "BlockRemoved"}, {"block_hashes", event.blocks}, {"medium", medium}};
      break;
    case KvEvent::Kind::kCleared:
      map = {{"type", "AllBlocksCleared"}};
      break;
  }
  if (as_map) return map;
  EventJson array = EventJson::array();
  for (EventJson& value : map) array.push_back(std::move(value));
  return array;
}

}  // namespace

std::vector<uint8_t> kv_batch(double seconds, const std::vector<KvEvent>& events, bool maps) {
  EventJson all = EventJson::array();
  for (const KvEvent& event : events) all.push_back(event_json(event, maps));
  return EventJson::to_msgpack(EventJson::array({seconds, std::move(all)}));
}

struct KvPublisher::Sockets {
  ZmqFunctions f;
  void* context = nullptr;
  void* publisher = nullptr;
  void* replayer = nullptr;

  Sockets() = default;
  Sockets(const Sockets&) = delete;
  Sockets& operator=(const Sockets&) = delete;
  ~Sockets() {
    for (void* const socket : {publisher, replayer}) {
      if (socket != nullptr) f.close(socket);
    }
    if (context != nullptr) f.ctx_term(context);
  }

  /// Where it is bound to.
  Result<std::string> bind(int type, const std::string& endpoint, void*& socket) const {
    socket = f.socket(context, type);
    const int linger_ms = 200;  // for what was sent last
    if (socket != nullptr) f.setsockopt(socket, ZMQ_LINGER, &linger_ms, sizeof(linger_ms));
    if (socket == nullptr || f.bind(socket, endpoint.c_str()) != 0) {
      return make_error(ErrorCode::kInvalidArgument, "KV events: cannot listen on {}: {}",
                        printable(endpoint, 100), f.strerror(f.error_number()));
    }
    std::array<char, 256> bound = {};
    size_t n = bound.size();
    f.getsockopt(socket, ZMQ_LAST_ENDPOINT, bound.data(), &n);
    return std::string(bound.data());
  }

  bool send(void* socket, std::span<const uint8_t> frame, bool more) const {
    return f.send(socket, frame.data(), frame.size(), ZMQ_DONTWAIT | (more ? ZMQ_SNDMORE : 0)) >= 0;
  }
};

KvPublisher::KvPublisher(std::unique_ptr<Sockets> sockets) : sockets_(std::move(sockets)) {}

Result<std::unique_ptr<KvPublisher>> KvPublisher::open(const KvPublisherOptions& options) {
  DynamicLibrary library = DynamicLibrary::open({"libzmq.so.5", "libzmq.dll"});
  if (!library.is_open()) {
    return make_error(ErrorCode::kInternal,
                      "KV events need libzmq, which is not installed (libzmq.so.5)");
  }
  auto sockets = std::make_unique<Sockets>();
  const bool is_whole = find_all(library, sockets->f);
  library.keep_open();
  if (!is_whole || (sockets->context = sockets->f.ctx_new()) == nullptr) {
    return make_error(ErrorCode::kInternal, "libzmq cannot be used: it lacks functions");
  }
  std::string endpoint;
  std::string replay_endpoint;
  PUMICE_TRY(endpoint, sockets->bind(ZMQ_PUB, options.endpoint, sockets->publisher));
  if (!options.replay_endpoint.empty()) {
    PUMICE_TRY(replay_endpoint,
               sockets->bind(ZMQ_ROUTER, options.replay_endpoint, sockets->replayer));
  }
  std::unique_ptr<KvPublisher> publisher(new KvPublisher(std::move(sockets)));
  publisher->maps_ = options.maps;
  publisher->endpoint_ = std::move(endpoint);
  publisher->replay_endpoint_ = std::move(replay_endpoint);
  publisher->thread_ = std::thread([raw = publisher.get()] { raw->serve_until_closed(); });
  return publisher;
}

KvPublisher::~KvPublisher() {
  {
    const std::lock_guard lock(mutex_);
    closes_ = true;
  }
  if (thread_.joinable()) thread_.join();
}

void KvPublisher::publish(const std::vector<KvEvent>& events) {
  if (events.empty()) return;
  const double now_s =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  std::vector<uint8_t> batch = kv_batch(now_s, events, maps_);
  const std::lock_guard lock(mutex_);
  to_send_.push_back(std::move(batch));
}

void KvPublisher::serve_until_closed() {
  zmq_pollitem_t item{};
  item.socket = sockets_->replayer;
  item.events = ZMQ_POLLIN;
  while (true) {
    bool closes = false;
    {
      const std::lock_guard lock(mutex_);
      closes = closes_;
    }
    send_new();
    if (closes) return;
    if (sockets_->replayer == nullptr) {
      std::this_thread::sleep_for(std::chrono::milliseconds(kInterval_ms));
    } else if (sockets_->f.poll(&item, 1, kInterval_ms) > 0) {
      send_again();
    }
  }
}

/// Subscribers that are too slow miss some, see it by the numbers, and ask for them.
void KvPublisher::send_new() {
  std::deque<std::vector<uint8_t>> batches;
  {
    const std::lock_guard lock(mutex_);
    batches.swap(to_send_);
  }
  for (std::vector<uint8_t>& batch : batches) {
    const std::array<uint8_t, 8> number = big_endian(next_number_++);
    void* const socket = sockets_->publisher;
    const std::span<const char> topic(topic_);
    (void)(sockets_->send(socket, {reinterpret_cast<const uint8_t*>(topic.data()), topic.size()},
                          true) &&
           sockets_->send(socket, number, true) && sockets_->send(socket, batch, false));
    sent_.push_back(std::move(batch));
    if (sent_.size() > kMostReplayed) sent_.pop_front();
  }
}

/// One request: who asks, nothing, the number to begin with. Each batch goes back as it was sent, and
/// behind the last one an end, of no topic and no batch.
void KvPublisher::send_again() {
  std::vector<std::vector<uint8_t>> frames;
  bool is_good = true;
  int more = 1;
  while (more != 0) {
    std::vector<uint8_t> frame(kMostFrameBytes);
    const int n = sockets_->f.recv(sockets_->replayer, frame.data(), frame.size(), ZMQ_DONTWAIT);
    if (n < 0) return;
    is_good = is_good && static_cast<size_t>(n) <= frame.size() && frames.size() < 3;
    if (is_good) {
      frame.resize(static_cast<size_t>(n));
      frames.push_back(std::move(frame));
    }
    size_t size = sizeof(more);
    if (sockets_->f.getsockopt(sockets_->replayer, ZMQ_RCVMORE, &more, &size) != 0) return;
  }
  if (!is_good || frames.size() != 3 || !frames[1].empty() || frames[2].size() != 8) return;
  uint64_t first = 0;
  for (const uint8_t byte : frames[2]) first = first << 8 | byte;
  const uint64_t oldest = next_number_ - sent_.size();
  const auto answer = [&](std::span<const char> topic, uint64_t number,
                          std::span<const uint8_t> batch) {
    void* const socket = sockets_->replayer;
    return sockets_->send(socket, frames[0], true) &&
           sockets_->send(socket, {reinterpret_cast<const uint8_t*>(topic.data()), topic.size()},
                          true) &&
           sockets_->send(socket, big_endian(number), true) && sockets_->send(socket, batch, false);
  };
  for (uint64_t number = std::max(first, oldest); number < next_number_; ++number) {
    if (!answer(topic_, number, sent_[number - oldest])) return;
  }
  (void)answer({}, kEndOfReplay, {});
}

}  // namespace pumice::serve
