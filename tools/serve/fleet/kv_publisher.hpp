// KV events over ZeroMQ, as vLLM publishes them and llm-d's routers read them: messages of three
// frames, topic, sequence number (8 bytes, big-endian, from 0) and a batch in MessagePack; and a
// socket that sends earlier ones again, from a number on.
//
// A thread of its own has the sockets. libzmq is opened at run time.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/log.hpp"
#include "base/result.hpp"
#include "tools/serve/fleet/kv_view.hpp"

namespace pumice::serve {

struct KvPublisherOptions {
  std::string endpoint;         ///< "tcp://*:5557"
  std::string replay_endpoint;  ///< empty: none
  bool maps = false;            ///< events as maps with "type", else as arrays
};

/// A batch in MessagePack: [seconds since 1970, events].
std::vector<uint8_t> kv_batch(double seconds, const std::vector<KvEvent>& events, bool maps);

class KvPublisher {
 public:
  /// What is sent again at most: so many batches.
  static constexpr size_t kMostReplayed = 1024;

  /// Errors: kInternal without libzmq, kInvalidArgument where an endpoint cannot be bound.
  static Result<std::unique_ptr<KvPublisher>> open(const KvPublisherOptions& options);
  ~KvPublisher();
  KvPublisher(const KvPublisher&) = delete;
  KvPublisher& operator=(const KvPublisher&) = delete;

  /// Before the first `publish`.
  void set_topic(std::string topic) { topic_ = std::move(topic); }
  /// Where subscribers connect to, with the port if the system chose it; likewise of replays.
  const std::string& endpoint() const { return endpoint_; }
  const std::string& replay_endpoint() const { return replay_endpoint_; }

  /// Any thread; at once.
  void publish(const std::vector<KvEvent>& events);

 private:
  struct Sockets;
  explicit KvPublisher(std::unique_ptr<Sockets> sockets);
  void serve_until_closed();
  void send_new();
  void send_again();

  std::unique_ptr<Sockets> sockets_;
  bool maps_ = false;
  std::string topic_, endpoint_, replay_endpoint_;
  std::mutex mutex_;
  std::deque<std::vector<uint8_t>> to_send_;
  bool closes_ = false;
  // Of the thread.
  std::deque<std::vector<uint8_t>> sent_;  // the last ones
  uint64_t next_number_ = 0;
  std::thread thread_;
};

}  // namespace pumice::serve
