// Any bytes as calls of the C ABI: handles that are right, stale, null, another engine's or of
// another kind, structs of all sizes, texts, tokens and messages of any kind, in any order. A small
// book is kept of what must be true: which numbers are known, that each request ends with one last
// event, that what is refused changes no output, and that what is closed gives back its memory.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api/handles.hpp"
#include "models/synthetic.hpp"
#include "pumice/pumice.h"
#include "tests/fuzz/fuzz.hpp"

namespace pumice::fuzz {
namespace {

constexpr uint32_t kVocabulary = 400;
constexpr uint64_t kSmallKvTokens = uint64_t{1} << 20;  // 128 MiB of the model below
constexpr uint64_t kHugeKvTokens = uint64_t{1} << 35;   // 4 TiB
constexpr size_t kStructBytes = 4200;  // room for what claims to be the largest struct

/// The input, from its beginning; zeros behind its end.
class Bytes {
 public:
  Bytes(const uint8_t* data, size_t size) : data_(data), left_(size) {}
  bool empty() const { return left_ == 0; }

  uint8_t byte() {
    if (left_ == 0) return 0;
    --left_;
    return *data_++;
  }
  template <typename T>
  T value() {
    std::array<unsigned char, sizeof(T)> bytes;
    for (unsigned char& b : bytes) b = byte();
    T result;
    std::memcpy(&result, bytes.data(), sizeof(T));
    return result;
  }
  /// True once in `n` times.
  bool one_in(uint32_t n) { return byte() % n == n - 1; }
  /// Small numbers mostly, sometimes any.
  uint32_t amount(uint32_t usual) { return one_in(32) ? value<uint32_t>() : byte() % usual; }
  pumice_bool boolean() { return one_in(64) ? value<uint32_t>() : byte() & 1; }
  /// UTF-8 mostly, sometimes any bytes.
  std::string text() {
    const bool is_text = !one_in(8);
    std::string text;
    for (uint32_t i = byte() % 40; i > 0; --i) {
      const uint8_t c = byte();
      if (is_text && c >= 0x80) {
        text += static_cast<char>(0xC0 | c >> 6);
        text += static_cast<char>(0x80 | (c & 0x3F));
      } else {
        text += static_cast<char>(c);
      }
    }
    return text;
  }

 private:
  const uint8_t* data_;
  size_t left_;
};

/// A caller's struct in memory that is large enough for any size it claims.
template <typename T>
class Struct {
 public:
  explicit Struct(Bytes& in) {
    std::memset(memory_.data(), 0, memory_.size());
    value().struct_size = sizeof(T);
    if (!in.one_in(16)) return;
    constexpr std::array<size_t, 8> kSizes = {
        0, 7, 8, sizeof(T) - 8, sizeof(T) + 1, sizeof(T) + 8, 4096, 5000};
    value().struct_size = in.one_in(8) ? in.value<size_t>() : kSizes[in.byte() % kSizes.size()];
    if (in.one_in(4)) memory_[sizeof(T)] = std::byte{1};  // what only a newer library knows
  }
  T& value() { return *reinterpret_cast<T*>(memory_.data()); }
  T* pointer() { return &value(); }
  bool usual() { return value().struct_size == sizeof(T); }

 private:
  alignas(16) std::array<std::byte, kStructBytes> memory_;
};

/// What options point to, which must live until the call.
class Lent {
 public:
  explicit Lent(Bytes& in) : in_(in) {}

  pumice_string string(std::string text) {
    if (in_.one_in(48)) return {nullptr, in_.value<size_t>()};
    if (in_.one_in(48)) return {"x", PUMICE_NUL - 1 - in_.byte()};
    texts_.push_back(std::make_unique<char[]>(text.size() + 1));  // exact, so that ASan sees
    char* copy = texts_.back().get();
    std::copy(text.begin(), text.end(), copy);
    copy[text.size()] = '\0';
    return {copy, in_.one_in(4) ? PUMICE_NUL : text.size()};
  }
  pumice_string string() { return string(in_.text()); }

