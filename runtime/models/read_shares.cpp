#include "models/read_shares.hpp"

#include <variant>

namespace pumice {
namespace {

class Shares {
 public:
  explicit Shares(const Program& program)
      : program_(program), shares_(program.tensors.size(), 0.0) {}

  std::vector<double> run() && {
    for (const Op& op : program_.ops) {
      std::visit([this](const auto& what) { add(what); }, op.what);
    }
    return std::move(shares_);
  }

 private:
  /// Rows of all matrices of a tensor.
  double rows_of(TensorId tensor) const {
    const auto& dims = program_.tensors[tensor].dims;
    return static_cast<double>(dims[1]) * static_cast<double>(dims[2]);
  }
  void add_rows(TensorId tensor, double n_rows) { shares_[tensor] += n_rows / rows_of(tensor); }

  void add(const op::Embed& o) { add_rows(o.table, 1); }
  void add(const op::EmbedPosition& o) { add_rows(o.table, 1); }
  void add(const op::Linear& o) { add_rows(o.weight.tensor, o.weight.n_rows); }
  void add(const op::HeadLinear& o) {
    add_rows(o.weight, static_cast<double>(o.n_heads) * o.n_rows);
  }
  void add(const op::ExpertLinear& o) {
    const auto n_experts = static_cast<double>(program_.tensors[o.weight].dims[2]);
    shares_[o.weight] += program_.values[o.routes].width / n_experts;
  }
  template <typename Other>
  void add(const Other&) {}  // reads vectors, or no weights

  const Program& program_;
  std::vector<double> shares_;
};

}  // namespace

std::vector<double> read_shares(const Program& program) { return Shares(program).run(); }

}  // namespace pumice
