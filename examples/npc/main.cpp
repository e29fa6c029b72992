// Three characters tell stories while this program draws them, all on one Vulkan device and queue
// that are this program's. Frames have priority: the library gets a few milliseconds of each.
//
//   npc MODEL.gguf [--window] [--frames N] [--fps N] [--budget MICROSECONDS]
//       [--screenshot FILE.ppm] [--restore FILE] [--save FILE]
//
// Ends after N frames (900), once every character has answered if --frames is 0, or when its window
// is closed; without --window it draws where nobody sees it. At the end --save keeps what was said
// and what the library knows of it, and --restore begins with that: each story goes on in the
// middle of its sentence. Exit code 1: something failed, the device was lost, or a character said
// nothing.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "picture.hpp"
#include "pumice/pumice_vulkan.h"
#include "renderer.hpp"
#include "window.hpp"

namespace {

using Clock = std::chrono::steady_clock;

struct Options {
  std::string model;
  std::string screenshot;
  std::string restore;
  std::string save;
  bool window = false;
  long frames = 900;
  long fps = 60;
  long budget_us = 4000;
};

Options read_options(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (!word.starts_with("--")) {
      options.model = word;
      continue;
    }
    if (word == "--window") {
      options.window = true;
      continue;
    }
    if (++i == argc) throw std::runtime_error(word + " needs a value");
    if (word == "--screenshot")
      options.screenshot = argv[i];
    else if (word == "--restore")
      options.restore = argv[i];
    else if (word == "--save")
      options.save = argv[i];
    else if (word == "--frames")
      options.frames = std::strtol(argv[i], nullptr, 10);
    else if (word == "--fps")
      options.fps = std::max(1L, std::strtol(argv[i], nullptr, 10));
    else if (word == "--budget")
      options.budget_us = std::strtol(argv[i], nullptr, 10);
    else
      throw std::runtime_error("unknown option " + word);
  }
  if (options.model.empty()) throw std::runtime_error("usage: npc MODEL.gguf [--frames N] …");
  return options;
}

void check(pumice_status status) {
  if (status != PUMICE_OK) throw std::runtime_error(pumice_last_error());
}

/// Lengths are the machine's: a saved game stays on it.
void write_piece(std::ostream& file, const void* bytes, uint64_t n_bytes) {
  file.write(reinterpret_cast<const char*>(&n_bytes), sizeof n_bytes);
  file.write(static_cast<const char*>(bytes), static_cast<std::streamsize>(n_bytes));
}

std::string read_piece(std::istream& file, const std::string& path) {
  constexpr uint64_t kMostBytes = 1 << 30;
  uint64_t n_bytes = 0;
  file.read(reinterpret_cast<char*>(&n_bytes), sizeof n_bytes);
  if (!file || n_bytes > kMostBytes) throw std::runtime_error(path + " is not a saved game");
  std::string bytes(n_bytes, '\0');
  file.read(bytes.data(), static_cast<std::streamsize>(n_bytes));
  if (!file) throw std::runtime_error(path + " is not a saved game");
  return bytes;
}

struct Character {
  const char* name;
  const char* asked;
  glm::vec4 color;
  pumice_session session = 0;
  std::string said = {};
  bool is_done = false;
};

/// The library on the host's device, and what it is asked.
class Cast {
 public:
  /// `saved`: a file of `save`; empty: the stories begin.
  Cast(const pumice_vulkan_device& host, const std::string& model_path, const std::string& saved) {
    check(pumice_vulkan_device_open(&host, nullptr, &device_));
    pumice_model_options model{};
    model.struct_size = sizeof model;
    model.path = pumice_str(model_path.c_str());
    check(pumice_model_load(device_, &model, &model_));
    pumice_engine_options engine{};
    engine.struct_size = sizeof engine;
    engine.n_sequences = static_cast<uint32_t>(characters.size());
    engine.context_tokens = 256;
    check(pumice_engine_create(model_, &engine, &engine_));
    if (!saved.empty()) {
      restore(saved);
    } else {
      for (Character& character : characters) open(character);
    }
    for (Character& character : characters) ask(character, saved.empty());
  }
  ~Cast() {
    pumice_engine_close(engine_);
    pumice_model_close(model_);
    pumice_device_close(device_);
  }
  Cast(const Cast&) = delete;
  Cast& operator=(const Cast&) = delete;

  /// Once a frame: never waits. False: the device was lost, and nobody says any more.
  bool poll(uint64_t microseconds) {
    const pumice_status status = pumice_poll(engine_, microseconds);
    if (status != PUMICE_DEVICE_LOST) check(status);
    take_events();
    return status != PUMICE_DEVICE_LOST;
  }
  void take_events() {
    while (true) {
      pumice_event event{};
      event.struct_size = sizeof event;
      check(pumice_next_event(engine_, &event));
      if (event.kind == PUMICE_EVENT_NONE) return;
      if (event.kind == PUMICE_EVENT_DEVICE_LOST) {
        std::fprintf(stderr, "npc: %.*s\n", static_cast<int>(event.message.length),
                     event.message.data);
      }
      const auto speaker = std::ranges::find_if(characters, [&](const Character& character) {
        return character.session == event.session;
      });
      if (speaker == characters.end()) continue;
      speaker->said.append(event.text.data, event.text.length);
      if (event.kind != PUMICE_EVENT_FINISHED) continue;
      check(event.status);
      speaker->is_done = true;
    }
  }
  /// A saved game: of each character what it has said, and its session. All events have been taken.
  void save(const std::string& path) {
    std::ofstream file(path, std::ios::binary);
    for (const Character& character : characters) {
      const void* bytes = nullptr;
      size_t n_bytes = 0;
      check(pumice_session_save(engine_, character.session, &bytes, &n_bytes));
      write_piece(file, character.said.data(), character.said.size());
      write_piece(file, bytes, n_bytes);
    }
    if (!file) throw std::runtime_error("cannot write " + path);
  }
  bool is_done() const {
    return std::ranges::all_of(characters,
                               [](const Character& character) { return character.is_done; });
  }

