// How much of each weight decoding one token reads: what decides which weights should lie in the
// faster memory.
#pragma once

#include <vector>

#include "models/lowering.hpp"

namespace pumice {

/// By tensor, of its bytes: 1 of a matrix that every token is multiplied by, the used experts'
/// share of a mixture's, a row's of an embedding; more of one that several operations read.
std::vector<double> read_shares(const Program& program, const Lowered& lowered);

}  // namespace pumice
