#include "base/check.hpp"
#include "base/result.hpp"

namespace pumice {

void check_failed(const char* file, int line, const char* condition, const std::string& message) {
  throw CheckFailure(fmt::format("{}:{}: {} ({})", file, line, message, condition));
}

int exit_code(ErrorCode code) {
  constexpr int kOthers = 1;
  constexpr int kCodes[] = {2, 3, 4, 5, 6, 75, 130};  // from kInvalidArgument to kCancelled
  return code <= ErrorCode::kCancelled ? kCodes[static_cast<size_t>(code)] : kOthers;
}

}  // namespace pumice
