// The time of day where this machine is.
#pragma once

#include <ctime>

namespace pumice {

/// As std::localtime, for any number of threads.
std::tm local_time(std::time_t seconds);

}  // namespace pumice
