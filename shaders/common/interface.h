// Written once, read twice: an op's push constants and specialisation constants are X-macro lists
// that this header expands to GLSL declarations or to C++ structs.
//
//   #define RMS_NORM_PUSH(FIELD) FIELD(ADDRESS, x) FIELD(uint, n_cols)       8-byte fields first
//   PUMICE_PUSH_CONSTANTS(RmsNormPush, RMS_NORM_PUSH)
//   #define RMS_NORM_SPEC(CONSTANT) CONSTANT(1, uint, vec_size, 4)        id, type, name, default
//   PUMICE_SPEC_CONSTANTS(RmsNormSpec, RMS_NORM_SPEC)
//   PUMICE_STRUCT(SamplingRow, SAMPLING_ROW)    a struct in memory; fields as for push constants
//
// In GLSL the push constants are the block `pc`; a specialisation constant is a plain name.
// Constant id 0 is always `workgroup_size`, the invocations of a workgroup.
#ifndef PUMICE_SHADERS_COMMON_INTERFACE_H
#define PUMICE_SHADERS_COMMON_INTERFACE_H

#ifdef __cplusplus

#include <cstdint>

using uint = uint32_t;  // as GLSL says; some C libraries declare the same

#define ADDRESS uint64_t
#define PUMICE_FIELD(type, name) type name = {};
#define PUMICE_CONSTANT(id, type, name, value) type name = value;
#define PUMICE_CONSTANT_ENTRY(id, type, name, value) {id, sizeof(type)},
#define PUMICE_STRUCT(Struct, LIST) \
  struct Struct {                   \
    LIST(PUMICE_FIELD)              \
  };
/// Packed, so that no padding follows the last member: a GLSL push-constant block has none.
#define PUMICE_PUSH_CONSTANTS(Struct, LIST) \
  _Pragma("pack(push, 4)") PUMICE_STRUCT(Struct, LIST) _Pragma("pack(pop)")
/// The struct's members are 4 bytes each, in the order of the list.
#define PUMICE_SPEC_CONSTANTS(Struct, LIST)                            \
  struct Struct {                                                      \
    LIST(PUMICE_CONSTANT)                                              \
    struct Entry {                                                     \
      uint32_t id;                                                     \
      uint32_t size_bytes;                                             \
    };                                                                 \
    static constexpr Entry kEntries[] = {LIST(PUMICE_CONSTANT_ENTRY)}; \
  };

#else

#define ADDRESS uvec2
#define PUMICE_FIELD(type, name) type name;
#define PUMICE_CONSTANT(id, type, name, value) layout(constant_id = id) const type name = value;
#define PUMICE_PUSH_CONSTANTS(Struct, LIST) \
  layout(push_constant) uniform Struct{LIST(PUMICE_FIELD)} pc;
#define PUMICE_STRUCT(Struct, LIST) \
  struct Struct {                   \
    LIST(PUMICE_FIELD)              \
  };
#define PUMICE_SPEC_CONSTANTS(Struct, LIST) LIST(PUMICE_CONSTANT)

layout(local_size_x_id = 0) in;

#endif
#endif
