#include "base/check.hpp"
#include "base/result.hpp"

namespace pumice {

void check_failed(const char* file, int line, const char* condition, const std::string& message) {
  throw CheckFailure(fmt::format("{}:{}: {} ({})", file, line, message, condition));
}

int exit_code(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return 2;
    case ErrorCode::kNoDevice:
      return 3;
    case ErrorCode::kBadFile:
      return 4;
    case ErrorCode::kDoesNotFit:
      return 5;
    case ErrorCode::kSelfTestFailed:
      return 6;
    case ErrorCode::kDeviceLost:
      return 75;
    case ErrorCode::kCancelled:
      return 130;
    case ErrorCode::kNotFound:
    case ErrorCode::kBusy:
    case ErrorCode::kOutOfMemory:
    case ErrorCode::kInternal:
      return 1;
  }
  return 1;
}

}  // namespace pumice