  const pumice_sampling* sampling() {
    if (!in_.one_in(4)) return nullptr;
    samplings_.push_back(std::make_unique<Struct<pumice_sampling>>(in_));
    pumice_sampling& s = samplings_.back()->value();
    s.temperature = real();
    s.top_k = in_.amount(50);
    s.top_p = real();
    s.min_p = real();
    s.repeat_penalty = real();
    s.frequency_penalty = real();
    s.presence_penalty = real();
    s.seed = in_.byte();
    if (in_.one_in(4)) {
      for (uint32_t i = in_.byte() % 4; i > 0; --i) biases_.push_back({in_.amount(200), real()});
      s.logit_biases = biases_.data();
      s.n_logit_biases = biases_.size();
    }
    return &s;
  }

  void prompt(pumice_request_options& options) {
    const uint8_t kind = in_.byte() % 8;
    if (kind < 3 || kind == 7) options.text = string();
    if (kind == 3 || kind == 4 || kind == 7) {
      for (uint32_t i = in_.byte() % 40; i > 0; --i) tokens_.push_back(in_.amount(250));
      options.tokens = tokens_.data();
      options.n_tokens = in_.one_in(64) ? SIZE_MAX : tokens_.size();
    }
    if (kind == 5 || kind == 6) {
      constexpr std::array<const char*, 4> kRoles = {"user", "system", "assistant", "wizard"};
      for (uint32_t i = in_.byte() % 3; i > 0; --i) {
        messages_.push_back({string(kRoles[in_.byte() % 4]), string()});
      }
      messages_.push_back({pumice_str("user"), string()});
      options.messages = messages_.data();
      options.n_messages = messages_.size();
    }
  }
  void stops(pumice_request_options& options) {
    if (!in_.one_in(8)) return;
    for (uint32_t i = in_.byte() % 4; i > 0; --i) stops_.push_back(string());
    options.stops = stops_.data();
    options.n_stops = in_.one_in(32) ? 1 << 30 : stops_.size();
  }

 private:
  float real() {
    switch (in_.byte() % 8) {
      case 0:
        return in_.value<float>();
      case 1:
        return 0.5f;
      case 2:
        return 1.0f;
      default:
        return 0;
    }
  }

