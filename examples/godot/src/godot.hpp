// Godot's C interface as far as a class of nodes needs it: values, calls by name, and the
// registration of methods, properties and signals. Nothing here knows the library.
#pragma once

#include <gdextension_interface.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

using Bytes = std::vector<std::uint8_t>;

/// The engine's functions, got by name, and what is made with them. The engine's main thread only.
class Godot {
 public:
  Godot(GDExtensionInterfaceGetProcAddress get, GDExtensionClassLibraryPtr library);

  GDExtensionClassLibraryPtr library;

  GDExtensionInterfaceClassdbConstructObject2 classdb_construct_object2;
  GDExtensionInterfaceClassdbRegisterExtensionClass4 classdb_register_extension_class4;
  GDExtensionInterfaceClassdbRegisterExtensionClassMethod classdb_register_extension_class_method;
  GDExtensionInterfaceClassdbRegisterExtensionClassProperty
      classdb_register_extension_class_property;
  GDExtensionInterfaceClassdbRegisterExtensionClassSignal classdb_register_extension_class_signal;
  GDExtensionInterfaceClassdbUnregisterExtensionClass classdb_unregister_extension_class;
  GDExtensionInterfaceGetVariantFromTypeConstructor get_variant_from_type_constructor;
  GDExtensionInterfaceGetVariantToTypeConstructor get_variant_to_type_constructor;
  GDExtensionInterfaceGlobalGetSingleton global_get_singleton;
  GDExtensionInterfaceObjectSetInstance object_set_instance;
  GDExtensionInterfacePackedByteArrayOperatorIndex packed_byte_array_operator_index;
  GDExtensionInterfacePackedByteArrayOperatorIndexConst packed_byte_array_operator_index_const;
  GDExtensionInterfacePrintError print_error;
  GDExtensionInterfaceStringNameNewWithUtf8Chars string_name_new_with_utf8_chars;
  GDExtensionInterfaceStringNewWithUtf8CharsAndLen string_new_with_utf8_chars_and_len;
  GDExtensionInterfaceStringToUtf8Chars string_to_utf8_chars;
  GDExtensionInterfaceVariantCall variant_call;
  GDExtensionInterfaceVariantDestroy variant_destroy;
  GDExtensionInterfaceVariantGetPtrConstructor variant_get_ptr_constructor;
  GDExtensionInterfaceVariantGetPtrDestructor variant_get_ptr_destructor;

  void destroy(GDExtensionVariantType type, void* value) const;
};

/// Room for any of the engine's values that are used here, in builds of either precision.
struct alignas(8) Room {
  std::array<std::byte, 40> bytes;

  void* get() { return bytes.data(); }
  const void* get() const { return bytes.data(); }
};

/// A name as the engine keeps names.
class Name {
 public:
  Name(const Godot& godot, const char* name) : godot_(godot) {
    godot.string_name_new_with_utf8_chars(room_.get(), name);
  }
  Name(const Name&) = delete;
  Name& operator=(const Name&) = delete;
  ~Name() { godot_.destroy(GDEXTENSION_VARIANT_TYPE_STRING_NAME, room_.get()); }

  void* get() { return room_.get(); }

 private:
  const Godot& godot_;
  Room room_;
};

// How a C++ type is one of the engine's: `make` constructs it in memory, `read` copies it.
template <typename T>
struct Builtin;

template <typename T, GDExtensionVariantType kVariantType>
struct PlainBuiltin {
  static constexpr GDExtensionVariantType kType = kVariantType;
  static void make(const Godot&, void* memory, const T& value) {
    std::memcpy(memory, &value, sizeof value);
  }
  static T read(const Godot&, const void* memory) {
    T value;
    std::memcpy(&value, memory, sizeof value);
    return value;
  }
};
template <>
struct Builtin<bool> : PlainBuiltin<bool, GDEXTENSION_VARIANT_TYPE_BOOL> {};
template <>
struct Builtin<std::int64_t> : PlainBuiltin<std::int64_t, GDEXTENSION_VARIANT_TYPE_INT> {};
template <>
struct Builtin<double> : PlainBuiltin<double, GDEXTENSION_VARIANT_TYPE_FLOAT> {};
template <>
struct Builtin<GDExtensionObjectPtr>
    : PlainBuiltin<GDExtensionObjectPtr, GDEXTENSION_VARIANT_TYPE_OBJECT> {};
