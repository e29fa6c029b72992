#include "base/local_time.hpp"

namespace pumice {

std::tm local_time(std::time_t seconds) {
  std::tm local{};
  ::localtime_s(&local, &seconds);
  return local;
}

}  // namespace pumice
