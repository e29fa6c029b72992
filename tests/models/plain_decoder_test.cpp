// Families that no golden file shows, against their formulas computed plainly.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "models/families.hpp"
#include "models/reference.hpp"
#include "tests/models/plain_decoder.hpp"

namespace pumice {
namespace {

class Plain : public ::testing::TestWithParam<test::PlainFamily> {};

TEST_P(Plain, LogitsAgree) {
  const test::PlainDecoder& form = GetParam().form;
  const auto tensors = form.random_tensors(3);
  const auto file = form.file(tensors, GetParam().keys);
  const ModelSource source(file->file());
  const Result<Program> program = build_program(source);
  ASSERT_TRUE(program.ok()) << program.error().message;
  std::vector<TokenId> tokens(40);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<TokenId>(i * 13 % 48);
  const std::vector<double> expected = form.logits(tensors, tokens);
  const ReferenceLogits got = reference_logits(source, *program, tokens).value();
  ASSERT_EQ(got.logits.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    ASSERT_NEAR(got.logits[i], expected[i], 1e-9) << "number " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Families, Plain, ::testing::ValuesIn(test::plain_families()),
                         [](const auto& given) { return given.param.name; });

}  // namespace
}  // namespace pumice