template <>
struct Builtin<std::string> {
  static constexpr GDExtensionVariantType kType = GDEXTENSION_VARIANT_TYPE_STRING;
  static void make(const Godot& godot, void* memory, const std::string& value);
  static std::string read(const Godot& godot, const void* memory);
};
template <>
struct Builtin<Bytes> {
  static constexpr GDExtensionVariantType kType = GDEXTENSION_VARIANT_TYPE_PACKED_BYTE_ARRAY;
  static void make(const Godot& godot, void* memory, const Bytes& value);
  static Bytes read(const Godot& godot, const void* memory);
};

/// One of the engine's values.
template <typename T>
class Typed {
 public:
  Typed(const Godot& godot, const T& value) : godot_(godot) {
    Builtin<T>::make(godot, room_.get(), value);
  }
  Typed(const Typed&) = delete;
  Typed& operator=(const Typed&) = delete;
  ~Typed() { godot_.destroy(Builtin<T>::kType, room_.get()); }

  void* get() { return room_.get(); }

 private:
  const Godot& godot_;
  Room room_;
};

/// A value of any type.
class Variant {
 public:
  template <typename T>
  Variant(const Godot& godot, const T& value) : godot_(godot) {
    make(godot, room_.get(), value);
  }
  /// Of a value that the engine has.
  struct Existing {
    GDExtensionVariantType type;
    const void* value;
  };
  Variant(const Godot& godot, Existing existing) : godot_(godot) {
    godot.get_variant_from_type_constructor(existing.type)(room_.get(),
                                                           const_cast<void*>(existing.value));
  }
  Variant(const Variant&) = delete;
  Variant& operator=(const Variant&) = delete;
  ~Variant() { godot_.variant_destroy(room_.get()); }

  /// In memory that the caller has.
  template <typename T>
  static void make(const Godot& godot, void* memory, const T& value) {
    Typed<T> typed(godot, value);
    godot.get_variant_from_type_constructor(Builtin<T>::kType)(memory, typed.get());
  }
  /// As the engine converts it to T.
  template <typename T>
  static T read(const Godot& godot, const void* variant) {
    Room converted;
    // The engine reads the variant, though its function does not say so.
    godot.get_variant_to_type_constructor(Builtin<T>::kType)(converted.get(),
                                                             const_cast<void*>(variant));
    T value = Builtin<T>::read(godot, converted.get());
    godot.destroy(Builtin<T>::kType, converted.get());
    return value;
  }

  /// Calls its method; false: it was not called.
  template <typename Result>
  bool call(const char* method, std::initializer_list<const Variant*> arguments, Result& result) {
    Room returned;
    if (!call(method, arguments, returned)) return false;
    result = read<Result>(godot_, returned.get());
    godot_.variant_destroy(returned.get());
    return true;
  }
  bool call(const char* method, std::initializer_list<const Variant*> arguments) {
    Room returned;
    if (!call(method, arguments, returned)) return false;
    godot_.variant_destroy(returned.get());
    return true;
  }

  void* get() { return room_.get(); }
  const void* get() const { return room_.get(); }

 private:
  bool call(const char* method, std::initializer_list<const Variant*> arguments, Room& returned);

  const Godot& godot_;
  Room room_;
};

/// A property or an argument, as the engine wants it described.
class Described {
 public:
  Described(const Godot& godot, GDExtensionVariantType type, const char* name);

  GDExtensionPropertyInfo info;

 private:
  Name name_, class_name_;
  Typed<std::string> hint_;
};

// What calls a method of C++ with the engine's arguments.
template <auto kMethod>
struct Bound;

template <typename Class, typename Result, typename... Arguments,
          Result (Class::*kMethod)(Arguments...)>
struct Bound<kMethod> {
  static constexpr bool kReturns = !std::is_void_v<Result>;
  static constexpr GDExtensionVariantType kResult = [] {
    if constexpr (std::is_void_v<Result>) {
      return GDEXTENSION_VARIANT_TYPE_NIL;
    } else {
      return Builtin<Result>::kType;
    }
  }();
  static constexpr std::size_t kArguments = sizeof...(Arguments);
  static constexpr std::array<GDExtensionVariantType, kArguments> kTypes = {
      Builtin<std::decay_t<Arguments>>::kType...};