  Bytes& in_;
  std::vector<std::unique_ptr<char[]>> texts_;
  std::vector<std::unique_ptr<Struct<pumice_sampling>>> samplings_;
  std::vector<pumice_logit_bias> biases_;
  std::vector<uint32_t> tokens_;
  std::vector<pumice_message> messages_;
  std::vector<pumice_string> stops_;
};

/// A status, and what an error says.
pumice_status check(pumice_status status) {
  promise(status >= PUMICE_OK && status <= PUMICE_TOO_SMALL, "a status is one of the header's");
  if (status != PUMICE_OK) check_error({ErrorCode::kInternal, pumice_last_error()});
  promise(status != PUMICE_INTERNAL && status != PUMICE_DEVICE_LOST,
          std::string("nothing here is a bug: ") + pumice_last_error());
  return status;
}

/// An array that is too small is said to be, unless there is none, which asks for the number.
template <typename T>
void check_array(pumice_status status, const T* out, size_t capacity, size_t n) {
  const bool asks = out == nullptr && capacity == 0;
  promise((status == PUMICE_TOO_SMALL) == (n > capacity && !asks), "an array holds all, or not");
  promise(status == PUMICE_OK || status == PUMICE_TOO_SMALL || n == 0, "an error has nothing");
}

/// What every input has: a device with a model of hardly any weights, closed at exit.
struct Ground {
  pumice_device* device = nullptr;
  pumice_model* model = nullptr;
  std::string path;
  uint64_t bytes = 0;                // of the device, without an engine
  std::vector<unsigned char> saved;  // a session of an engine of all defaults
};

uint64_t device_bytes(const Ground& ground) {
  return ground.device->owner->device()->ledger().total_bytes();
}

pumice_model* load(const Ground& ground) {
  pumice_model_options options{sizeof options};
  options.path = pumice_str(ground.path.c_str());
  pumice_model* model = nullptr;
  promise(check(pumice_model_load(ground.device, &options, &model)) == PUMICE_OK, "a model loads");
  return model;
}

/// A session that has answered, as bytes.
std::vector<unsigned char> save_one(const Ground& ground) {
  pumice_engine* engine = nullptr;
  promise(check(pumice_engine_create(ground.model, nullptr, &engine)) == PUMICE_OK, "an engine");
  pumice_session session = 0;
  promise(check(pumice_session_open(engine, nullptr, &session)) == PUMICE_OK, "a session");
  pumice_request_options options{sizeof options};
  options.text = pumice_str("once");
  options.max_new_tokens = 20;
  options.ignore_end = 1;
  pumice_request request = 0;
  promise(check(pumice_submit(engine, session, &options, &request)) == PUMICE_OK, "a request");
  pumice_event event{sizeof event};
  while (event.kind != PUMICE_EVENT_FINISHED) {
    promise(check(pumice_poll(engine, PUMICE_NO_LIMIT)) == PUMICE_OK, "an engine goes on");
    promise(check(pumice_next_event(engine, &event)) == PUMICE_OK, "events can be taken");
  }
  const void* bytes = nullptr;
  size_t n_bytes = 0;
  promise(check(pumice_session_save(engine, session, &bytes, &n_bytes)) == PUMICE_OK, "bytes");
  const auto* first = static_cast<const unsigned char*>(bytes);
  std::vector<unsigned char> saved(first, first + n_bytes);
  pumice_engine_close(engine);
  return saved;
}

Ground prepare() {
  Ground ground;
  if (pumice_device_open(nullptr, &ground.device) != PUMICE_OK) {
    std::fprintf(stderr, "no usable Vulkan device: %s\n", pumice_last_error());
    std::exit(1);
  }
  ground.path = std::filesystem::temp_directory_path() /
                ("pumice-fuzz-" + std::to_string(getpid()) + ".gguf");
  const SyntheticShape shape{.name = "fuzz",
                             .n_layers = 1,
                             .n_embd = 64,
                             .n_heads = 2,
                             .n_kv_heads = 1,
                             .n_ff = 64,
                             .n_vocab = kVocabulary,
                             .context_length = 128};
  const auto model = SyntheticModel::create(shape, {.type = &weight_type("F16")});
  promise(model.ok() && write_synthetic_model(*model, ground.path).ok(), "a model is written");
  ground.model = load(ground);
  std::filesystem::remove(ground.path);
  ground.bytes = device_bytes(ground);
  ground.saved = save_one(ground);
  return ground;
}

const Ground& ground() {
  static const Ground kGround = prepare();
  return kGround;
}

/// Leaks are looked for after this: while they live, lavapipe's pipelines are held only by pointers to
/// the end of an allocation, which LeakSanitizer takes for a leak.
void close_ground() {
  pumice_model_close(ground().model);
  pumice_device_close(ground().device);
}

/// One of two engines and the book on it.
struct Book {
  pumice_engine* engine = nullptr;
  std::map<pumice_session, pumice_request> sessions;  // open; its last request, or 0
  std::map<pumice_request, pumice_session> requests;  // whose last event was not taken
};

class Run {
 public:
  explicit Run(Bytes& in) : in_(in) {}

  void all() {
    create();
    for (int i = 0; i < 100 && !in_.empty(); ++i) call();
    if (in_.byte() % 4 != 0) {
      for (Book& book : books_) drain(book);
    }
    for (Book& book : books_) close(book);
    promise(device_bytes(ground()) == ground().bytes, "what was closed gives back its memory");
  }

 private:
  void call() {
    book_ = &books_[in_.one_in(4) ? 1 : 0];
    switch (in_.byte() % 24) {
      case 0:
        return create();
      case 1:
        return in_.one_in(4) ? close(*book_) : nulls();
      case 2:
        return open_session();
      case 3:
        return close_session();
      case 4:
        return session_tokens();
      case 5:
      case 6:
      case 7:
        return submit();
      case 8:
        return cancel();
      case 9:
        return texts();
      case 10:
        return stats();
      case 11:
        return prewarm();
      case 12:
        return log();
      case 13:
        if (in_.one_in(8)) drain(*book_);
        return;
      case 14:
        take_event(*book_);
        return;
      case 15:
        return budget();
      case 16:
        return mode();
      case 17:
      case 18:
        return save();
      case 19:
      case 20:
        return restore();
      default:
        return poll();
    }
  }

  /// The engine that the call is for; sometimes none, or another handle.
  pumice_engine* engine() {
    is_engine_ = false;
    if (in_.one_in(64)) return reinterpret_cast<pumice_engine*>(ground().model);
    if (in_.one_in(64)) return nullptr;
    is_engine_ = book_->engine != nullptr;
    return book_->engine;
  }

