#include "shaders/common/kv_layout.hpp"

namespace pumice {

std::string KvTypes::name() const {
  std::string text(kv_type_name(k));
  if (v != k) text.append("-").append(kv_type_name(v));
  return text;
}

std::optional<KvTypes> KvTypes::parse(std::string_view name) {
  const size_t dash = name.find('-');
  const std::optional<KvType> keys = parse_kv_type(name.substr(0, dash));
  const std::optional<KvType> values =
      dash == std::string_view::npos ? keys : parse_kv_type(name.substr(dash + 1));
  if (!keys || !values) return std::nullopt;
  return KvTypes(*keys, *values);
}

Status check_kv_types(std::string_view what, KvTypes types, uint32_t head_dim, uint32_t v_dim) {
  const auto check = [&](std::string_view which, KvType type, uint32_t n) -> Status {
    if (n % kv_quant_elements(type) == 0) return {};
    return make_error(ErrorCode::kInvalidArgument,
                      "{}: {} of {} elements a head cannot be cached in {}, which scales {} at a "
                      "time; use -ctk f16 -ctv f16",
                      what, which, n, kv_type_name(type), kv_quant_elements(type));
  };
  PUMICE_TRY_STATUS(check("keys", types.k, head_dim));
  return check("values", types.v, v_dim != 0 ? v_dim : head_dim);
}

}  // namespace pumice