  static void call(void* userdata, GDExtensionClassInstancePtr instance,
                   const GDExtensionConstVariantPtr* arguments, GDExtensionInt n_arguments,
                   GDExtensionVariantPtr result, GDExtensionCallError* error) {
    error->expected = static_cast<std::int32_t>(kArguments);
    if (n_arguments != static_cast<GDExtensionInt>(kArguments)) {
      error->error = n_arguments < static_cast<GDExtensionInt>(kArguments)
                         ? GDEXTENSION_CALL_ERROR_TOO_FEW_ARGUMENTS
                         : GDEXTENSION_CALL_ERROR_TOO_MANY_ARGUMENTS;
      return;
    }
    error->error = GDEXTENSION_CALL_OK;
    const Godot& godot = *static_cast<const Godot*>(userdata);
    call(
        std::make_index_sequence<kArguments>(), instance,
        [&](auto* type, std::size_t i) {
          return Variant::read<std::remove_pointer_t<decltype(type)>>(godot, arguments[i]);
        },
        [&](const auto& value) { Variant::make(godot, result, value); });
  }

  static void call_typed(void* userdata, GDExtensionClassInstancePtr instance,
                         const GDExtensionConstTypePtr* arguments, GDExtensionTypePtr result) {
    const Godot& godot = *static_cast<const Godot*>(userdata);
    call(
        std::make_index_sequence<kArguments>(), instance,
        [&](auto* type, std::size_t i) {
          return Builtin<std::remove_pointer_t<decltype(type)>>::read(godot, arguments[i]);
        },
        [&](const auto& value) {
          using T = std::decay_t<decltype(value)>;
          godot.destroy(Builtin<T>::kType, result);
          Builtin<T>::make(godot, result, value);
        });
  }

 private:
  template <std::size_t... kIndices, typename Read, typename Give>
  static void call(std::index_sequence<kIndices...>, void* instance, const Read& read,
                   const Give& give) {
    Class& object = *static_cast<Class*>(instance);
    if constexpr (kReturns) {
      give((object.*kMethod)(read(static_cast<std::decay_t<Arguments>*>(nullptr), kIndices)...));
    } else {
      (object.*kMethod)(read(static_cast<std::decay_t<Arguments>*>(nullptr), kIndices)...);
    }
  }
};

/// Registers what a class has. The class itself must be registered.
class ClassBuilder {
 public:
  ClassBuilder(const Godot& godot, const char* class_name) : godot_(godot), class_(class_name) {}

  template <auto kMethod>
  void method(const char* name, std::initializer_list<const char*> argument_names = {}) {
    using Method = Bound<kMethod>;
    GDExtensionClassMethodInfo info{};
    info.call_func = Method::call;
    info.ptrcall_func = Method::call_typed;
    info.has_return_value = Method::kReturns;
    add_method(name, info, Method::kResult, {Method::kTypes.begin(), Method::kTypes.end()},
               argument_names);
  }

  /// With methods set_NAME and get_NAME.
  template <auto kSet, auto kGet>
  void property(const char* name) {
    const std::string set = std::string("set_") + name;
    const std::string get = std::string("get_") + name;
    method<kSet>(set.c_str(), {"value"});
    method<kGet>(get.c_str());
    add_property(name, Bound<kGet>::kResult, set.c_str(), get.c_str());
  }

  template <typename Argument>
  void signal(const char* name, const char* argument) {
    add_signal(name, Builtin<Argument>::kType, argument);
  }

 private:
  void add_method(const char* name, GDExtensionClassMethodInfo& info, GDExtensionVariantType result,
                  const std::vector<GDExtensionVariantType>& types,
                  std::initializer_list<const char*> argument_names);
  void add_property(const char* name, GDExtensionVariantType type, const char* set,
                    const char* get);
  void add_signal(const char* name, GDExtensionVariantType type, const char* argument);

  const Godot& godot_;
  const char* class_;
};
