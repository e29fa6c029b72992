// Rows of tables: where a program begins.
#pragma once

#include "models/calls/call.hpp"

namespace pumice {
namespace call {

struct Embed {
  GroupId table;
  bool by_position;  ///< its rows are positions' rather than tokens'
  View y;
  float scale;

  void operands(Operands& o) const { o.buffer(y), o.rows(table, 1); }
};

}  // namespace call

BindResult bind(const call::Embed& c, Binder& binder);

}  // namespace pumice