  /// A number that was given out, by either engine, or a bit beside one, or any.
  uint64_t number() {
    if (in_.one_in(32)) return in_.value<uint64_t>();
    if (numbers_.empty() || in_.one_in(32)) return 0;
    const uint64_t known = numbers_[in_.byte() % numbers_.size()];
    return in_.one_in(16) ? known ^ uint64_t { 1 } << in_.byte() % 64 : known;
  }

  void create() {
    if (book_->engine != nullptr) return;
    Lent lent(in_);
    Struct<pumice_engine_options> options(in_);
    pumice_engine_options& o = options.value();
    o.context_tokens = in_.one_in(8) ? in_.amount(200) : 64;
    o.n_sequences = in_.one_in(4) ? in_.amount(5) : 2;
    o.kv_tokens = in_.one_in(4) ? in_.amount(200) : 0;
    // Between KV that every machine has and KV that none has, the machine would decide what
    // happens.
    const uint64_t asked =
        o.kv_tokens != 0 ? o.kv_tokens : uint64_t{o.n_sequences} * o.context_tokens;
    if (asked > kSmallKvTokens && asked < kHugeKvTokens) o.kv_tokens = kHugeKvTokens;
    o.token_budget = in_.one_in(4) ? in_.amount(40) : 0;
    o.chunk_tokens = in_.one_in(4) ? in_.amount(40) : 0;
    o.overflow = static_cast<pumice_overflow>(in_.amount(3));
    if (in_.one_in(8)) o.kv_type = lent.string();
    if (in_.one_in(8)) o.arithmetic = lent.string();
    o.cache_host_bytes = in_.one_in(8) ? 1 << 16 : 0;
    o.invariant = in_.boolean();
    o.no_prefix_cache = in_.boolean();
    o.prewarm_later = in_.boolean();
    const bool plain = in_.byte() % 4 != 3;
    const auto before = device_bytes(ground());
    auto* engine = reinterpret_cast<pumice_engine*>(this);
    const pumice_status status =
        check(pumice_engine_create(ground().model, plain ? nullptr : options.pointer(), &engine));
    promise((status == PUMICE_OK) == (engine != nullptr), "an engine, or why there is none");
    promise(engine != nullptr || device_bytes(ground()) == before, "no engine has no memory");
    book_->engine = engine;
  }

  static void close(Book& book) {
    pumice_engine_close(book.engine);
    book = {};
  }

  void open_session() {
    Lent lent(in_);
    Struct<pumice_session_options> options(in_);
    options.value().sampling = lent.sampling();
    options.value().service_class = static_cast<pumice_service_class>(in_.amount(3));
    options.value().priority = in_.value<int8_t>();
    if (in_.one_in(4)) options.value().salt = lent.string();
    if (in_.one_in(16)) options.value().max_tokens_per_second = 1000.0f * in_.value<int8_t>();
    options.value().sentences = in_.boolean();
    pumice_engine* engine = this->engine();
    pumice_session session = UINT64_MAX;
    const pumice_status status = check(pumice_session_open(
        engine, in_.one_in(2) ? options.pointer() : nullptr, in_.one_in(64) ? nullptr : &session));
    if (status != PUMICE_OK) {
      promise(session == 0 || session == UINT64_MAX, "a session, or none");
      return;
    }
    promise(is_engine_ && session != 0 && !known(session), "sessions have new numbers");
    numbers_.push_back(session);
    book_->sessions.emplace(session, 0);
  }

  void close_session() {
    pumice_engine* engine = this->engine();
    const pumice_session session = number();
    const pumice_status status = check(pumice_session_close(engine, session));
    if (!is_engine_) return promise(status == PUMICE_INVALID_ARGUMENT, "no engine is no engine");
    const bool was_open = book_->sessions.erase(session) == 1;
    promise(status == (was_open ? PUMICE_OK : PUMICE_NOT_FOUND), "sessions close once");
  }

  void session_tokens() {
    pumice_engine* engine = this->engine();
    const pumice_session session = number();
    std::vector<uint32_t> tokens(in_.byte() % 64);
    size_t n = SIZE_MAX;
    const pumice_status status =
        check(pumice_session_tokens(engine, session, tokens.data(), tokens.size(), &n));
    if (!is_engine_) return promise(status == PUMICE_INVALID_ARGUMENT, "no engine is no engine");
    promise((status == PUMICE_NOT_FOUND) == !book_->sessions.contains(session),
            "sessions that are open are known");
    if (status == PUMICE_NOT_FOUND) return promise(n == 0, "an error has nothing");
    check_array(status, tokens.data(), tokens.size(), n);
    tokens.resize(std::min(tokens.size(), n));
    for (const uint32_t token : tokens) promise(token < kVocabulary, "tokens exist");
  }

