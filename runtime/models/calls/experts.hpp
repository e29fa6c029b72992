// Mixtures of experts: which a row takes, their products, and the weighted sum of these.
#pragma once

#include "models/calls/call.hpp"
#include "models/program.hpp"

namespace pumice {
namespace call {

struct Route {
  View scores;
  View routes;  ///< n_used times an expert's number and the bits of its weight
  uint32_t n_experts;
  uint32_t n_used;
  Router router;
  std::optional<VectorId> bias;
  std::optional<VectorId> gains;

  void operands(Operands& o) const { o.buffer(scores), o.buffer(routes); }
};

/// Routes sorted by expert, where there are so many rows that ExpertLinear wants them so.
struct GroupRoutes {
  View routes;
  View groups;  ///< ops::ExpertGemm::Groups
  uint32_t n_experts;
  uint32_t n_used;

  void operands(Operands& o) const { o.buffer(routes), o.buffer(groups); }
};

struct ExpertLinear {
  View x;
  View routes;
  View groups;       ///< what GroupRoutes made of them
  GroupId matrices;  ///< one, the experts' rows one after the other
  std::optional<VectorId> bias;
  View y;
  uint32_t n_experts;
  uint32_t n_used;
  uint32_t n_rows;     ///< of one expert
  uint32_t n_columns;  ///< numbers of a row of x
  bool row_each;       ///< x has a row for each expert of a token, rather than one for all

  void operands(Operands& o) const {
    o.buffer(x), o.buffer(routes), o.buffer(groups), o.buffer(y);
    o.product(n_columns, row_each ? n_used : 1);
    o.rows(matrices, uint64_t{n_used} * n_rows);
  }
};

struct Combine {
  View x;
  View routes;
  View y;
  uint32_t n;
  uint32_t n_used;

  void operands(Operands& o) const { o.buffer(x), o.buffer(routes), o.buffer(y); }
};

}  // namespace call

BindResult bind(const call::Route& c, Binder& binder);
BindResult bind(const call::GroupRoutes& c, Binder& binder);
BindResult bind(const call::ExpertLinear& c, Binder& binder);
BindResult bind(const call::Combine& c, Binder& binder);

}  // namespace pumice
