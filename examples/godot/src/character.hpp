// A node that converses and acts: its state between frames. What Godot calls is registered in
// extension.cpp.
#pragma once

#include <cstdint>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "godot.hpp"
#include "runtime.hpp"

/// What all characters of a game share.
struct Game {
  explicit Game(const Godot& engine_functions) : godot(engine_functions) {}

  const Godot godot;
  std::map<std::string, std::weak_ptr<Runtime>> runtimes;  ///< by the model's path
};

class Character {
 public:
  Character(Game& game, GDExtensionObjectPtr node) : game_(game), node_(node) {}
  Character(const Character&) = delete;
  Character& operator=(const Character&) = delete;
  ~Character();

  void enter();    ///< it is in the scene
  void process();  ///< once a frame

  // What scripts call. Those that give a bool emit `failed` where that is false.

  /// Answers what is said to it.
  bool say(const std::string& text);
  /// Answers with JSON that is valid under `actions`.
  bool act(const std::string& text);
  /// The answer ends with what was said so far.
  void interrupt();
  /// An answer that was interrupted, by a saved game too, goes on.
  bool go_on();
  /// The last reply was never given, nor its question asked. One under way is interrupted, and gone
  /// when is_speaking() is false.
  bool take_back();
  /// Takes the last reply back and gives another to the same question.
  bool answer_again();
  /// For a saved game, also while it speaks; empty where that failed.
  Bytes save();
  /// What `save` gave, with the same model. Nothing has changed where that fails.
  bool load(const Bytes& saved);
  bool can_speak() { return session_ != 0; }
  bool is_speaking() { return answer_ != nullptr; }

  void set_model(const std::string& value) { model_ = value; }
  std::string get_model() { return model_; }
  void set_persona(const std::string& value) { persona_ = value; }
  std::string get_persona() { return persona_; }
  void set_actions(const std::string& value) { actions_ = value; }
  std::string get_actions() { return actions_; }
  void set_milliseconds_per_frame(double value) { milliseconds_per_frame_ = value; }
  double get_milliseconds_per_frame() { return milliseconds_per_frame_; }
  void set_max_tokens(std::int64_t value) { max_tokens_ = value; }
  std::int64_t get_max_tokens() { return max_tokens_; }
  void set_temperature(double value) { temperature_ = value; }
  double get_temperature() { return temperature_; }
  void set_seed(std::int64_t value) { seed_ = value; }
  std::int64_t get_seed() { return seed_; }

 private:
  void prepare();
  void read();
  pumice::Result<pumice_session> open();
  pumice::Status ask(const std::string& text, const pumice_constraint* constraint);
  pumice::Status begin(pumice_request_options& options);
  pumice::Status check_ready() const;
  /// How many it had before the last one.
  pumice::Result<std::uint32_t> turns_before();
  pumice_sampling sampling() const;

  std::string global_path(const std::string& path);
  template <typename T>
  void emit(const char* signal, const T& value);
  /// Emits it as an error, if it is one.
  bool succeeded(const pumice::Status& status);

  Game& game_;
  const GDExtensionObjectPtr node_;
  std::string model_, persona_, actions_;
  double milliseconds_per_frame_ = 2;
  std::int64_t max_tokens_ = 120;
  double temperature_ = 0.8;
  std::int64_t seed_ = 1;

  std::shared_ptr<Runtime> runtime_;
  std::future<pumice::Result<pumice::Constraint>> compiling_;
  std::optional<pumice::Constraint> constraint_;
  pumice_session session_ = 0;
  pumice_request request_ = 0;
  std::shared_ptr<Answer> answer_;
  bool acts_ = false;
  bool taken_back_ = false;
  std::uint32_t turns_ = 0;    // that it had before this one
  std::int64_t replies_ = 0;   // that were taken back for another one: each has a seed of its own
  double last_progress_ = -1;  // that was emitted
  std::string last_failure_;   // of frames
};
