// What a SPIR-V module declares, read from its words: enough to check a shader against its C++
// interface and to make a pipeline layout, with no dependency.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.hpp"

namespace pumice::vk {

struct ShaderInfo {
  uint32_t version = 0;                     ///< SPIR-V version word: 0x00010600 is 1.6
  std::vector<uint32_t> capabilities;       ///< SpvCapability numbers, in the module's order
  std::vector<std::string> extensions;      ///< OpExtension names
  std::string entry_point;                  ///< the one GLCompute entry point
  uint32_t push_constant_bytes = 0;         ///< end of the last member; 0: none
  std::vector<uint32_t> spec_constant_ids;  ///< SpecId decorations, ascending
  /// Workgroup size where it is a plain number; the default value where it is specialised.
  std::array<uint32_t, 3> workgroup_size = {1, 1, 1};
  /// SpecId of each dimension that is a specialisation constant.
  std::array<std::optional<uint32_t>, 3> workgroup_spec_ids;

  bool has_capability(uint32_t capability) const;
  bool has_spec_constant(uint32_t id) const;
};

/// kInternal, naming the word, for anything malformed: hostile words are safe, and memory is
/// proportional to them.
Result<ShaderInfo> read_shader_info(std::span<const uint32_t> words);

}  // namespace pumice::vk
