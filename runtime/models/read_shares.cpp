#include "models/read_shares.hpp"

namespace pumice {

std::vector<double> read_shares(const Program& program, const Lowered& lowered) {
  std::vector<double> shares(program.tensors.size(), 0.0);
  const auto add = [&](const MatrixRows& matrix, uint64_t n_rows) {
    const auto& dims = program.tensors[matrix.tensor].dims;
    shares[matrix.tensor] += static_cast<double>(n_rows) / static_cast<double>(dims[1] * dims[2]);
  };
  for (const Dispatch& dispatch : lowered.dispatches) {
    for (const Operands::Rows& rows : operands(dispatch.what).matrices) {
      const std::vector<MatrixRows>& group = lowered.matrices[rows.group];
      for (uint32_t i = 0; i < group.size(); ++i) {
        if (rows.member.value_or(i) == i) add(group[i], rows.n_rows.value_or(group[i].n_rows));
      }
    }
  }
  return shares;
}

}  // namespace pumice
