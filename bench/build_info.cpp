#include "bench/build_info.hpp"

#include <pumice_commit.h>

namespace pumice::bench {

std::string_view build_commit() { return PUMICE_COMMIT; }
bool build_is_dirty() { return PUMICE_COMMIT_IS_DIRTY; }

}  // namespace pumice::bench
