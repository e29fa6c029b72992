#include "base/local_time.hpp"

namespace pumice {

std::tm local_time(std::time_t seconds) {
  std::tm local{};
  ::localtime_r(&seconds, &local);
  return local;
}

}  // namespace pumice
