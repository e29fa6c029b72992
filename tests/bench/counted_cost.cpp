#include "tests/bench/counted_cost.hpp"

#include <algorithm>
#include <cmath>
#include <set>
#include <string_view>

namespace pumice::bench::test {
namespace {

class Count {
 public:
  Count(const SyntheticModel& model, KvTypes kv_type, std::span<const StepRows> batch,
        uint32_t n_logit_rows)
      : model_(model),
        s_(model.shape()),
        batch_(batch),
        kv_token_bytes_(uint64_t{s_.n_kv_heads} * kv_type.row_bytes(head_dim())),
        n_logit_rows_(n_logit_rows) {
    for (const StepRows& chunk : batch) n_rows_ += chunk.n_rows;
  }

  Amount of(Part part) const {
    switch (part) {
      case Part::kEmbedding:
        return embedding();
      case Part::kNorms:
        return norms();
      case Part::kQkv:
        return matrices({"attn_q.weight", "attn_k.weight", "attn_v.weight"}, n_rows_);
      case Part::kRopeKv:
        return rope_kv();
      case Part::kAttention:
        return attention();
      case Part::kRecurrence:
        return {};  // these models have none
      case Part::kAttentionOutput:
        return matrices({"attn_output.weight"}, n_rows_);
      case Part::kRouter:
        return matrices({"ffn_gate_inp.weight"}, n_rows_);
      case Part::kGateUp:
        return experts() ? expert_matrices({"ffn_gate_exps.weight", "ffn_up_exps.weight"}, true)
                         : matrices({"ffn_gate.weight", "ffn_up.weight"}, n_rows_);
      case Part::kActivation:
        return activation();
      case Part::kDown:
        return experts() ? expert_matrices({"ffn_down_exps.weight"}, false)
                         : matrices({"ffn_down.weight"}, n_rows_);
      default:
        return matrices({s_.tied ? "token_embd.weight" : "output.weight"}, n_logit_rows_);
    }
  }

 private:
  bool experts() const { return s_.n_experts > 0; }
  uint32_t head_dim() const { return s_.n_embd / s_.n_heads; }

  /// Tensors with these names behind "blk.N.", of every layer.
  std::vector<const SyntheticTensor*> tensors(std::string_view name) const {
    std::vector<const SyntheticTensor*> found;
    for (const SyntheticTensor& tensor : model_.tensors()) {
      std::string_view rest = tensor.name;
      if (rest.starts_with("blk.")) rest = rest.substr(rest.find('.', 4) + 1);
      if (rest == name) found.push_back(&tensor);
    }
    return found;
  }

  static uint64_t bytes(const SyntheticTensor& tensor) {
    uint64_t elements = 1;
    for (const uint64_t dim : tensor.dims) elements *= dim;
    return elements / tensor.type->block_elements * tensor.type->block_bytes;
  }

  /// All of these of a layer read one x.
  Amount matrices(std::initializer_list<std::string_view> names, uint64_t n_rows) const {
    Amount sum;
    for (uint64_t row = 0; row < n_rows; ++row) {
      for (const std::string_view name : names) {
        for (const SyntheticTensor* tensor : tensors(name)) {
          sum.flops += 2 * tensor->dims[0] * tensor->dims[1];
          if (row == 0) sum.weight_bytes += bytes(*tensor);
          if (name == *names.begin()) sum.activation_bytes += 4 * tensor->dims[0];
          sum.activation_bytes += 4 * tensor->dims[1];
        }
      }
    }
    return sum;
  }

  Amount expert_matrices(std::initializer_list<std::string_view> names, bool one_x) const {
    Amount sum;
    uint64_t all_bytes = 0;
    double none_chose_it = 1;  // a given expert
    for (uint64_t row = 0; row < n_rows_; ++row) {
      none_chose_it *= 1 - static_cast<double>(s_.n_experts_used) / s_.n_experts;
      for (uint32_t used = 0; used < s_.n_experts_used; ++used) {
        for (const std::string_view name : names) {
          for (const SyntheticTensor* tensor : tensors(name)) {
            sum.flops += 2 * tensor->dims[0] * tensor->dims[1];
            if (row == 0 && used == 0) all_bytes += bytes(*tensor);
            const bool reads = name == *names.begin() && (used == 0 || !one_x);
            if (reads) sum.activation_bytes += 4 * tensor->dims[0];
            sum.activation_bytes += 4 * tensor->dims[1];
          }
        }
      }
    }
    sum.weight_bytes =
        static_cast<uint64_t>(std::llround(static_cast<double>(all_bytes) * (1 - none_chose_it)));
    return sum;
  }

