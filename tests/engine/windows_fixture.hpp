// Models with a full group and a window, for law 1.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tests/engine/law_fixture.hpp"
#include "tests/models/plain_transformer.hpp"

namespace pumice::test {

inline constexpr uint32_t kWindow = 32;  // of the models here
inline constexpr uint32_t kPrompt = 4 * kWindow + 2;
inline constexpr uint32_t kNew = 3;
inline constexpr uint32_t kContext = 160;

/// A model whose values are smaller than keys, which no file of the shared data is.
inline constexpr const char* kSmallValues = "mimo2";

struct Family {
  const char* name;  ///< of a file of the shared data, or kSmallValues
  Arithmetic arithmetic = kF32Arithmetic;
  bool invariant = false;
  KvTypes kv_type = KvType::kF32;
};

inline std::string family_name(const ::testing::TestParamInfo<Family>& given) {
  std::string kv;
  for (const KvType type : {given.param.kv_type.k, given.param.kv_type.v}) {
    if (given.param.kv_type != KvType::kF32) kv += "_" + std::string(kv_type_name(type));
  }
  return given.param.name + std::string(given.param.invariant ? "_invariant" : "") + "_" +
         arithmetic_name(given.param.arithmetic) + kv;
}

class Windows : public LawTest, public ::testing::WithParamInterface<Family> {
 protected:
  void SetUp() override {
    EngineTest::SetUp();
    if (IsSkipped()) return;
    const Family& family = GetParam();
    const Law law{.arithmetic = family.arithmetic,
                  .invariant = family.invariant,
                  .kv_type = family.kv_type,
                  .prompt_tokens = kPrompt,
                  .new_tokens = kNew,
                  .context_tokens = kContext};
    if (std::string_view(family.name) == kSmallValues) {
      PlainForm form = form_with_small_values();
      for (uint32_t& window : form.windows) window = window == 0 ? 0 : kWindow;
      file_ = PlainTransformer(form).file();
      return set_up(Model::load(pipelines_->device(), file_->file()).value(), law);
    }
    set_up(load_family(family.name), law);
  }

  /// The first tokens of the prompt, and one that is not its next.
  std::vector<TokenId> beginning(uint32_t n_tokens) const {
    std::vector<TokenId> result(prompt_.begin(), prompt_.begin() + n_tokens);
    result.push_back((prompt_[n_tokens] + 1) % model_->program.n_vocab);
    return result;
  }

  /// Pages that sequences use now.
  static uint32_t used_pages(const Engine& engine) {
    return engine.scheduler().cache().n_pages() - engine.scheduler().cache().n_free_pages();
  }

 private:
  std::unique_ptr<SmallFile> file_;
};

}  // namespace pumice::test
