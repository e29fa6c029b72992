#include "godot.hpp"

#include <memory>

namespace {

constexpr std::uint32_t kUsageDefault = 6;  // PROPERTY_USAGE_DEFAULT: stored, and in the inspector

template <typename Function>
Function function(GDExtensionInterfaceGetProcAddress get, const char* name) {
  return reinterpret_cast<Function>(get(name));
}

}  // namespace

#define GET(name) name(function<decltype(name)>(get, #name))

Godot::Godot(GDExtensionInterfaceGetProcAddress get, GDExtensionClassLibraryPtr library_)
    : library(library_),
      GET(classdb_construct_object2),
      GET(classdb_register_extension_class4),
      GET(classdb_register_extension_class_method),
      GET(classdb_register_extension_class_property),
      GET(classdb_register_extension_class_signal),
      GET(classdb_unregister_extension_class),
      GET(get_variant_from_type_constructor),
      GET(get_variant_to_type_constructor),
      GET(global_get_singleton),
      GET(object_set_instance),
      GET(packed_byte_array_operator_index),
      GET(packed_byte_array_operator_index_const),
      GET(print_error),
      GET(string_name_new_with_utf8_chars),
      GET(string_new_with_utf8_chars_and_len),
      GET(string_to_utf8_chars),
      GET(variant_call),
      GET(variant_destroy),
      GET(variant_get_ptr_constructor),
      GET(variant_get_ptr_destructor) {}

#undef GET

void Godot::destroy(GDExtensionVariantType type, void* value) const {
  const GDExtensionPtrDestructor destructor = variant_get_ptr_destructor(type);
  if (destructor != nullptr) destructor(value);  // plain values need none
}

void Builtin<std::string>::make(const Godot& godot, void* memory, const std::string& value) {
  godot.string_new_with_utf8_chars_and_len(memory, value.data(),
                                           static_cast<GDExtensionInt>(value.size()));
}

std::string Builtin<std::string>::read(const Godot& godot, const void* memory) {
  std::string value(static_cast<std::size_t>(godot.string_to_utf8_chars(memory, nullptr, 0)), '\0');
  godot.string_to_utf8_chars(memory, value.data(), static_cast<GDExtensionInt>(value.size()));
  return value;
}

// The engine's C interface has the bytes of an array; its size is known by its methods alone, which
// variants have.
void Builtin<Bytes>::make(const Godot& godot, void* memory, const Bytes& value) {
  godot.variant_get_ptr_constructor(kType, 0)(memory, nullptr);
  if (value.empty()) return;
  Variant array(godot, Variant::Existing{kType, memory});
  const Variant size(godot, static_cast<std::int64_t>(value.size()));
  array.call("resize", {&size});
  godot.destroy(kType, memory);
  godot.get_variant_to_type_constructor(kType)(memory, array.get());
  std::memcpy(godot.packed_byte_array_operator_index(memory, 0), value.data(), value.size());
}

Bytes Builtin<Bytes>::read(const Godot& godot, const void* memory) {
  Variant array(godot, Variant::Existing{kType, memory});
  std::int64_t n_bytes = 0;
  array.call("size", {}, n_bytes);
  if (n_bytes == 0) return {};
  const std::uint8_t* first = godot.packed_byte_array_operator_index_const(memory, 0);
  return {first, first + n_bytes};
}

bool Variant::call(const char* method, std::initializer_list<const Variant*> arguments,
                   Room& returned) {
  std::vector<GDExtensionConstVariantPtr> pointers;
  for (const Variant* argument : arguments) pointers.push_back(argument->get());
  GDExtensionCallError error{};
  Name name(godot_, method);
  godot_.variant_call(get(), name.get(), pointers.data(),
                      static_cast<GDExtensionInt>(pointers.size()), returned.get(), &error);
  if (error.error == GDEXTENSION_CALL_OK) return true;
  godot_.variant_destroy(returned.get());
  return false;
}

Described::Described(const Godot& godot, GDExtensionVariantType type, const char* name)
    : name_(godot, name), class_name_(godot, ""), hint_(godot, "") {
  info = {type, name_.get(), class_name_.get(), 0, hint_.get(), kUsageDefault};
}

void ClassBuilder::add_method(const char* name, GDExtensionClassMethodInfo& info,
                              GDExtensionVariantType result,
                              const std::vector<GDExtensionVariantType>& types,
                              std::initializer_list<const char*> argument_names) {
  Name method_name(godot_, name);
  Described returned(godot_, result, "");
  std::vector<std::unique_ptr<Described>> arguments;
  std::vector<GDExtensionPropertyInfo> infos;
  const auto* argument_name = argument_names.begin();
  for (const GDExtensionVariantType type : types) {
    arguments.push_back(std::make_unique<Described>(godot_, type, *argument_name++));
    infos.push_back(arguments.back()->info);
  }
  std::vector<GDExtensionClassMethodArgumentMetadata> metadata(
      types.size(), GDEXTENSION_METHOD_ARGUMENT_METADATA_NONE);
  info.name = method_name.get();
  info.method_userdata = const_cast<Godot*>(&godot_);
  info.method_flags = GDEXTENSION_METHOD_FLAGS_DEFAULT;
  info.return_value_info = &returned.info;
  info.argument_count = static_cast<std::uint32_t>(infos.size());
  info.arguments_info = infos.data();
  info.arguments_metadata = metadata.data();
  Name class_name(godot_, class_);
  godot_.classdb_register_extension_class_method(godot_.library, class_name.get(), &info);
}

void ClassBuilder::add_property(const char* name, GDExtensionVariantType type, const char* set,
                                const char* get) {
  Described property(godot_, type, name);
  Name class_name(godot_, class_), set_name(godot_, set), get_name(godot_, get);
  godot_.classdb_register_extension_class_property(godot_.library, class_name.get(), &property.info,
                                                   set_name.get(), get_name.get());
}

void ClassBuilder::add_signal(const char* name, GDExtensionVariantType type, const char* argument) {
  Described described(godot_, type, argument);
  Name class_name(godot_, class_), signal_name(godot_, name);
  godot_.classdb_register_extension_class_signal(godot_.library, class_name.get(),
                                                 signal_name.get(), &described.info, 1);
}