  void submit() {
    Lent lent(in_);
    Struct<pumice_request_options> options(in_);
    pumice_request_options& o = options.value();
    lent.prompt(o);
    lent.stops(o);
    o.special = in_.boolean();
    o.max_new_tokens = in_.amount(24);
    o.sampling = lent.sampling();
    if (in_.one_in(16)) o.timeout_us = in_.amount(200);
    o.ignore_end = in_.boolean();
    pumice_engine* engine = this->engine();
    const pumice_session session = number();
    pumice_request request = UINT64_MAX;
    const pumice_status status = check(pumice_submit(engine, session, options.pointer(), &request));
    const auto open = book_->sessions.find(session);
    if (status != PUMICE_OK) {
      promise(request == 0, "a request, or none");
      if (status == PUMICE_BUSY) {
        promise(open != book_->sessions.end() && book_->requests.contains(open->second),
                "a session is busy with a request");
      }
      return;
    }
    promise(is_engine_ && request != 0 && !known(request), "requests have new numbers");
    promise(session == 0 || open != book_->sessions.end(), "sessions that are closed are gone");
    numbers_.push_back(request);
    book_->requests.emplace(request, session);
    if (session != 0) open->second = request;
  }

  void cancel() {
    pumice_engine* engine = this->engine();
    const pumice_request request = number();
    const pumice_status status = check(pumice_cancel(engine, request));
    if (!is_engine_) return promise(status == PUMICE_INVALID_ARGUMENT, "no engine is no engine");
    const bool is_open = book_->requests.contains(request);
    promise(status == (is_open ? PUMICE_OK : PUMICE_NOT_FOUND), "open requests are known");
  }

  void poll() {
    pumice_engine* engine = this->engine();
    const uint64_t budget_us = in_.one_in(4) ? PUMICE_NO_LIMIT : in_.byte();
    const pumice_status status = in_.one_in(8) ? check(pumice_wait(engine, in_.byte()))
                                               : check(pumice_poll(engine, budget_us));
    promise(status == (is_engine_ ? PUMICE_OK : PUMICE_INVALID_ARGUMENT), "an engine goes on");
  }

  /// True if there was one.
  bool take_event(Book& book, bool only_usual = false) {
    Struct<pumice_event> event(in_);
    if (only_usual) event.value().struct_size = sizeof(pumice_event);
    const size_t size = event.value().struct_size;
    event.value().kind = 77;
    const pumice_status status = check(pumice_next_event(book.engine, event.pointer()));
    if (status != PUMICE_OK) {
      promise(book.engine == nullptr || !event.usual(), "events can be taken");
      return false;
    }
    promise(event.value().struct_size == size, "a struct keeps its size");
    // Of a struct that is shorter the rest is not written.
    if (size < sizeof(pumice_event)) return taken_blindly(book);
    return note_event(book, event.value());
  }

  /// An event of which nobody knows what it was: stats tell whether it was a last one. The book
  /// cannot go on.
  bool taken_blindly(Book& book) {
    close(book);
    return false;
  }

  bool note_event(Book& book, const pumice_event& event) {
    promise(event.kind >= PUMICE_EVENT_NONE && event.kind <= PUMICE_EVENT_BUDGET_MET, "a kind");
    if (event.kind == PUMICE_EVENT_NONE) return false;
    if (event.kind == PUMICE_EVENT_BUDGET_MET) {
      promise(event.request == 0 && event.session == 0, "a budget is of no request");
      return true;
    }
    const auto it = book.requests.find(event.request);
    promise(it != book.requests.end(), "events are of open requests, and none follows the last");
    promise(event.session == it->second, "an event has its request's session");
    promise(event.text.data != nullptr && event.text.data[event.text.length] == '\0', "text ends");
    promise(event.message.data[event.message.length] == '\0', "a message ends");
    promise(!event.has_token || event.token < kVocabulary, "tokens exist");
    if (event.kind != PUMICE_EVENT_FINISHED) return true;
    promise((event.end_reason == PUMICE_END_ERROR) == (event.status != PUMICE_OK),
            "an error has a status");
    promise(event.end_reason != PUMICE_END_NONE, "what ends has a reason");
    book.requests.erase(it);
    return true;
  }

