// What Godot loads: the class PumiceCharacter, and what scripts see of it.
#include <memory>

#include "character.hpp"
#include "godot.hpp"

namespace {

constexpr const char* kClass = "PumiceCharacter";
// Of Node and Object, from the engine's documentation.
constexpr std::int32_t kPostInitialize = 0, kReady = 13, kProcess = 17;

GDExtensionObjectPtr create(void* userdata, GDExtensionBool notify) {
  Game& game = *static_cast<Game*>(userdata);
  Name parent(game.godot, "Node"), name(game.godot, kClass);
  const GDExtensionObjectPtr node = game.godot.classdb_construct_object2(parent.get());
  game.godot.object_set_instance(node, name.get(), new Character(game, node));
  if (notify) {
    const Variant what(game.godot, std::int64_t{kPostInitialize});
    Variant(game.godot, node).call("notification", {&what});
  }
  return node;
}

void destroy(void* /*userdata*/, GDExtensionClassInstancePtr instance) {
  delete static_cast<Character*>(instance);
}

void notify(GDExtensionClassInstancePtr instance, std::int32_t what, GDExtensionBool /*reversed*/) {
  Character& character = *static_cast<Character*>(instance);
  if (what == kReady) character.enter();
  if (what == kProcess) character.process();
}

void initialize(void* userdata, GDExtensionInitializationLevel level) {
  if (level != GDEXTENSION_INITIALIZATION_SCENE) return;
  const Godot& godot = static_cast<Game*>(userdata)->godot;
  GDExtensionClassCreationInfo4 info{};
  info.is_exposed = 1;
  info.is_runtime = 1;  // in the editor it only has its properties
  info.create_instance_func = create;
  info.free_instance_func = destroy;
  info.notification_func = notify;
  info.class_userdata = userdata;
  Name name(godot, kClass), parent(godot, "Node");
  godot.classdb_register_extension_class4(godot.library, name.get(), parent.get(), &info);

  ClassBuilder builder(godot, kClass);
  builder.property<&Character::set_model, &Character::get_model>("model");
  builder.property<&Character::set_persona, &Character::get_persona>("persona");
  builder.property<&Character::set_actions, &Character::get_actions>("actions");
  builder.property<&Character::set_milliseconds_per_frame, &Character::get_milliseconds_per_frame>(
      "milliseconds_per_frame");
  builder.property<&Character::set_max_tokens, &Character::get_max_tokens>("max_tokens");
  builder.property<&Character::set_temperature, &Character::get_temperature>("temperature");
  builder.property<&Character::set_seed, &Character::get_seed>("seed");
  builder.method<&Character::say>("say", {"text"});
  builder.method<&Character::act>("act", {"text"});
  builder.method<&Character::interrupt>("interrupt");
  builder.method<&Character::go_on>("go_on");
  builder.method<&Character::take_back>("take_back");
  builder.method<&Character::answer_again>("answer_again");
  builder.method<&Character::save>("save");
  builder.method<&Character::load>("load", {"saved"});
  builder.method<&Character::can_speak>("can_speak");
  builder.method<&Character::is_speaking>("is_speaking");
  builder.signal<double>("loading", "progress");
  builder.signal<std::string>("sentence", "text");
  builder.signal<std::string>("answered", "text");
  builder.signal<std::string>("acted", "json");
  builder.signal<std::string>("failed", "reason");
}

void deinitialize(void* userdata, GDExtensionInitializationLevel level) {
  if (level != GDEXTENSION_INITIALIZATION_SCENE) return;
  const std::unique_ptr<Game> game(static_cast<Game*>(userdata));
  Name name(game->godot, kClass);
  game->godot.classdb_unregister_extension_class(game->godot.library, name.get());
}

}  // namespace

extern "C" __attribute__((visibility("default"))) GDExtensionBool pumice_godot_init(
    GDExtensionInterfaceGetProcAddress get, GDExtensionClassLibraryPtr library,
    GDExtensionInitialization* initialization) {
  initialization->minimum_initialization_level = GDEXTENSION_INITIALIZATION_SCENE;
  initialization->userdata = new Game(Godot(get, library));
  initialization->initialize = initialize;
  initialization->deinitialize = deinitialize;
  return 1;
}