  std::vector<Character> characters = {
      {"FOX", "Once upon a time, a little fox", {0.92f, 0.50f, 0.20f, 1}},
      {"OWL", "One night, an old owl", {0.45f, 0.62f, 0.95f, 1}},
      {"FROG", "In a pond there was a frog who", {0.42f, 0.80f, 0.40f, 1}},
  };

 private:
  void restore(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    for (Character& character : characters) {
      character.said = read_piece(file, path);
      const std::string bytes = read_piece(file, path);
      check(
          pumice_session_restore(engine_, bytes.data(), bytes.size(), nullptr, &character.session));
    }
  }
  void open(Character& character) {
    pumice_sampling sampling{};
    sampling.struct_size = sizeof sampling;
    sampling.temperature = 0.8f;
    sampling.top_k = 40;
    sampling.seed = static_cast<uint64_t>(&character - characters.data()) + 1;
    pumice_session_options session{};
    session.struct_size = sizeof session;
    session.sampling = &sampling;
    check(pumice_session_open(engine_, &session, &character.session));
  }
  /// Without a prompt a restored session's answer goes on.
  void ask(Character& character, bool begins) {
    pumice_request_options request{};
    request.struct_size = sizeof request;
    if (begins) request.text = pumice_str(character.asked);
    request.special = 1;
    request.max_new_tokens = 100;
    pumice_request id = 0;
    check(pumice_submit(engine_, character.session, &request, &id));
  }

  pumice_device* device_ = nullptr;
  pumice_model* model_ = nullptr;
  pumice_engine* engine_ = nullptr;
};

/// Milliseconds that frames took, without the pauses between them.
class FrameTimes {
 public:
  void add(double ms) { all_.push_back(ms); }
  /// `part`: 0.5 is the median.
  double quantile(double part) const {
    std::vector<double> sorted = all_;
    std::ranges::sort(sorted);
    if (sorted.empty()) return 0;
    const double last = static_cast<double>(sorted.size() - 1);
    return sorted[static_cast<size_t>(std::ceil(part * last))];
  }
  double last() const { return all_.empty() ? 0 : all_.back(); }

 private:
  std::vector<double> all_;
};

Picture paint(const std::vector<Character>& characters, double seconds, double frame_ms) {
  const glm::vec4 paper(0.93f, 0.92f, 0.86f, 1), ink(0.12f, 0.12f, 0.15f, 1);
  Picture picture;
  picture.rectangle({0, 430}, {Renderer::kWidth, 110}, {0.16f, 0.21f, 0.18f, 1});
  for (size_t i = 0; i < characters.size(); ++i) {
    const Character& character = characters[i];
    const float left = 20 + 310 * static_cast<float>(i);
    const float angle = static_cast<float>(seconds) + static_cast<float>(i);
    picture.rectangle({left, 30}, {300, 250}, paper);
    picture.rectangle({left + 140, 280}, {20, 25}, paper);
    picture.text({left + 12, 42}, std::string(character.asked) + character.said, 34, 16, ink);
    picture.box({left + 150, 385}, angle, 75, character.color);
    picture.text({left + 130, 490}, character.name, 10, 1, character.color);
  }
  char line[64];
  std::snprintf(line, sizeof line, "FRAME %.1f MS", frame_ms);
  picture.text({20, 515}, line, 40, 1, paper);
  return picture;
}

void print(const std::vector<Character>& characters) {
  for (const Character& character : characters) {
    std::printf("%s: %s%s\n", character.name, character.asked, character.said.c_str());
  }
}

int run(const Options& options) {
  std::optional<Window> window;
  if (options.window) window.emplace(Renderer::kWidth, Renderer::kHeight);
  Renderer renderer(window ? &*window : nullptr);
  Cast cast(renderer.lent(), options.model, options.restore);
  FrameTimes times;
  const Clock::time_point start = Clock::now();
  const auto period = std::chrono::duration<double>(1.0 / static_cast<double>(options.fps));
  Clock::time_point next = start;
  for (long frame = 0; options.frames == 0 ? !cast.is_done() : frame < options.frames; ++frame) {
    if (window && window->is_closed()) break;
    const Clock::time_point begun = Clock::now();
    if (!cast.poll(static_cast<uint64_t>(options.budget_us))) {
      // What draws is lost too. A game would make its device anew and call pumice_vulkan_replace.
      print(cast.characters);
      return 1;
    }
    const double seconds = std::chrono::duration<double>(begun - start).count();
    renderer.draw(paint(cast.characters, seconds, times.last()).vertices());
    times.add(std::chrono::duration<double, std::milli>(Clock::now() - begun).count());
    next = std::max(next + std::chrono::duration_cast<Clock::duration>(period), Clock::now());
    std::this_thread::sleep_until(next);
  }
  if (!options.screenshot.empty()) renderer.save(options.screenshot);
  if (!options.save.empty()) cast.save(options.save);
  print(cast.characters);
  std::printf("frames: p50 %.2f ms, p99 %.2f ms, max %.2f ms\n", times.quantile(0.5),
              times.quantile(0.99), times.quantile(1));
  const bool all_spoke = std::ranges::all_of(
      cast.characters, [](const Character& character) { return !character.said.empty(); });
  return all_spoke ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(read_options(argc, argv));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "npc: %s\n", error.what());
    return 1;
  }
}