  Amount embedding() const {
    const SyntheticTensor* table = tensors("token_embd.weight").front();
    Amount sum;
    for (uint64_t row = 0; row < n_rows_; ++row) {
      sum.weight_bytes += bytes(*table) / table->dims[1];
      sum.activation_bytes += 4 * table->dims[0];
    }
    return sum;
  }

  /// Square, sum, scale, weight; before all but the first, the residual is added.
  Amount norms() const {
    Amount sum;
    bool first = true;
    const auto norm = [&](uint64_t n_rows) {
      for (uint64_t value = 0; value < n_rows * s_.n_embd; ++value) {
        sum.flops += first ? 4 : 5;
        sum.activation_bytes += first ? 4 + 4 : 8 + 8;
      }
      if (n_rows > 0) sum.weight_bytes += 4 * s_.n_embd;
      first = false;
    };
    for (uint32_t i = 0; i < 2 * s_.n_layers; ++i) norm(n_rows_);
    norm(n_logit_rows_);
    return sum;
  }

  Amount rope_kv() const {
    Amount sum;
    for (uint64_t i = 0; i < n_rows_ * s_.n_layers; ++i) {
      sum.flops += uint64_t{s_.n_heads + s_.n_kv_heads} * (head_dim() / 2) * 6;
      sum.activation_bytes += uint64_t{s_.n_heads} * head_dim() * 2 * 4;     // q, in place
      sum.activation_bytes += uint64_t{s_.n_kv_heads} * head_dim() * 2 * 4;  // k and v
      sum.activation_bytes += uint64_t{head_dim()} * 4;                      // of the table
      sum.kv_bytes += kv_token_bytes_;
    }
    return sum;
  }

  Amount attention() const {
    Amount sum;
    for (uint32_t layer = 0; layer < s_.n_layers; ++layer) {
      for (const StepRows& chunk : batch_) {
        std::set<uint32_t> keys_read;
        for (uint32_t row = 0; row < chunk.n_rows; ++row) {
          sum.activation_bytes += uint64_t{s_.n_heads} * head_dim() * 2 * 4;  // q and the result
          for (uint32_t key = 0; key <= chunk.first_position + row; ++key) {
            keys_read.insert(key);
            for (uint32_t head = 0; head < s_.n_heads; ++head) {
              sum.flops += 2 * head_dim();  // the score
              sum.flops += 2 * head_dim();  // the value, weighted
            }
          }
        }
        sum.kv_bytes += keys_read.size() * kv_token_bytes_;
      }
    }
    return sum;
  }

  Amount activation() const {
    Amount sum;
    const uint32_t paths = experts() ? s_.n_experts_used : 1;
    for (uint64_t i = 0; i < n_rows_ * s_.n_layers; ++i) {
      for (uint32_t path = 0; path < paths; ++path) {
        sum.flops += 4ull * s_.n_ff;
        sum.activation_bytes += 3ull * 4 * s_.n_ff;
        if (!experts()) continue;
        sum.flops += 2ull * s_.n_embd;             // weighted and added
        sum.activation_bytes += 4ull * s_.n_embd;  // read
      }
      if (experts()) sum.activation_bytes += 4ull * s_.n_embd;  // written
    }
    return sum;
  }

  const SyntheticModel& model_;
  const SyntheticShape& s_;
  std::span<const StepRows> batch_;
  uint64_t kv_token_bytes_;
  uint64_t n_logit_rows_;
  uint64_t n_rows_ = 0;
};

}  // namespace

Amount counted_part(Part part, const SyntheticModel& model, KvTypes kv_type,
                    std::span<const StepRows> batch, uint32_t n_logit_rows) {
  return Count(model, kv_type, batch, n_logit_rows).of(part);
}

}  // namespace pumice::bench::test