  /// All requests end, each once.
  void drain(Book& book) {
    if (book.engine == nullptr) return;
    promise(check(pumice_set_memory_budget(book.engine, PUMICE_NO_LIMIT)) == PUMICE_OK,
            "all memory is a budget");
    while (take_event(book, true)) {
    }
    // Those that go on for ever too.
    for (const auto& [request, session] : book.requests) {
      promise(check(pumice_cancel(book.engine, request)) == PUMICE_OK, "open requests are known");
      if (in_.one_in(2)) break;
    }
    for (int i = 0; i < 4000 && !book.requests.empty(); ++i) {
      promise(check(pumice_poll(book.engine, PUMICE_NO_LIMIT)) == PUMICE_OK, "an engine goes on");
      while (take_event(book, true)) {
      }
      if (i < 400 || book.requests.empty()) continue;
      promise(check(pumice_cancel(book.engine, book.requests.begin()->first)) == PUMICE_OK,
              "open requests are known");
    }
    promise(book.requests.empty(), "requests end");
    promise(!take_event(book, true), "and nothing follows");
  }

  void budget() {
    pumice_engine* engine = this->engine();
    uint64_t bytes = PUMICE_NO_LIMIT;
    if (!in_.one_in(4)) {  // as much as there is, or about as much, for less is often too little
      bytes = device_bytes(ground()) + (uint64_t{32} << 10) - uint64_t{in_.byte()} * 1024;
    }
    if (in_.one_in(16)) bytes = in_.value<uint64_t>();
    const pumice_status status = check(pumice_set_memory_budget(engine, bytes));
    if (!is_engine_) return promise(status == PUMICE_INVALID_ARGUMENT, "no engine is no engine");
    promise(status == PUMICE_OK || (status == PUMICE_DOES_NOT_FIT && bytes != PUMICE_NO_LIMIT),
            "a budget can be met, or not");
  }

  void mode() {
    pumice_engine* engine = this->engine();
    const auto mode = static_cast<pumice_mode>(in_.amount(4));
    const pumice_status status = check(pumice_set_mode(engine, mode));
    const bool known_mode = mode >= PUMICE_MODE_FAST && mode <= PUMICE_MODE_BACKGROUND;
    promise(status == (is_engine_ && known_mode ? PUMICE_OK : PUMICE_INVALID_ARGUMENT),
            "modes are the header's");
  }

  void save() {
    pumice_engine* engine = this->engine();
    const pumice_session session = number();
    const void* bytes = this;
    size_t n_bytes = SIZE_MAX;
    const pumice_status status = check(pumice_session_save(engine, session, &bytes, &n_bytes));
    if (status != PUMICE_OK) promise(bytes == nullptr && n_bytes == 0, "an error has nothing");
    if (!is_engine_) return promise(status == PUMICE_INVALID_ARGUMENT, "no engine is no engine");
    promise((status == PUMICE_NOT_FOUND) == !book_->sessions.contains(session),
            "sessions that are open are known");
    if (status != PUMICE_OK) return;
    promise(n_bytes > 0, "a session is something");
    const auto* first = static_cast<const unsigned char*>(bytes);
    saved_.assign(first, first + n_bytes);
  }

  void restore() {
    std::vector<unsigned char> bytes = saved_;
    if (in_.one_in(8)) {
      const std::string any = in_.text();
      bytes.assign(any.begin(), any.end());
    } else if (in_.one_in(4)) {
      bytes.resize(in_.value<uint16_t>() % bytes.size());
    } else if (in_.one_in(3)) {
      bytes[in_.value<uint16_t>() % bytes.size()] ^= static_cast<unsigned char>(1 | in_.byte());
    }
    Struct<pumice_restore_options> options(in_);
    options.value().tokens_only = in_.boolean();
    pumice_engine* engine = this->engine();
    pumice_session session = UINT64_MAX;
    const pumice_status status =
        check(pumice_session_restore(engine, bytes.empty() ? nullptr : bytes.data(), bytes.size(),
                                     in_.one_in(2) ? options.pointer() : nullptr, &session));
    if (status != PUMICE_OK) return promise(session == 0, "a session, or none");
    promise(is_engine_ && bytes == saved_ && session != 0 && !known(session),
            "only what was saved is restored, and has a new number");
    numbers_.push_back(session);
    book_->sessions.emplace(session, 0);
  }

