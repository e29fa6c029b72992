// What adapters add to products.
#pragma once

#include "models/calls/call.hpp"

namespace pumice {
namespace call {

/// y += B (A x), of rows that have an adapter. Nothing is recorded in steps where none has.
struct Lora {
  View x;
  View t;  ///< [rank]: scratch
  View y;
  uint32_t matrix;  ///< index into Program::adapted
  uint32_t n_in;
  uint32_t n_out;
  uint32_t first_out;  ///< of the matrix's outputs, the first of y
  uint32_t b_stride;   ///< the matrix's outputs
  uint32_t rank;
  bool of_logits;  ///< of rows of logits, rather than all

  void operands(Operands& o) const { o.buffer(x), o.buffer(t), o.buffer(y); }
};

}  // namespace call

BindResult bind(const call::Lora& c, Binder& binder);

}  // namespace pumice
