// The cache of compiled shaders that the driver keeps; ours is vk::PipelineLibrary's.
#pragma once

#include "base/log.hpp"

namespace pumice::tools {

/// Switch Mesa's shader cache off, with a warning, where the disk of its folder is nearly full: it
/// is mapped into memory, and a write that finds no room on the disk ends the process (SIGBUS).
/// Sets an environment variable, so it is for a program, before the driver is loaded and other
/// threads start. Does nothing where the user has set MESA_SHADER_CACHE_DISABLE.
void keep_driver_cache_off_full_disks(const Logger& logger);

}  // namespace pumice::tools