  void texts() {
    Lent lent(in_);
    const pumice_string text = lent.string();
    const pumice_model* model =
        in_.one_in(32) ? reinterpret_cast<const pumice_model*>(ground().device) : ground().model;
    std::vector<uint32_t> tokens(in_.byte() % 32);
    size_t n = SIZE_MAX;
    const pumice_status status =
        check(pumice_tokenize(model, text, in_.boolean(), tokens.data(), tokens.size(), &n));
    check_array(status, tokens.data(), tokens.size(), n);
    if (in_.one_in(2)) {
      for (uint32_t& token : tokens) token = in_.amount(256);
    }
    std::string out(in_.byte(), 'x');
    n = SIZE_MAX;
    const pumice_status back =
        check(pumice_detokenize(model, tokens.data(), tokens.size(), out.data(), out.size(), &n));
    check_array(back, out.data(), out.size(), n);
  }

  void stats() {
    pumice_engine* engine = this->engine();
    Struct<pumice_stats> stats(in_);
    stats.value().steps = UINT64_MAX;
    const pumice_status status = check(pumice_get_stats(engine, stats.pointer()));
    if (!stats.usual()) return;
    promise(status == (is_engine_ ? PUMICE_OK : PUMICE_INVALID_ARGUMENT), "engines have stats");
    if (!is_engine_) return promise(stats.value().steps == 0, "an error has none");
    promise(stats.value().open_requests == book_->requests.size(), "open requests are counted");
    promise(stats.value().open_sessions == book_->sessions.size(), "open sessions are counted");
  }

  void prewarm() {
    pumice_engine* engine = this->engine();
    uint32_t done = 7;
    uint32_t total = 3;
    const pumice_status status = check(pumice_prewarm(engine, in_.byte(), &done, &total));
    promise(status == (is_engine_ ? PUMICE_OK : PUMICE_INVALID_ARGUMENT), "engines get ready");
    promise(done <= total, "no more is done than there is");
  }

  void log() {
    Struct<pumice_log> log(in_);
    const pumice_status status = check(pumice_next_log(ground().device, log.pointer()));
    if (!log.usual()) return;
    promise(status == PUMICE_OK, "a device has a log");
    promise(log.value().level != PUMICE_LOG_ERROR, "nothing here is an error of the library's");
  }

  /// Where something must be there is nothing.
  void nulls() {
    Struct<pumice_model_info> info(in_);
    check(pumice_model_get_info(in_.one_in(2) ? ground().model : nullptr, info.pointer()));
    Struct<pumice_device_info> device_info(in_);
    check(pumice_device_get_info(in_.one_in(2) ? ground().device : nullptr, device_info.pointer()));
    Lent lent(in_);
    Struct<pumice_model_options> options(in_);
    if (in_.one_in(2)) options.value().path = lent.string();
    auto* model = reinterpret_cast<pumice_model*>(this);
    promise(check(pumice_model_load(in_.one_in(4) ? nullptr : ground().device, options.pointer(),
                                    &model)) != PUMICE_OK,
            "such a file is no model");
    promise(model == nullptr, "an error has no model");
    pumice_engine_close(nullptr);
    pumice_model_close(nullptr);
    pumice_device_close(nullptr);
    promise(check(pumice_submit(book_->engine, 0, nullptr, nullptr)) == PUMICE_INVALID_ARGUMENT,
            "nothing is nothing");
    promise(check(pumice_next_event(book_->engine, nullptr)) == PUMICE_INVALID_ARGUMENT,
            "nothing is nothing");
  }

  bool known(uint64_t number) const {
    return std::find(numbers_.begin(), numbers_.end(), number) != numbers_.end();
  }

  Bytes& in_;
  std::array<Book, 2> books_;
  Book* book_ = &books_[0];
  bool is_engine_ = false;
  std::vector<uint64_t> numbers_;                      // ever given out, by both
  std::vector<unsigned char> saved_ = ground().saved;  // the last session that was
};

}  // namespace
}  // namespace pumice::fuzz

/// Before the first input, whose time is limited: a driver may take long to compile.
extern "C" int LLVMFuzzerInitialize(int*, char***) {
  pumice::fuzz::ground();
  return std::atexit(pumice::fuzz::close_ground);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  pumice::fuzz::Bytes in(data, size);
  pumice::fuzz::Run(in).all();
  return 0;
}
